"""Output of commands: results to stdout, errors and notes to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpgc_dask.core.text import options_only, time_text

__all__ = ["facts", "listing", "note", "print_error", "print_json", "print_out", "time_text"]


def print_out(*things: Any) -> None:
    """Print text or tables to stdout; plain and not wrapped if it is not a terminal."""
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, highlight=False, emoji=False)
    for thing in things:
        console.print(thing)


def print_json(value: Any) -> None:
    """Print one JSON document to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_error(message: str) -> None:
    """Print an error message to stderr, with options instead of Python."""
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(
        f"[bold red]gpgc:[/bold red] {escape(options_only(message))}"
    )


def note(message: str) -> None:
    """Print a note to stderr that is not an error, with options instead of Python."""
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(
        f"[bold yellow]gpgc:[/bold yellow] {escape(options_only(message))}"
    )


def facts(rows: list[tuple[str, Any]]) -> Table:
    """A table of names and values."""
    table = Table.grid(padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, _plain(value))
    return table


def listing(
    title: str,
    columns: list[str],
    rows: list[tuple[Any, ...]],
    limit: int = 20,
    whole: Collection[str] = (),
) -> Table:
    """A table of at most ``limit`` rows; one more row has the number of the others.

    Cells of the columns in ``whole`` are not broken into lines, their headers are.
    """
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        if column in whole:
            table.add_column(column.replace(" ", "\n"), no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(_plain(cell) for cell in row))
    if len(rows) > limit:
        table.add_row(f"… and {len(rows) - limit} more")
    return table


def _plain(cell: Any) -> str:
    """Text of a cell: text from files is never taken for markup."""
    return escape(str(cell))
