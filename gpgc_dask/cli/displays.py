"""Progress of long work on stderr: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from gpgc_dask.cli.console import time_text
from gpgc_dask.meter import Progress as WorkProgress
from gpgc_dask.progress import decades_to_go, seconds_left

__all__ = ["Display"]

PLAIN_SECONDS = 5.0
"""Between two lines of progress where nobody watches a terminal."""

STAGES = {"fit": "first read of the data", "review": "predicting every image without itself"}


class Display:
    """Shows how far work is: things done of things to do, or a fit on its way to the tolerance."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self.live = self.console.is_terminal
        self.bar = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            console=self.console,
            disable=not self.live,
        )
        self.tasks: dict[str, Any] = {}
        self.spoken = 0.0
        self.entries: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        for task in self.bar.tasks:
            if task.total is None and error == (None, None, None):
                self.bar.update(task.id, completed=1, total=1)
        if self.live:
            self.bar.stop()

    def say(self, text: str) -> None:
        """A line of its own, above the bars."""
        self.console.print(escape(text), style="dim")

    def work(self, progress: WorkProgress) -> None:
        """An ingest, a prediction, a report."""
        done, total = progress.done, progress.total
        told = f"{done:,}/{total:,}  {_speed(progress)}"
        self._show(progress.phase, told, ends=done == total, completed=done, total=total)

    def announce(self, stage: str) -> None:
        """Say what begins: "fit" or "review"."""
        self._show(stage, STAGES[stage], ends=True, total=None)

    def fit(self, entry: dict[str, Any]) -> None:
        """A step of a fit: reads, evidence, distance from the tolerance, time left."""
        self.entries.append(entry)
        first, to_go = (decades_to_go(self.entries[i]) for i in (0, -1))
        arrived = to_go <= 0
        distance = "at the tolerance" if arrived else f"10^{to_go:.1f} above the tolerance"
        told = f"reads {entry['reads']:.3g}  log evidence {entry['log_evidence']:.1f}  {distance}"
        if not arrived:
            told += f"  {time_text(seconds_left(self.entries))} left"
        done = 1.0 if arrived else max(1.0 - to_go / first, 0.0) if first > 0 else 0.0
        self._show("fit", told, ends=arrived, completed=done, total=1.0)

    def _show(self, name: str, told: str, *, ends: bool, **fields: Any) -> None:
        if self.live:
            if name not in self.tasks:
                self.tasks[name] = self.bar.add_task(name, told="")
            self.bar.update(self.tasks[name], told=told, **fields)
            return
        now = time.monotonic()
        if ends or now - self.spoken > PLAIN_SECONDS:
            self.spoken = now
            print(f"{name} {told}".rstrip(), file=sys.stderr, flush=True)


def _speed(progress: WorkProgress) -> str:
    parts = []
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
        if progress.done < progress.total:
            parts.append(f"{time_text(progress.seconds_left)} left")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    return "  ".join(parts)
