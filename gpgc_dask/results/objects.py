"""The table of annotations and regions in files."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pandas as pd

__all__ = ["FILE_COLUMNS", "object_headline", "object_records", "objects_to_csv"]

FILE_COLUMNS = (
    "rank", "annotation", "image", "class", "kind", "score", "x", "y", "width", "height",
)  # fmt: skip
"""Columns of CSV files."""

SUSPECT_BELOW = 0.5
"""Annotations of a lower score are suspect."""


def objects_to_csv(table: pd.DataFrame) -> str:
    """Convert a table of objects to CSV.

    Parameters
    ----------
    table : pandas.DataFrame
        ``model.objects_``.

    Returns
    -------
    str
        One line per annotation and region, with the columns of ``FILE_COLUMNS``; scores of
        annotations that are too small to be judged are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FILE_COLUMNS)
    for row in table[list(FILE_COLUMNS)].itertuples(index=False, name=None):
        writer.writerow(["" if _is_nan(cell) else cell for cell in row])
    return text.getvalue()


def object_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert a table of objects to plain values for JSON.

    Parameters
    ----------
    table : pandas.DataFrame
        ``model.objects_``.

    Returns
    -------
    list of dict
        One {column: value} per annotation and region, with all columns. Unknown scores are None,
        polygons lists of [x, y, x, y, …].
    """
    rows = table.astype(object).to_dict("records")
    return [
        {
            str(name): None if _is_nan(value) else value
            for name, value in (row | {"polygon": json.loads(row["polygon"])}).items()
        }
        for row in rows
    ]


def object_headline(table: pd.DataFrame) -> str:
    """How many annotations are suspect, and how many regions were found, in one line."""
    given = table[table["kind"] == "given"]
    suspect = int((given["score"] < SUSPECT_BELOW).sum())
    small = int((~given["judged"].astype(bool)).sum())
    counts = [
        f"{int((table['kind'] == kind).sum()):,} {kind}"
        for kind in ("missing", "spurious", "wrong class")
    ]
    return (
        f"{suspect:,} of {len(given):,} annotations are suspect (score below {SUSPECT_BELOW}), "
        f"{small:,} are too small to judge; regions: {', '.join(counts)}"
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
