"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
)

from gpgc_dask.cli.console import time_text
from gpgc_dask.imaging.work import Progress as WorkProgress
from gpgc_dask.progress import decades_to_go, seconds_left

__all__ = ["FitDisplay", "WorkDisplay"]

PLAIN_SECONDS = 5.0
"""Between two lines of progress where nobody watches a terminal."""


class _Display:
    """A rich progress bar where stderr is a terminal, plain lines where it is not."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.live = self.console.is_terminal
        self.bar = Progress(*columns, console=self.console, disable=not self.live)
        self.tasks: dict[str, Any] = {}
        self.spoken = 0.0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()

    def show(self, name: str, plain: str, *, ends: bool, **fields: Any) -> None:
        """Update the bar called ``name``, or say ``plain`` if it is time to; always at the end."""
        if self.live:
            if name not in self.tasks:
                self.tasks[name] = self.bar.add_task(name, told="")
            self.bar.update(self.tasks[name], **fields)
            return
        now = time.monotonic()
        if ends or now - self.spoken > PLAIN_SECONDS:
            self.spoken = now
            print(plain.rstrip(), file=sys.stderr, flush=True)


class WorkDisplay(_Display):
    """Things done of things to do: an ingest, a prediction, a report."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
        )

    def __call__(self, progress: WorkProgress) -> None:
        done, total = progress.done, progress.total
        told = _speed(progress)
        plain = f"{progress.phase} {done}/{total}  {told}"
        ends = done == total
        self.show(progress.phase, plain, ends=ends, completed=done, total=total, told=told)


def _speed(progress: WorkProgress) -> str:
    parts = []
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
        if progress.done < progress.total:
            parts.append(f"{time_text(progress.seconds_left)} left")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    return "  ".join(parts)


class FitDisplay(_Display):
    """A fit on its way to the tolerance: reads, evidence, distance, time left."""

    def __init__(self) -> None:
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
        )
        self.entries: list[dict[str, Any]] = []

    def announce(self, stage: str) -> None:
        """Say what begins."""
        told = {"fit": "first read of the data", "review": "predicting every image without itself"}
        self.show(stage, f"{stage}: {told[stage]}", ends=True, total=None, told=told[stage])

    def __call__(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        first, to_go = (decades_to_go(self.entries[i]) for i in (0, -1))
        arrived = to_go <= 0
        distance = "at the tolerance" if arrived else f"10^{to_go:.1f} above the tolerance"
        told = f"reads {entry['reads']:.3g}  log evidence {entry['log_evidence']:.1f}  {distance}"
        if not arrived:
            told += f"  {time_text(seconds_left(self.entries))} left"
        done = 1.0 if arrived else max(1.0 - to_go / first, 0.0) if first > 0 else 0.0
        self.show("fit", f"fit  {told}", ends=arrived, completed=done, total=1.0, told=told)
