"""Progress of long work on stderr: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from gpgc_dask.core.progress import BEGINNING, FitProgress, Lines, tell_work
from gpgc_dask.core.progress import Progress as WorkProgress

__all__ = ["Display"]

STAGES = {"fit": BEGINNING, "review": "predicting every image without itself"}


class Display(Lines):
    """Shows how far work is: things done of things to do, or a fit on its way to the tolerance."""

    def __init__(self) -> None:
        super().__init__()
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
        self.fit = FitProgress(self.show)

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
        tell_work(self.show, progress)

    def announce(self, stage: str) -> None:
        """Say what begins: "fit" or "review"."""
        self.show(stage, STAGES[stage], None, ends=True)

    def show(self, name: str, told: str, share: float | None, *, ends: bool = False) -> None:
        """A bar for each stage; a share that nobody knows moves to and fro."""
        if not self.live:
            super().show(name, told, share, ends=ends)
            return
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, told="", total=None)
        of = None if share is None else 1.0
        self.bar.update(self.tasks[name], told=told, completed=share, total=of)
