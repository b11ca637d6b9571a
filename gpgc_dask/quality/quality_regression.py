"""The regressions from descriptions of masks to the distribution of their quality.

They are learned from copies of masks with known errors. A forest finds thresholds and interactions;
a linear regression stays reasonable for errors unlike those of the copies. Errors are more common
among the copies than among the given masks, so the predicted distribution is corrected for the
frequencies of qualities that explain the given masks best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.execution.compute import compute, lazy_calls

__all__ = [
    "BAD_BELOW",
    "Copies",
    "correct_frequencies",
    "cross_predict",
    "mean_quality",
    "predict",
    "quality_table",
    "reweigh",
]

BAD_BELOW = 0.5
"""Masks of a lower quality are bad."""

TREES = 50
MIN_LEAF = 3
MAX_FEATURES = 0.5
"""The forest: trees per fold, rows per leaf, share of the columns per split."""

PENALTIES = np.logspace(-1.0, 4.0, 12)
QUANTILES = 200
"""The linear regression: penalties to choose from; quantiles by which columns become normal."""

EDGES = np.array([0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.5, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0])
"""Limits of the bins of the predicted distribution of the quality."""

TRUST_IN_COPIES = 1.0
"""Weight of the copies' frequencies of qualities, relative to those of the given masks."""

SMOOTHING = 0.01
"""Share of the copies' frequencies in each prediction: a regression is never sure."""

STEPS = 100
"""EM steps for these frequencies, the last of which gives the probabilities."""

TAIL = 0.1
"""Probability of a quality below, and of one above, the interval."""


@dataclass(frozen=True)
class Copies:
    """Copies of masks with errors.

    Attributes
    ----------
    columns : (m, d) array
        Descriptions.
    quality : (m,) array
        IoU with the original.
    image : (m,) array of int
        Number of the image that each is of.
    """

    columns: Array
    quality: Array
    image: Index

    def of_images(self, images: Index) -> Copies:
        """The copies of some images."""
        own = np.isin(self.image, images)
        return Copies(self.columns[own], self.quality[own], self.image[own])

    def join(self, other: Copies) -> Copies:
        """These copies and others."""
        return Copies(
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.quality, other.quality]),
            np.concatenate([self.image, other.image]),
        )

    @property
    def bins(self) -> Index:
        """(m,) number of the bin of each quality."""
        return np.clip(np.searchsorted(EDGES, self.quality, side="right") - 1, 0, EDGES.size - 2)

    @property
    def frequency(self) -> Array:
        """(bins,) shares of the bins, none of them 0."""
        counts = np.bincount(self.bins, minlength=EDGES.size - 1) / self.bins.size
        return (counts + SMOOTHING / counts.size) / (1.0 + SMOOTHING)

    @property
    def steps(self) -> Array:
        """(m, bins − 1) 1 if the quality is below the upper limit of a bin, else 0."""
        return np.cumsum(np.eye(EDGES.size - 1)[self.bins], axis=1)[:, :-1]


def cross_predict(copies: Copies, given: Array, fold: Index) -> Array:
    """Probabilities (J, bins) of the qualities of masks (J, d), learned from other folds (J,).

    A fold that has all copies, as one of few groups may, is learned from them.
    """
    present, tasks = np.unique(fold), []
    for number in present:
        train = fold[copies.image] != number
        train = train if train.any() else ~train
        tasks.append((copies.columns[train], copies.steps[train], given[fold == number]))
    predicted = np.empty((len(given), EDGES.size - 1))
    for number, part in zip(
        present, compute(*lazy_calls("estimate", _regress, tasks)), strict=True
    ):
        predicted[fold == number] = part
    return _smooth(predicted, copies)


def predict(copies: Copies, given: Array) -> Array:
    """Probabilities (n, bins) of the qualities of masks (n, d) of other images."""
    return _smooth(_regress(copies.columns, copies.steps, given), copies)


def _smooth(predicted: Array, copies: Copies) -> Array:
    result: Array = (predicted + SMOOTHING * copies.frequency) / (1.0 + SMOOTHING)
    return result


def _regress(columns: Array, steps: Array, given: Array) -> Array:
    """(n, bins) probabilities for rows (n, d), learned from columns (m, d), steps (m, bins − 1)."""
    forest = ExtraTreesRegressor(
        TREES, min_samples_leaf=MIN_LEAF, max_features=MAX_FEATURES, random_state=0
    )
    linear = make_pipeline(
        QuantileTransformer(
            n_quantiles=min(QUANTILES, len(columns)),
            output_distribution="normal",
            subsample=None,
            random_state=0,
        ),
        RidgeCV(PENALTIES),
    )
    parts = []
    for regression in (forest, linear):
        below = np.clip(regression.fit(columns, steps).predict(given), 0.0, 1.0)
        below = np.maximum.accumulate(below, axis=1)
        parts.append(np.diff(below, axis=1, prepend=0.0, append=1.0))
    return np.mean(parts, axis=0)


def correct_frequencies(predicted: Array, copies: Copies, undecided: Mask) -> Array:
    """Frequencies (bins,) of the qualities of given masks, by EM.

    Parameters
    ----------
    predicted : (J, bins) array
        Probabilities of the qualities, if they were as frequent as among the copies.
    copies : Copies
        What the regressions were learned from.
    undecided : (J,) array of bool
        Masks that count: those with labels and without a verdict of a person.
    """
    frequency = copies.frequency
    for _ in range(STEPS - 1):
        shares = reweigh(predicted, copies, frequency)
        frequency = shares[undecided].mean(0) + TRUST_IN_COPIES * copies.frequency
        frequency = frequency / (1.0 + TRUST_IN_COPIES)
    return frequency


def reweigh(predicted: Array, copies: Copies, frequency: Array) -> Array:
    """Probabilities (n, bins) for other frequencies (bins,) of the qualities than the copies'."""
    shares = predicted * (frequency / copies.frequency)
    return np.asarray(shares / shares.sum(1, keepdims=True))


def mean_quality(shares: Array) -> Array:
    """(n,) mean of each distribution (n, bins); the outer bins stand for 0 and 1."""
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    centres[0], centres[-1] = 0.0, 1.0
    return np.asarray(shares @ centres)


def quality_table(shares: Array, labelled: Mask) -> pd.DataFrame:
    """Quality, its interval and the probability that it is below 0.5; NaN without labels."""
    below = np.cumsum(shares, axis=1)
    low = EDGES[np.argmax(below > TAIL, axis=1)]
    high = EDGES[np.argmax(below >= 1.0 - TAIL, axis=1) + 1]
    quality = mean_quality(shares)
    columns = {
        "quality": quality,
        "quality_low": np.minimum(low, quality),
        "quality_high": np.maximum(high, quality),
        "bad_probability": shares[:, EDGES[1:] <= BAD_BELOW].sum(1),
    }
    return pd.DataFrame({name: np.where(labelled, each, np.nan) for name, each in columns.items()})
