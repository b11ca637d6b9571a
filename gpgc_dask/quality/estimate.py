"""Estimated quality: the IoU of each given mask with a correct one, without a correct one.

The predictions for an image come from a model that never saw it, so they do not depend on its mask,
and any mask of it can be scored without another fit. The more reliable masks are taken for correct,
errors are drawn into copies of them, and a forest learns the IoU of a copy with its original from
what the copy looks like to the model. The forest, trained on other images, then estimates the
quality of each given mask.

Errors are more common among the copies than among the given masks, so the distribution that the
forest predicts is corrected for the frequencies of qualities that explain the given masks best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.data.maps import MAPS, Codes, load_maps
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.quality.calibration import Calibration, calibrate, reliability
from gpgc_dask.quality.corruption import corrupt, follow_superpixels
from gpgc_dask.quality.descriptors import Prediction, describe, mask_iou

__all__ = ["BAD_BELOW", "MIN_IMAGES", "Evidence", "estimate_quality", "with_context"]

MIN_IMAGES = 30
"""With fewer images there are no copies to learn from: quality is then the soft agreement."""

BAD_BELOW = 0.5
"""Masks of a lower quality are bad."""

TRUSTED_QUALITY = 0.8
"""Masks of at least this quality in a first pass are taken for correct in the second."""

MAX_ORIGINALS = 400
"""Number of masks that copies are made of: more do not improve the forest."""

COPIES = 12
"""Copies of each mask: the mask itself, the mask along superpixels, and masks with errors."""

ALONG_SUPERPIXELS = 0.8
"""Share of the errors that follow superpixels, as those of tools do."""

FOLDS = 5
TREES = 100
MIN_LEAF = 3
MAX_FEATURES = 0.5
"""The forest: folds by image, trees per fold, rows per leaf, share of the columns per split."""

EDGES = np.array([0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.5, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0])
"""Limits of the bins of the predicted distribution of the quality."""

TRUST_IN_COPIES = 0.5
"""Weight of the copies' frequencies of qualities, relative to those of the given masks."""

SMOOTHING = 0.01
"""Share of the copies' frequencies in each prediction: a forest is never sure."""

STEPS = 100
"""EM steps for these frequencies."""

TAIL = 0.1
"""Probability of a quality below, and of one above, the interval."""

IMAGES_PER_TASK = 64


@dataclass(frozen=True)
class Evidence:
    """What is known of the rows of a dataset after a fit.

    Attributes
    ----------
    values : (N,) or (N, classes) array
        Decision values of models that never saw the row's image.
    codes : (N,) array of int
        Given classes.
    area : (N,) array
        Pixels of each row; 0 for void ones.
    image : (N,) array of int
        Image of each row, ascending.
    noise : (J,) array
        Noise variance of each image; NaN if it is unknown.
    n_classes : int
        Number of classes.
    """

    values: Features
    codes: Index
    area: Array
    image: Index
    noise: Array
    n_classes: int

    @property
    def n_images(self) -> int:
        """Number of images J."""
        return self.noise.size

    def rows(self, photo: int) -> slice:
        """The rows of an image."""
        first, last = np.searchsorted(self.image, [photo, photo + 1])
        return slice(int(first), int(last))


def with_context(values: Features, image: Index, area: Array, n_images: int) -> Features:
    """Decision values as the scores use them.

    Parameters
    ----------
    values : (N,) or (N, classes) array
        Decision values.
    image : (N,) array of int
        Image of each row.
    area : (N,) array
        Pixels of each row.
    n_images : int
        Number of images.

    Returns
    -------
    (N, 3) or (N, classes) array
        For two classes the value, and the mean and the maximum over its image: whether a value is
        high depends on the others in the image. More classes are compared with each other already.
    """
    if values.ndim == 2:
        return values
    counted = area > 0
    total = group_sums(image, area, n_images)
    mean = group_sums(image, area * values, n_images) / np.maximum(total, 1.0)
    highest = np.full(n_images, -np.inf)
    np.maximum.at(highest, image[counted], values[counted])
    highest = np.where(np.isfinite(highest), highest, 0.0)
    return np.column_stack([values, mean[image], highest[image]])


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
    """
    columns = with_context(evidence.values, evidence.image, evidence.area, evidence.n_images)
    layout = (evidence.codes, evidence.area, evidence.image, evidence.n_images)
    calibration = calibrate(columns, *layout, evidence.n_classes)
    soft, usual = _agreement(calibration, columns, evidence)
    labelled = group_sums(evidence.image, evidence.area, evidence.n_images) > 0
    if labelled.sum() < MIN_IMAGES:
        return _fallback(soft, usual, labelled)
    describer = _Describer(dataset, evidence, calibration, columns)
    given = describer.describe_all()
    first = np.flatnonzero(labelled)[_most_trusted(soft[labelled], evidence.noise[labelled])]
    copies = describer.copies(first)
    shares = _estimate(copies, given, labelled)
    second = np.flatnonzero(labelled & (shares @ _centres() >= TRUSTED_QUALITY))
    if second.size > first.size:
        added = describer.copies(np.setdiff1d(second, copies.image))
        copies = copies.of_images(second).join(added)
        shares = 0.5 * (shares + _estimate(copies, given, labelled))
    return _table(shares, labelled)


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

    def __init__(
        self, dataset: xr.Dataset, evidence: Evidence, calibration: Calibration, columns: Features
    ) -> None:
        self.maps = dataset[list(MAPS)]
        self.evidence = evidence
        self.calibration = calibration
        self.columns = columns
        totals = group_sums(evidence.codes, evidence.area, evidence.n_classes)
        self.frequency = totals / max(totals.sum(), 1.0)

    def describe_all(self) -> Array:
        """(J, d) descriptions of the given masks."""
        photos = np.arange(self.evidence.n_images)
        parts = compute(*lazy_calls("describe", _describe_given, self._tasks(photos)))
        return np.concatenate(parts)

    def copies(self, trusted: Index) -> _Copies:
        """Copies with errors of some masks, at most MAX_ORIGINALS of them."""
        step = max(trusted.size / MAX_ORIGINALS, 1.0)
        chosen = trusted[np.unique((np.arange(0, trusted.size, step)).astype(np.intp))]
        parts = compute(*lazy_calls("corrupt", _describe_copies, self._tasks(chosen)))
        return _Copies(
            np.concatenate([columns for columns, _ in parts]),
            np.concatenate([quality for _, quality in parts]),
            np.repeat(chosen, COPIES),
        )

    def _tasks(self, photos: Index) -> Iterator[tuple[xr.Dataset, list[_Image]]]:
        for first in range(0, photos.size, IMAGES_PER_TASK):
            own = photos[first : first + IMAGES_PER_TASK]
            yield self.maps.isel(photo=own), [self._image(photo) for photo in own.tolist()]

    def _image(self, photo: int) -> _Image:
        rows = self.evidence.rows(photo)
        shares = self.calibration.probabilities(self.columns[rows])
        values = np.asarray(self.evidence.values[rows], dtype=np.float64)
        return _Image(photo, values, shares, self.frequency)


@dataclass(frozen=True)
class _Image:
    """Number, decision values and probabilities of the superpixels of an image."""

    photo: int
    values: Array
    shares: Array
    frequency: Array


def _read(maps: xr.Dataset, images: Sequence[_Image]) -> Iterator[tuple[Prediction, Codes]]:
    """Predictions and masks of the images of one task."""
    for image, (segments, mask) in zip(images, load_maps(maps), strict=True):
        yield Prediction(segments, image.values, image.shares, image.frequency), mask


def _describe_given(maps: xr.Dataset, images: list[_Image]) -> Array:
    return np.stack([describe(prediction, mask) for prediction, mask in _read(maps, images)])


def _describe_copies(maps: xr.Dataset, images: list[_Image]) -> tuple[Array, Array]:
    """Descriptions (m, d) and qualities (m,) of copies of the masks, COPIES of each."""
    columns, quality = [], []
    read = list(_read(maps, images))
    for number, (prediction, mask) in enumerate(read):
        n_classes, segments = prediction.n_classes, prediction.segments
        rng = np.random.default_rng([0, images[number].photo])
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


# -- the forest ----------------------------------------------------------------------------------


def _estimate(copies: _Copies, given: Array, labelled: Mask) -> Array:
    """(J, bins) probabilities of the qualities of the given masks."""
    bins = np.clip(np.searchsorted(EDGES, copies.quality, side="right") - 1, 0, EDGES.size - 2)
    below = np.cumsum(np.eye(EDGES.size - 1)[bins], axis=1)[:, :-1]
    fold = np.arange(len(given)) % FOLDS
    predicted = np.empty((len(given), EDGES.size - 1))
    for number in range(FOLDS):
        forest = ExtraTreesRegressor(
            TREES, min_samples_leaf=MIN_LEAF, max_features=MAX_FEATURES, random_state=0
        )
        train = fold[copies.image] != number
        forest.fit(copies.columns[train], below[train])
        own = fold == number
        if own.any():
            steps = forest.predict(given[own])
            predicted[own] = np.diff(steps, axis=1, prepend=0.0, append=1.0)
    usual = np.bincount(bins, minlength=EDGES.size - 1) / bins.size
    usual = (usual + SMOOTHING / usual.size) / (1.0 + SMOOTHING)
    predicted = (np.clip(predicted, 0.0, 1.0) + SMOOTHING * usual) / (1.0 + SMOOTHING)
    return _reweigh(predicted, usual, labelled)


def _reweigh(predicted: Array, usual: Array, labelled: Mask) -> Array:
    """Probabilities for other frequencies of the qualities than those of the copies, by EM."""
    frequency = usual
    shares = predicted
    for _ in range(STEPS):
        shares = predicted * (frequency / usual)
        shares = shares / shares.sum(1, keepdims=True)
        frequency = shares[labelled].mean(0) + TRUST_IN_COPIES * usual
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
