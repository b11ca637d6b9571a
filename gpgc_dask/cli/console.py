"""What every command prints with: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from gpgc_dask.imaging.work import Progress as IngestProgress

__all__ = ["IngestDisplay", "complain", "facts", "listing", "print_json", "print_out", "time_text"]

PLAIN_SECONDS = 5.0
"""Between two lines of progress where nobody watches a terminal."""


def print_out(*things: Any) -> None:
    """Print text or tables to stdout; plain and unwrapped where it is no terminal."""
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, highlight=False, emoji=False)
    for thing in things:
        console.print(thing)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def complain(message: str) -> None:
    """An error, for people."""
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(
        f"[bold red]gpgc:[/bold red] {escape(message)}"
    )


def facts(rows: list[tuple[str, Any]]) -> Table:
    """Names and values, side by side."""
    table = Table.grid(padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, _plain(value))
    return table


def listing(title: str, columns: list[str], rows: list[tuple[Any, ...]], most: int = 20) -> Table:
    """A table of at most ``most`` rows, the last saying how many more there are."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows[:most]:
        table.add_row(*(_plain(cell) for cell in row))
    if len(rows) > most:
        table.add_row(f"… and {len(rows) - most} more")
    return table


def _plain(cell: Any) -> str:
    """Text from files is shown as it is, never as markup."""
    return escape(str(cell))


def time_text(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class IngestDisplay:
    """Shows an ingest's progress: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.tasks: dict[str, Any] = {}
        self.spoken = 0.0

    def __enter__(self) -> IngestDisplay:
        self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()

    def __call__(self, progress: IngestProgress) -> None:
        told = _told(progress)
        if not self.console.is_terminal:
            self._line(progress, told)
            return
        if progress.phase not in self.tasks:
            self.tasks[progress.phase] = self.bar.add_task(progress.phase, told="")
        self.bar.update(
            self.tasks[progress.phase],
            completed=progress.done,
            total=progress.total,
            told=told,
        )

    def _line(self, progress: IngestProgress, told: str) -> None:
        now = time.monotonic()
        ends = progress.done == progress.total
        if ends or now - self.spoken > PLAIN_SECONDS:
            self.spoken = now
            text = f"{progress.phase} {progress.done}/{progress.total}  {told}"
            print(text.rstrip(), file=sys.stderr, flush=True)


def _told(progress: IngestProgress) -> str:
    parts = []
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
        if progress.done < progress.total:
            parts.append(f"{time_text(progress.seconds_left)} left")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    return "  ".join(parts)
