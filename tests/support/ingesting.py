"""Options, faults and the command that tests of ingest share."""

from __future__ import annotations

import sys
from pathlib import Path

from gpgc_dask import Recipe

QUICK = Recipe(backbone="colour", superpixels=20)
"""Recipe of an ingest that takes a fraction of a second."""

COMMAND = [sys.executable, "-m", "gpgc_dask", "ingest"]


class CrashError(Exception):
    """Raised by :func:`crash_after`."""


def crash_after(monkeypatch, owner, name, calls):
    """Make a function raise a CrashError after a number of calls."""
    original, count = getattr(owner, name), iter(range(10**6))

    def failing(*args, **kwargs):
        if next(count) >= calls:
            raise CrashError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


def truncate(path: Path, size: int) -> None:
    """Cut a file off after some bytes."""
    path.write_bytes(path.read_bytes()[:size])
