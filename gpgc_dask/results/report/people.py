"""The table of annotators on the page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpgc_dask.results.people import rank_people

__all__ = ["find_people", "people_rows"]

COLUMNS = (
    ("masks", "masks", ",.0f", "number of masks"),
    ("suspect", "suspect", ",.0f", "number of suspect masks"),
    ("quality", "quality", ".2f", "mean quality of the masks, with an 80 % interval"),
    ("expected_quality", "expected", ".2f", "mean quality to expect of such images"),
    ("excess", "difference", "+.2f", "quality compared with others at equal difficulty"),
    ("noise_variance", "noise variance", ".2g", "noise variance of all masks together"),
    ("trend", "trend", "+.2f", "change of the quality in 30 days"),
)
"""Name of a column, its title, format and meaning."""


def find_people(review: pd.DataFrame) -> pd.DataFrame | None:
    """The annotators of a review, the worst first; None if they are unknown.

    Parameters
    ----------
    review : pandas.DataFrame

    Returns
    -------
    pandas.DataFrame or None
    """
    known = "annotator" in review and bool((review["annotator"] != "").any())
    return rank_people(review) if known else None


def people_rows(people: pd.DataFrame | None) -> dict[str, Any] | None:
    """The table of annotators as text.

    Parameters
    ----------
    people : pandas.DataFrame or None
        One row per annotator, the worst first: ``annotator``, ``masks``, ``suspect``, ``quality``
        and others, see :data:`COLUMNS`. Columns without any value are not shown.

    Returns
    -------
    dict or None
        ``columns``: (title, meaning) of each; ``rows``: (annotator, cells) of each annotator.
    """
    if people is None or people.empty:
        return None
    shown = [
        column for column in COLUMNS if column[0] in people and people[column[0]].notna().any()
    ]
    rows = []
    for row in people.to_dict("records"):
        cells = [
            format(row[name], form) if pd.notna(row[name]) else "–" for name, _, form, _ in shown
        ]
        rows.append(
            (
                str(row["annotator"]),
                [_extend(c, n[0], row) for c, n in zip(cells, shown, strict=True)],
            )
        )
    return {"columns": [(title, meaning) for _, title, _, meaning in shown], "rows": rows}


def _extend(cell: str, name: str, row: dict[str, Any]) -> str:
    """A cell with its interval, or with its share."""
    low, high = row.get("quality_low"), row.get("quality_high")
    if name == "quality" and pd.notna(low) and pd.notna(high):
        return f"{cell} ({low:.2f}–{high:.2f})"
    if name == "suspect" and row.get("masks"):
        return f"{cell} ({100 * row['suspect'] / row['masks']:.0f} %)"
    return cell
