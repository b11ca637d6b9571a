"""What listens to a demo, and what measures its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpgc_dask.core.progress import Progress

__all__ = ["Clock", "DemoListener"]


@dataclass(frozen=True)
class DemoListener:
    """Functions that are called while a demo runs.

    Attributes
    ----------
    command : callable
        Called with the command line of each stage.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress`.
    fit : callable, optional
        Called with the entries of the history of the fit.
    """

    command: Callable[[str], None] = lambda text: None
    progress: Callable[[Progress], None] | None = None
    fit: Callable[[dict[str, Any]], None] | None = None


@dataclass
class Clock:
    """Measures the seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start
