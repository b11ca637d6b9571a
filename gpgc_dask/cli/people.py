"""``gpgc rank --people``."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from shlex import quote
from typing import Any

from rich.markup import escape

from gpgc_dask.cli.console import listing, print_json, print_out
from gpgc_dask.results.columns import PEOPLE_COLUMNS, format_cell, format_interval

__all__ = ["list_people"]


def list_people(model: str, out: str | None, *, json: bool) -> None:
    """Write or print the table of annotators of a model."""
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import require_review
    from gpgc_dask.results.people import people_records, people_to_csv, rank_people
    from gpgc_dask.storage.location import write_whole

    people = rank_people(require_review(load(model), model))
    if out is not None:
        as_json = out.lower().endswith(".json")
        records = json_format.dumps(people_records(people), indent=2, ensure_ascii=False) + "\n"
        write_whole(Path(out), (records if as_json else people_to_csv(people)).encode())
    if json:
        print_json(people_records(people))
    elif out is None and not sys.stdout.isatty():
        print(people_to_csv(people), end="")
    else:
        _show(people_records(people))
        print_out(
            f"All of them: {escape(out or f'gpgc rank {quote(model)} --people -o people.csv')}"
        )


def _show(people: list[dict[str, Any]]) -> None:
    limits = {name for column in PEOPLE_COLUMNS for name in column.interval or ()}
    columns = [column for column in PEOPLE_COLUMNS if column.name not in limits]
    rows = []
    for person in people:
        cells = []
        for column in columns:
            text = format_cell(column, person[column.name])
            if column.interval is not None:
                text += format_interval(*(person[name] for name in column.interval))
            cells.append(text)
        rows.append(tuple(cells))
    whole = {column.title for column in columns if column.kind in ("integer", "number")}
    title = f"{len(people):,} annotators, worst first"
    print_out(listing(title, [column.title for column in columns], rows, whole=whole))
