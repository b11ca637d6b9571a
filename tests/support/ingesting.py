"""What the tests of ingest share."""

from __future__ import annotations

import sys
from pathlib import Path

QUICK = {"backbone": "colour", "superpixels": 20}
COMMAND = [sys.executable, "-m", "gpgc_dask", "ingest"]


class CrashError(Exception):
    pass


def crash_after(monkeypatch, owner, name, calls):
    """Make a function fail from its n-th call on."""
    original, count = getattr(owner, name), iter(range(10**6))

    def failing(*args, **kwargs):
        if next(count) >= calls:
            raise CrashError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
