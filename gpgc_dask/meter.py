"""How far work on many things is, for whoever wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Listener", "Meter", "Progress", "time_text"]


@dataclass(frozen=True)
class Progress:
    """Where work stands.

    phase : "images", in an ingest then "writing" (the chunks); of a read of the data, its name
    """

    phase: str
    done: int
    total: int
    skipped: int
    rate: float
    """A second, in this run."""

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate > 0 else None


Listener = Callable[[Progress], None]


class Meter:
    """Counts what is done and tells the listener, with the rate of this run."""

    def __init__(self, listener: Listener | None, phase: str, total: int, done: int = 0) -> None:
        self.listener, self.phase, self.total = listener, phase, total
        self.done = self.begun = done
        self.start = time.perf_counter()
        self(0, 0)

    def __call__(self, more: int, skipped: int) -> None:
        self.done += more
        elapsed = max(time.perf_counter() - self.start, 1e-9)
        rate = (self.done - self.begun) / elapsed
        if self.listener is not None:
            self.listener(Progress(self.phase, self.done, self.total, skipped, rate))


def time_text(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
