"""Progress of long work on stderr: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from gpgc_dask.core.progress import FIRST_TEXT, FitProgress, LineDisplay, show_work
from gpgc_dask.core.progress import Progress as WorkProgress

__all__ = ["Display"]

STAGES = {"fit": FIRST_TEXT, "review": "predicting every image without itself"}


class Display(LineDisplay):
    """Shows the progress of work on many items, or of a fit, while the context lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self.live = self.console.is_terminal
        self.bar = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
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

    def print_line(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(escape(text), style="dim")

    def work(self, progress: WorkProgress) -> None:
        """Show the progress of an ingest, a prediction or a report."""
        show_work(self.show, progress)

    def announce(self, stage: str) -> None:
        """Show that a stage begins: "fit" or "review"."""
        self.show(stage, STAGES[stage], None, important=True)

    def show(self, name: str, text: str, share: float | None, *, important: bool = False) -> None:
        """Show one bar per stage; the bar of an unknown share moves back and forth."""
        if not self.live:
            super().show(name, text, share, important=important)
            return
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, text="", total=None)
        total = None if share is None else 1.0
        self.bar.update(self.tasks[name], text=text, completed=share, total=total)
