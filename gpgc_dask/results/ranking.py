"""Rankings: images in the order of their reliability, and which of them to choose."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pandas as pd

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.models.review import By
from gpgc_dask.results.columns import column_names, columns_in, plain_value

__all__ = [
    "SUSPECT_BELOW",
    "is_suspect",
    "records",
    "select_best",
    "select_worst",
    "to_csv",
]

SUSPECT_BELOW = 0.5
"""A mask is suspect if its agreement (IoU with a model that never saw it) is below this."""


def is_suspect(table: pd.DataFrame, below: float = SUSPECT_BELOW) -> Mask:
    """Whether each mask should be looked at: its agreement is low or unknown.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking.
    below : float, default 0.5
        Agreement below which a mask is suspect.

    Returns
    -------
    (images,) array of bool
    """
    return ~(table["agreement"].to_numpy() >= below)


def select_best(
    ranking: pd.DataFrame,
    *,
    top: int | str | None = None,
    min_score: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """Select the most reliable images of a ranking, best first.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.
    top : int or str, optional
        Number of images, or a share such as "25%".
    min_score : float, optional
        Minimum agreement (or confidence). Give either ``top`` or ``min_score``.
    by : {"agreement", "confidence"}, default "agreement"
        What ``min_score`` refers to.

    Returns
    -------
    pandas.DataFrame
        Rows of the ranking.

    Examples
    --------
    >>> from gpgc_dask import load, rank
    >>> from gpgc_dask.results.ranking import select_best
    >>> len(select_best(rank(load("model.zarr").review_), top="25%"))
    3
    """
    if (top is None) == (min_score is None):
        raise InputError(
            "choose how many images to keep: one of top (--top 25%) and min_score (--min-score)"
        )
    best = ranking.iloc[::-1]
    if min_score is not None and not math.isfinite(min_score):
        raise InputError(f"min_score must be a number such as 0.7, got {min_score}")
    if min_score is not None:
        return best[best[by].to_numpy() >= min_score]
    return best.head(_to_count(top, len(ranking), "top"))


def select_worst(
    ranking: pd.DataFrame,
    count: int | str | None = None,
    *,
    below: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """Select the least reliable images of a ranking, worst first.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.
    count : int or str, optional
        Number of images, or a share such as "10%". Default: all images.
    below : float, optional
        Select images with less agreement (or confidence) than this, and those whose agreement is
        unknown. Excludes ``count``.
    by : {"agreement", "confidence"}, default "agreement"
        What ``below`` refers to.

    Returns
    -------
    pandas.DataFrame
        Rows of the ranking.
    """
    if count is not None and below is not None:
        raise InputError("choose one of worst (--worst 10%) and below (--below 0.5), not both")
    if below is not None:
        if not math.isfinite(below):
            raise InputError(f"below must be a number such as 0.5, got {below}")
        return ranking[~(ranking[by].to_numpy() >= below)]
    return ranking if count is None else ranking.head(_to_count(count, len(ranking), "worst"))


def _to_count(count: int | str | None, n: int, name: str) -> int:
    """Number of images out of n: "25%" is a share, at least one image; 500 or "500" a number."""
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
    """Convert a ranking to CSV.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.

    Returns
    -------
    str
        One line per image, with the columns of ``gpgc_dask.results.columns``. Labels are joined
        by ";" and unknown numbers are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column_names())
    for row in records(ranking):
        writer.writerow([_to_csv_cell(value) for value in row.values()])
    return text.getvalue()


def _to_csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return ";".join(value)
    return "" if value is None else value


def records(ranking: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert a ranking to plain values for JSON.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.

    Returns
    -------
    list of dict
        One {column: value} per image. Labels are lists; unknown numbers are None.
    """
    columns = columns_in("files")
    names = [column.name for column in columns]
    return [
        {column.name: plain_value(column, cell) for column, cell in zip(columns, row, strict=True)}
        for row in ranking[names].itertuples(index=False, name=None)
    ]
