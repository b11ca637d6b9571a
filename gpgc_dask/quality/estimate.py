"""Estimated quality: the IoU of each given mask with a correct one, without a correct one.

The predictions for an image come from a model that never saw it, so they do not depend on its mask,
and any mask of it can be scored without another fit. The more reliable masks are taken for correct,
errors are drawn into copies of them, and two regressions, a forest and a linear one, learn the IoU
of a copy with its original from what the copy looks like to the model. Trained on other images,
they then estimate the quality of each given mask. The forest finds thresholds and interactions;
the linear regression stays reasonable for errors unlike those of the copies.

Errors are more common among the copies than among the given masks, so the distribution that the
regressions predict is corrected for the frequencies of qualities that explain the given masks best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dask
import numpy as np
import pandas as pd
import xarray as xr
from dask.delayed import Delayed
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.data.maps import MAPS
from gpgc_dask.execution.compute import Opaque, compute, lazy_calls
from gpgc_dask.quality.calibration import Calibration, reliability
from gpgc_dask.quality.corruption import corrupt, follow_superpixels
from gpgc_dask.quality.descriptors import describe, mask_iou
from gpgc_dask.quality.predictions import (
    FOLDS,
    IMAGES_PER_TASK,
    Evidence,
    Predictions,
    read_images,
)

__all__ = ["BAD_BELOW", "MIN_IMAGES", "TRUSTED_QUALITY", "estimate_quality"]

MIN_IMAGES = 30
"""With fewer images there are no copies to learn from: quality is then the soft agreement."""

BAD_BELOW = 0.5
"""Masks of a lower quality are bad."""

TRUSTED_QUALITY = 0.8
"""Masks of at least this quality in a first pass are taken for correct in the second."""

MAX_ORIGINALS = 100
"""Number of masks that copies are made of: more do not improve the estimate."""

COPIES = 12
"""Copies of each mask: the mask itself, the mask along superpixels, and masks with errors."""

ALONG_SUPERPIXELS = 0.8
"""Share of the errors that follow superpixels, as those of tools do."""

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
"""EM steps for these frequencies."""

TAIL = 0.1
"""Probability of a quality below, and of one above, the interval."""

ORIGINALS_PER_TASK = 8
"""Images of a batch that one task makes copies of."""


def estimate_quality(dataset: xr.Dataset, evidence: Evidence) -> pd.DataFrame:
    """Estimate the IoU (mean IoU) of each given mask with a correct one.

    Parameters
    ----------
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`. Its superpixel maps and masks are read, in parallel;
        features are not.
    evidence : Evidence
        Predictions, labels and noise.

    Returns
    -------
    DataFrame
        One row per image: ``quality``; ``quality_low`` and ``quality_high``, an interval that
        contains the quality with a probability of 80 %; ``bad_probability`` that it is below 0.5.
        NaN for images without labels. With fewer than 30 images ``quality`` is the agreement with
        calibrated probabilities, relative to what is usual for the image, and the others are NaN.
        ``usual_agreement`` is what is usual: the soft IoU of a mask drawn from the probabilities,
        which is low for images that are hard to predict. Masks that a person has confirmed or
        corrected have the quality 1, rejected ones 0, both with certainty.
    """
    return _decide(_estimate_quality(dataset, evidence), evidence)


def _decide(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The table with what people have decided."""
    for decided, quality in ((evidence.confirmed, 1.0), (evidence.rejected, 0.0)):
        table.loc[decided, ["quality", "quality_low", "quality_high"]] = quality
        table.loc[decided, "bad_probability"] = 1.0 - quality
    return table


def _estimate_quality(dataset: xr.Dataset, evidence: Evidence) -> pd.DataFrame:
    predictions = Predictions.calibrated(evidence)
    soft, usual = _agreement(predictions.calibration, predictions.columns, evidence)
    labelled = evidence.labelled
    if labelled.sum() < MIN_IMAGES:
        return _fallback(soft, usual, labelled).assign(
            usual_agreement=np.where(labelled, usual, np.nan)
        )
    describer = _Describer(dataset, predictions)
    undecided = labelled & ~evidence.confirmed & ~evidence.rejected
    undecided = undecided if undecided.any() else labelled
    first = np.flatnonzero(labelled)[_most_trusted(soft[labelled], evidence.noise[labelled])]
    first = _with_verdicts(first, labelled, evidence)
    given, copies = describer.describe_all(_sample(first, evidence))
    shares = _estimate(copies, given, undecided, evidence.fold)
    second = np.flatnonzero(labelled & (shares @ _centres() >= TRUSTED_QUALITY))
    second = _with_verdicts(second, labelled, evidence)
    if second.size > first.size:
        originals = _sample(second, evidence)
        missing = np.setdiff1d(originals, copies.image)
        copies = copies.of_images(originals)
        if missing.size:
            copies = copies.join(describer.copies(missing))
        shares = 0.5 * (shares + _estimate(copies, given, undecided, evidence.fold))
    return _table(shares, labelled).assign(usual_agreement=np.where(labelled, usual, np.nan))


def _agreement(
    calibration: Calibration, columns: Features, evidence: Evidence
) -> tuple[Array, Array]:
    """(J,) soft IoU of each image, and that of a mask drawn from the probabilities."""
    image, area, n_images = evidence.image, evidence.area, evidence.n_images
    shares = calibration.probabilities(columns)
    soft = reliability(shares, evidence.codes, area, image, n_images)
    own = shares[:, 1:] if evidence.n_classes == 2 else shares
    both = group_sums(image, area * (own**2).sum(1), n_images)
    union = group_sums(image, area * (2.0 * own - own**2).sum(1), n_images)
    return soft, np.divide(both, union, out=np.zeros(n_images), where=union > 0)


def _fallback(soft: Array, usual: Array, labelled: Mask) -> pd.DataFrame:
    relative = np.clip(np.divide(soft, usual, out=np.zeros(soft.size), where=usual > 0), 0.0, 1.0)
    unknown = np.full(soft.size, np.nan)
    return pd.DataFrame(
        {
            "quality": np.where(labelled, relative, np.nan),
            "quality_low": unknown,
            "quality_high": unknown,
            "bad_probability": unknown,
        }
    )


def _most_trusted(soft: Array, noise: Array) -> Index:
    """The half of the images with the highest soft agreement and the lowest noise, by rank."""
    worst = np.nanmax(noise) if np.isfinite(noise).any() else 0.0
    rank = rankdata(soft) - rankdata(np.where(np.isnan(noise), 2.0 * worst + 1.0, noise))
    n_trusted = max(soft.size // 2, MIN_IMAGES // 2)
    return np.sort(np.argsort(-rank, kind="stable")[:n_trusted])


def _with_verdicts(trusted: Index, labelled: Mask, evidence: Evidence) -> Index:
    """The images with those that a person has confirmed, and without those rejected."""
    confirmed = np.flatnonzero(labelled & evidence.confirmed)
    return np.setdiff1d(np.union1d(trusted, confirmed), np.flatnonzero(evidence.rejected))


def _sample(trusted: Index, evidence: Evidence) -> Index:
    """At most MAX_ORIGINALS of the trusted images, by a random order of all.

    Those that a person has confirmed come first.
    """
    order = np.random.default_rng(0).permutation(evidence.n_images)
    order = order[np.argsort(~evidence.confirmed[order], kind="stable")]
    return np.sort(order[np.isin(order, trusted)][:MAX_ORIGINALS])


# -- descriptions of given masks and of copies ---------------------------------------------------


@dataclass(frozen=True)
class _Copies:
    """Descriptions (m, d) of masks, their quality (m,) and the image (m,) that each is of."""

    columns: Array
    quality: Array
    image: Index

    def of_images(self, images: Index) -> _Copies:
        own = np.isin(self.image, images)
        return _Copies(self.columns[own], self.quality[own], self.image[own])

    def join(self, other: _Copies) -> _Copies:
        return _Copies(
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.quality, other.quality]),
            np.concatenate([self.image, other.image]),
        )


class _Describer:
    """Describes masks of a dataset, some images per task."""

    def __init__(self, dataset: xr.Dataset, predictions: Predictions) -> None:
        self.maps = dataset[list(MAPS)]
        self.predictions = predictions

    def describe_all(self, originals: Index) -> tuple[Array, _Copies]:
        """(J, d) descriptions of the given masks, and copies with errors of some of them.

        Both are one computation, so that no worker waits for the others in between.
        """
        photos = np.arange(self.predictions.evidence.n_images)
        given = lazy_calls("describe", _describe_given, self._batches(photos))
        copies = self._copies(originals)
        parts = compute(*copies, *given)
        return np.concatenate(parts[len(copies) :]), _join(parts[: len(copies)], originals)

    def copies(self, originals: Index) -> _Copies:
        """Copies with errors of some masks."""
        return _join(compute(*self._copies(originals)), originals)

    def _copies(self, originals: Index) -> list[Delayed]:
        """Lazy parts of the copies: they take long, so that a batch is more than one task."""
        tasks = [
            (*batch, first)
            for batch in self._batches(originals)
            for first in range(0, len(batch[1].value), ORIGINALS_PER_TASK)
        ]
        return lazy_calls("corrupt", _describe_copies, tasks)

    def _batches(self, photos: Index) -> Iterator[tuple[Delayed, Opaque]]:
        """Lazy maps of some images at a time, and the images."""
        for first in range(0, photos.size, IMAGES_PER_TASK):
            own = photos[first : first + IMAGES_PER_TASK]
            images = [self.predictions.of_image(photo) for photo in own.tolist()]
            yield dask.delayed(self.maps.isel(photo=own)), Opaque(images)


def _describe_given(maps: xr.Dataset, images: Opaque) -> Array:
    read = read_images(maps, images.value)
    return np.stack([describe(prediction, mask) for prediction, mask in read])


def _describe_copies(maps: xr.Dataset, images: Opaque, first: int) -> tuple[Array, Array]:
    """Descriptions (m, d) and qualities (m,) of copies of some masks of a batch, COPIES of each.

    They are ORIGINALS_PER_TASK masks from number ``first`` on. Masks of the whole batch stand in
    for confused ones.
    """
    columns, quality = [], []
    read = list(read_images(maps, images.value))
    for number in range(first, min(first + ORIGINALS_PER_TASK, len(read))):
        prediction, mask = read[number]
        n_classes, segments = prediction.n_classes, prediction.segments
        rng = np.random.default_rng([0, images.value[number].photo])
        others = [other for _, other in read[:number] + read[number + 1 :]] or [mask[::-1]]
        for copy in range(COPIES):
            drawn = mask
            if copy > 1:
                drawn = corrupt(mask, others[int(rng.integers(len(others)))], n_classes, rng)
            if copy == 1 or (copy > 1 and rng.random() < ALONG_SUPERPIXELS):
                drawn = follow_superpixels(drawn, segments, n_classes)
            columns.append(describe(prediction, drawn))
            quality.append(mask_iou(drawn, mask, n_classes))
    return np.stack(columns), np.array(quality)


def _join(parts: Sequence[tuple[Array, Array]], originals: Index) -> _Copies:
    """The copies of all originals, from parts of them."""
    columns, quality = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _Copies(columns, quality, np.repeat(originals, COPIES))


# -- the regressions -----------------------------------------------------------------------------


def _estimate(copies: _Copies, given: Array, undecided: Mask, fold: Index) -> Array:
    """(J, bins) probabilities of the qualities of the given masks, in folds (J,) of images."""
    bins = np.clip(np.searchsorted(EDGES, copies.quality, side="right") - 1, 0, EDGES.size - 2)
    below = np.cumsum(np.eye(EDGES.size - 1)[bins], axis=1)[:, :-1]
    folds = []
    for number in range(FOLDS):
        train = fold[copies.image] != number
        folds.append((copies.columns[train], below[train], given[fold == number]))
    predicted = np.empty((len(given), EDGES.size - 1))
    for number, part in enumerate(compute(*lazy_calls("estimate", _regress, folds))):
        predicted[fold == number] = part
    usual = np.bincount(bins, minlength=EDGES.size - 1) / bins.size
    usual = (usual + SMOOTHING / usual.size) / (1.0 + SMOOTHING)
    predicted = (predicted + SMOOTHING * usual) / (1.0 + SMOOTHING)
    return _reweigh(predicted, usual, undecided)


def _regress(columns: Array, below: Array, given: Array) -> Array:
    """(n, bins) probabilities for rows (n, d), learned from columns (m, d), below (m, bins − 1)."""
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
        steps = np.clip(regression.fit(columns, below).predict(given), 0.0, 1.0)
        steps = np.maximum.accumulate(steps, axis=1)
        parts.append(np.diff(steps, axis=1, prepend=0.0, append=1.0))
    return np.mean(parts, axis=0)


def _reweigh(predicted: Array, usual: Array, undecided: Mask) -> Array:
    """Probabilities for other frequencies of the qualities than those of the copies, by EM."""
    frequency = usual
    shares = predicted
    for _ in range(STEPS):
        shares = predicted * (frequency / usual)
        shares = shares / shares.sum(1, keepdims=True)
        frequency = shares[undecided].mean(0) + TRUST_IN_COPIES * usual
        frequency = frequency / (1.0 + TRUST_IN_COPIES)
    return shares


def _centres() -> Array:
    """(bins,) quality that stands for each bin: the middle, and 0 and 1 in the outer ones."""
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    centres[0], centres[-1] = 0.0, 1.0
    return centres


def _table(shares: Array, labelled: Mask) -> pd.DataFrame:
    below = np.cumsum(shares, axis=1)
    low = EDGES[np.argmax(below > TAIL, axis=1)]
    high = EDGES[np.argmax(below >= 1.0 - TAIL, axis=1) + 1]
    bad = shares[:, EDGES[1:] <= BAD_BELOW].sum(1)
    quality = shares @ _centres()
    columns = {
        "quality": quality,
        "quality_low": np.minimum(low, quality),
        "quality_high": np.maximum(high, quality),
        "bad_probability": bad,
    }
    return pd.DataFrame({name: np.where(labelled, each, np.nan) for name, each in columns.items()})
