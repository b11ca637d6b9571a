"""How far work on many images is, for whoever wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Listener", "Meter", "Progress"]


@dataclass(frozen=True)
class Progress:
    """Where work stands. ``phase``: "images", then in an ingest "writing" (the chunks)."""

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
