"""People: how good the masks of each annotator are, at equal difficulty of their images."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Array, Index, Mask, group_sums
from gpgc_dask.core.errors import InputError
from gpgc_dask.results.columns import PEOPLE_COLUMNS, PEOPLE_FILE, plain_value
from gpgc_dask.results.ranking import SPREAD, is_suspect

__all__ = ["people_records", "people_to_csv", "rank_people"]

STEPS = 50
"""Steps of the robust regression."""

CLIP = 1.345
"""Residuals beyond this many standard deviations have less weight in the slope (Huber)."""

MIN_DATED = 5
"""Number of masks with different dates from which on a trend is computed."""

DAYS = 30
"""Days that a trend refers to."""


def rank_people(table: pd.DataFrame) -> pd.DataFrame:
    """Rank annotators by the quality of their masks at equal difficulty, the worst first.

    Difficult images must not make a careless annotator. So quality is modelled as αₐ + β d, with
    a constant αₐ per annotator and the difficulty d of the image, and annotators are compared by
    αₐ. The slope β comes from differences between images of one annotator, so that it does not
    matter who got the difficult images. αₐ is drawn towards the mean of all (empirical Bayes), the
    more the fewer masks there are.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking, with ``annotator`` and ``usual_agreement``.

    Returns
    -------
    pandas.DataFrame
        One row per annotator with the columns of ``PEOPLE_COLUMNS``. Masks of an unknown annotator
        or of unknown quality are left out of the means.

    Raises
    ------
    InputError
        If no mask has an annotator.
    """
    names = table["annotator"].to_numpy(dtype=str) if "annotator" in table else np.array([])
    if not np.any(names != ""):
        raise InputError(
            "the dataset has no annotators: name them at ingest (gpgc ingest --annotator "
            "REGEX|FILE.csv, or in Python info=ImageInfo(annotator=…)), and fit again"
        )
    known = table[names != ""]
    people, who = np.unique(names[names != ""], return_inverse=True)
    n = people.size
    quality = known["quality"].to_numpy(dtype=np.float64)
    rated = ~np.isnan(quality)
    usual = known["usual_agreement"].to_numpy(dtype=np.float64)
    own, q, d = who[rated], quality[rated], _centred(usual[rated])
    slope = _slope(own, q, d, n)
    level, variance = _levels(own, q - slope * d, n)
    centre, excess = _shrink(level, variance)
    mean, error = _means(own, q, n)
    result = pd.DataFrame(
        {
            "annotator": people,
            "masks": np.bincount(who, minlength=n),
            "suspect": np.bincount(who[is_suspect(known)], minlength=n),
            "quality": mean,
            "noise_variance": _pooled_noise(known, who, n),
            "quality_low": np.clip(mean - SPREAD * error, 0.0, 1.0),
            "quality_high": np.clip(mean + SPREAD * error, 0.0, 1.0),
            "expected_quality": np.clip(centre + slope * _means(own, d, n)[0], 0.0, 1.0),
            "excess": excess,
            "trend": _trends(known[rated], own, q - slope * d, n),
        }
    )
    ordered = result.sort_values(["excess", "annotator"], na_position="first", kind="stable")
    return ordered.reset_index(drop=True)


def people_records(people: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert the table of people to plain values for JSON; unknown numbers are None."""
    names = [column.name for column in PEOPLE_COLUMNS]
    return [
        {
            column.name: plain_value(column, cell)
            for column, cell in zip(PEOPLE_COLUMNS, row, strict=True)
        }
        for row in people[names].itertuples(index=False, name=None)
    ]


def people_to_csv(people: pd.DataFrame) -> str:
    """Convert the table of people to CSV; unknown numbers are empty."""
    names = [column.name for column in PEOPLE_COLUMNS[:PEOPLE_FILE]]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in people_records(people):
        writer.writerow(["" if row[name] is None else row[name] for name in names])
    return text.getvalue()


def _centred(values: Array) -> Array:
    return values - values.mean() if values.size else values


def _means(who: Index, values: Array, n: int) -> tuple[Array, Array]:
    """(n,) mean of each person and its standard error, with the variance of all persons added.

    The variance of few values is uncertain: it counts as that of two more values with the pooled
    variance.
    """
    count = np.bincount(who, minlength=n).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = group_sums(who, values, n) / count
        squares = group_sums(who, (values - mean[who]) ** 2, n)
        pooled = squares.sum() / max(count.sum() - np.count_nonzero(count), 1.0)
        variance = (squares + 2.0 * pooled) / (np.maximum(count - 1.0, 0.0) + 2.0)
        return mean, np.sqrt(variance / count)


def _slope(who: Index, q: Array, d: Array, n: int) -> float:
    """Slope β of quality over difficulty within persons, by Huber's regression."""
    weight = np.ones(q.size)
    slope = 0.0
    for _ in range(STEPS):
        total = np.maximum(group_sums(who, weight, n), 1e-12)
        mean_d, mean_q = (group_sums(who, weight * each, n) / total for each in (d, q))
        inner_d, inner_q = d - mean_d[who], q - mean_q[who]
        spread = float((weight * inner_d**2).sum())
        if spread <= 1e-12:
            return 0.0
        slope = float((weight * inner_d * inner_q).sum()) / spread
        residual = np.abs(inner_q - slope * inner_d)
        limit = CLIP * 1.4826 * float(np.median(residual))
        weight = np.minimum(1.0, limit / np.maximum(residual, max(limit, 1e-12)))
    return max(slope, 0.0)


def _levels(who: Index, values: Array, n: int) -> tuple[Array, Array]:
    """(n,) mean of each person and the square of its standard error."""
    mean, error = _means(who, values, n)
    return mean, error**2


def _shrink(level: Array, variance: Array) -> tuple[float, Array]:
    """The typical level, and the difference (n,) of each, drawn towards 0 by its uncertainty."""
    known: Mask = np.isfinite(level)
    if not known.any():
        return float("nan"), np.full(level.size, np.nan)
    centre = float(np.median(level[known]))
    between = 0.0
    if known.sum() > 1:
        between = float(np.mean((level[known] - centre) ** 2 - variance[known]))
    between = max(between, 1e-6)
    return centre, (level - centre) * between / (between + variance)


def _pooled_noise(table: pd.DataFrame, who: Index, n: int) -> Array:
    """(n,) noise variance that the images of a person have in common.

    At fixed weights of the features it is the one noise variance per person (the "tied" noise
    model) of highest likelihood: the mean over the person's superpixels.
    """
    noise = table["noise_variance"].to_numpy(dtype=np.float64)
    rows = np.where(np.isnan(noise), 0.0, table["superpixels"].to_numpy(dtype=np.float64))
    total = group_sums(who, rows, n)
    summed = group_sums(who, rows * np.nan_to_num(noise), n)
    return np.divide(summed, total, out=np.full(n, np.nan), where=total > 0)


def _trends(table: pd.DataFrame, who: Index, values: Array, n: int) -> Array:
    """(n,) change of the values in 30 days; NaN where there are too few dates."""
    trends = np.full(n, np.nan)
    if "annotated" not in table:
        return trends
    dates = pd.to_datetime(table["annotated"].replace("", None), format="ISO8601", utc=True)
    day = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=float) / 86400
    for person in range(n):
        own = (who == person) & np.isfinite(day)
        if np.unique(day[own]).size >= MIN_DATED:
            time = day[own] - day[own].mean()
            trends[person] = DAYS * float(time @ values[own]) / float(time @ time)
    return trends
