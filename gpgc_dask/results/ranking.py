"""Rankings: images in the order of their reliability, and which of them to choose."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import CLASS_IOU, By, count_confusions
from gpgc_dask.quality.estimate import MIN_IMAGES
from gpgc_dask.quality.quality_regression import BAD_BELOW
from gpgc_dask.results.columns import Column, columns_in, plain_value

__all__ = [
    "CERTAINTY",
    "BadCount",
    "columns_of",
    "confusion",
    "count_bad",
    "headline",
    "is_suspect",
    "records",
    "select_best",
    "select_worst",
    "to_csv",
]

CERTAINTY = 0.9
"""A mask is suspect if its quality is below 0.5 with at least this probability."""

SPREAD = 1.28
"""Standard deviations around a mean that contain 80 % of the values."""


@dataclass(frozen=True)
class BadCount:
    """How many masks of a dataset are bad.

    Attributes
    ----------
    below : float
        Masks of a lower quality are bad.
    estimate : int
        Their number.
    low, high : int
        Limits of the number.
    """

    below: float
    estimate: int
    low: int
    high: int


def count_bad(table: pd.DataFrame) -> BadCount | None:
    """Estimate the number of masks with a quality below 0.5.

    The estimate is the sum of the probabilities p of the masks. The interval contains 80 % of the
    outcomes if they are independent, with variance Σ p (1 − p). As one error of the model may
    concern many masks, it also contains the number of masks whose interval is below 0.5, and of
    those whose interval begins below 0.5.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking.

    Returns
    -------
    BadCount or None
        None if the probabilities are unknown, with fewer than 30 images. Masks that a person has
        judged count as decided.
    """
    probability = table["bad_probability"].dropna().to_numpy(dtype=np.float64)
    decided = table["quality_low"] == table["quality_high"]
    if not (table["bad_probability"].notna() & ~decided).any() and not decided.all():
        return None
    mean = float(probability.sum())
    spread = SPREAD * math.sqrt(float((probability * (1 - probability)).sum()))
    low = min(mean - spread, int((table["quality_high"] <= BAD_BELOW).sum()))
    high = max(mean + spread, int((table["quality_low"] < BAD_BELOW).sum()))
    return BadCount(BAD_BELOW, round(mean), max(round(low), 0), min(round(high), len(table)))


def headline(table: pd.DataFrame) -> str:
    """How many masks are bad and how many are suspect, in one line.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking.

    Returns
    -------
    str
    """
    bad, suspect, n = count_bad(table), int(is_suspect(table).sum()), len(table)
    verb = "is" if suspect == 1 else "are"
    if bad is None:
        return (
            f"{suspect:,} of {n:,} masks {verb} suspect (quality below {BAD_BELOW}); fewer than "
            f"{MIN_IMAGES} images: quality is the agreement with calibrated probabilities, without "
            "an interval"
        )
    return (
        f"about {bad.estimate:,} of {n:,} masks ({bad.low:,}–{bad.high:,}) have a quality below "
        f"{bad.below}; {suspect:,} {verb} suspect ({100 * CERTAINTY:.0f} % sure)"
    )


def is_suspect(table: pd.DataFrame) -> Mask:
    """Whether each mask should be looked at.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking.

    Returns
    -------
    (images,) array of bool
        True if the quality is below 0.5 with a probability above 90 %. Where this probability is
        unknown (with fewer than 30 images): if the quality is below 0.5, or unknown too.
    """
    quality, probability = table["quality"].to_numpy(), table["bad_probability"].to_numpy()
    return np.where(np.isnan(probability), ~(quality >= BAD_BELOW), probability > CERTAINTY)


def confusion(model: FittedModel, dataset: xr.Dataset) -> dict[str, Any]:
    """The table of confused classes as plain values.

    Parameters
    ----------
    model : FittedModel
        Fitted on ``dataset``.
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`.

    Returns
    -------
    dict
        ``classes``, and ``pixels``: one list per given class with the number of its pixels that
        are predicted as each class without their image.
    """
    table = count_confusions(model, dataset)
    return {"classes": list(table), "pixels": table.to_numpy().tolist()}


def select_best(
    ranking: pd.DataFrame,
    *,
    top: int | str | None = None,
    min_score: float | None = None,
    by: By = "quality",
) -> pd.DataFrame:
    """Select the most reliable images of a ranking, best first.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.
    top : int or str, optional
        Number of images, or a share such as "25%".
    min_score : float, optional
        Minimum quality (or what ``by`` names). Give either ``top`` or ``min_score``.
    by : {"quality", "agreement", "confidence"}, default "quality"
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
    by: By = "quality",
) -> pd.DataFrame:
    """Select the least reliable images of a ranking, worst first.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.
    count : int or str, optional
        Number of images, or a share such as "10%". Default: all images.
    below : float, optional
        Select images of a lower quality (or what ``by`` names) than this, and those whose quality
        is unknown. Excludes ``count``.
    by : {"quality", "agreement", "confidence"}, default "quality"
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


def columns_of(table: pd.DataFrame) -> list[Column]:
    """The columns of a ranking in files, with the IoU of each class.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking. It has columns ``iou:CLASS`` if there are more than two classes.

    Returns
    -------
    list of Column
    """
    own = [str(name) for name in table if str(name).startswith(CLASS_IOU)]
    return columns_in("files") + [
        Column(name, "number", f"agreement in {name.removeprefix(CLASS_IOU)} alone", format=".2f")
        for name in own
    ]


def to_csv(ranking: pd.DataFrame) -> str:
    """Convert a ranking to CSV.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it.

    Returns
    -------
    str
        One line per image, one column for each of ``columns_of``. Labels are joined by ";" and
        unknown numbers are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns_of(ranking)])
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
    columns = columns_of(ranking)
    names = [column.name for column in columns]
    return [
        {column.name: plain_value(column, cell) for column, cell in zip(columns, row, strict=True)}
        for row in ranking[names].itertuples(index=False, name=None)
    ]
