"""Images in the order of their reliability, and which of them to keep."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pandas as pd

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.models.review import By

__all__ = [
    "COLUMNS",
    "SUSPECT_BELOW",
    "is_suspect",
    "kept",
    "records",
    "to_csv",
    "worst",
]


COLUMNS = ["rank", "image", "agreement", "confidence", "noise_variance", "flags"]
"""What programs read."""

SUSPECT_BELOW = 0.5
"""A mask is suspect where a model that never saw it shares less than this with it (IoU)."""


def is_suspect(table: pd.DataFrame, below: float = SUSPECT_BELOW) -> Mask:
    """(images,) whether somebody should look at the mask: little agreement, or none to be had."""
    return ~(table["agreement"].to_numpy() >= below)


def kept(
    ranking: pd.DataFrame,
    *,
    top: int | str | None = None,
    min_score: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """The most reliable images of a ranking, best first.

    top : how many, or a share such as "25%";  min_score : at least this agreement (or confidence)

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask import rank
    >>> from gpgc_dask.results.ranking import kept
    >>> len(kept(rank(load("model.zarr").review_), top="25%"))
    3
    """
    if (top is None) == (min_score is None):
        raise InputError("say how many to keep: one of top (--top 25%) and min_score (--min-score)")
    best = ranking.iloc[::-1]
    if min_score is not None and not math.isfinite(min_score):
        raise InputError(f"min_score must be a number such as 0.7, got {min_score}")
    if min_score is not None:
        return best[best[by].to_numpy() >= min_score]
    return best.head(count_of(top, len(ranking)))


def worst(
    ranking: pd.DataFrame,
    count: int | str | None = None,
    *,
    below: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """The least reliable images of a ranking, worst first; all of them if nothing is said.

    count : how many, or a share such as "10%";  below : less agreement (or confidence) than this,
        and those of which nothing is known
    """
    if count is not None and below is not None:
        raise InputError("say one of worst (--worst 10%) and below (--below 0.5), not both")
    if below is not None:
        if not math.isfinite(below):
            raise InputError(f"below must be a number such as 0.5, got {below}")
        return ranking[~(ranking[by].to_numpy() >= below)]
    return ranking if count is None else ranking.head(count_of(count, len(ranking), "worst"))


def count_of(count: int | str | None, n: int, name: str = "top") -> int:
    """How many of n: "25%" is a share, at least one image; 500 or "500" a number."""
    text = str(count).strip()
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
            if 0 < share <= 1:
                return max(round(share * n), 1)
        elif (number := int(text)) > 0:
            return min(number, n)
    except ValueError:
        pass
    raise InputError(
        f"{name} must be a share above 0% up to 100%, such as 25%, or a number, such as 500; got "
        f"{count}"
    )


def to_csv(ranking: pd.DataFrame) -> str:
    """The ranking as CSV: ``COLUMNS``, rank 1 = worst, flags joined by ; and unknowns empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in ranking[COLUMNS].itertuples(index=False):
        cells = map(_plain, row)
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def records(ranking: pd.DataFrame) -> list[dict[str, Any]]:
    """The ranking as plain values for JSON: ``COLUMNS``, flags a list, None for unknown."""
    rows = ranking[COLUMNS].itertuples(index=False)
    found = [dict(zip(COLUMNS, map(_plain, row), strict=True)) for row in rows]
    return [one | {"flags": [flag for flag in one["flags"].split(";") if flag]} for one in found]


def _plain(cell: Any) -> Any:
    """Six digits are more than anybody ranks by; NaN is no value."""
    if not isinstance(cell, float):
        return cell
    return None if math.isnan(cell) else float(f"{cell:.6g}")
