"""Progress for people: listeners that read the entries of ``history_`` as they come."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["describe", "progress_listener"]

Listener = Callable[[dict[str, Any]], None]


def progress_listener(progress: bool | Listener | None) -> tuple[Listener, ...]:
    """The ``progress`` parameter as listeners: True prints, a callable is called."""
    if progress is None or progress is False:
        return ()
    if progress is True:
        return (_print,)
    if not callable(progress):
        raise TypeError(f"progress must be True, False, None or a callable, got {progress!r}")
    return (progress,)


def describe(entry: dict[str, Any]) -> str:
    """One line: where the fit stands and how far it has to go, in log10 of the gain."""
    to_go = math.log10(max(entry["predicted_gain"], 1e-300) / entry["gain_tolerance"])
    seconds = sum(entry["seconds"].values())
    parts = [
        f"{entry['phase']:>11} {entry['iteration']:3d}",
        f"reads {entry['reads']:.3g}",
        f"log evidence {entry['log_evidence']:.3f}",
        f"c {entry['redundancy']:.3f}",
        "at the tolerance" if to_go <= 0 else f"10^{to_go:.1f} above the tolerance",
        f"{seconds:.2f} s",
    ]
    return "  ".join(parts)


def _print(entry: dict[str, Any]) -> None:
    print(describe(entry), file=sys.stderr, flush=True)
