"""Progress for people: listeners that read the entries of ``history_`` as they come."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["decades_to_go", "describe", "progress_listener", "seconds_left"]

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


def decades_to_go(entry: dict[str, Any]) -> float:
    """log10 of the predicted gain over the tolerance: 0 or less is at the tolerance."""
    return math.log10(max(entry["predicted_gain"], 1e-300) / entry["gain_tolerance"])


def seconds_left(entries: Sequence[dict[str, Any]], window: int = 4) -> float | None:
    """How long a fit has to go, by the speed at which its last entries neared the tolerance.

    None where that cannot be told: at the beginning, or while the gain does not fall.
    """
    last = entries[-window:]
    if len(last) < 2:
        return None
    to_go = [decades_to_go(entry) for entry in last]
    steps = len(last) - 1
    speed = (to_go[0] - to_go[-1]) / steps
    if to_go[-1] <= 0:
        return 0.0
    if speed <= 0:
        return None
    step_seconds = sum(sum(entry["seconds"].values()) for entry in last[1:]) / steps
    return math.ceil(to_go[-1] / speed) * step_seconds


def describe(entry: dict[str, Any]) -> str:
    """One line: where the fit stands and how far it has to go, in log10 of the gain."""
    to_go = decades_to_go(entry)
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
