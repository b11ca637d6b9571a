"""Estimated quality: the IoU of each given mask with a correct one, without a correct one.

The predictions for an image come from a model that never saw it, so they do not depend on its mask,
and any mask of it can be scored without another fit. The more reliable masks are taken for correct,
errors are drawn into copies of them, and regressions learn the IoU of a copy with its original from
what the copy looks like to the model. Trained on other images, they then estimate the quality of
each given mask, and later that of masks of new photos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import dask
import numpy as np
import pandas as pd
import xarray as xr
from dask.delayed import Delayed
from scipy.stats import rankdata

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.data.maps import MAPS
from gpgc_dask.execution.compute import Opaque, compute, lazy_calls
from gpgc_dask.quality.calibration import Calibration, reliability
from gpgc_dask.quality.corruption import corrupt, follow_superpixels
from gpgc_dask.quality.descriptors import describe, mask_iou
from gpgc_dask.quality.predictions import (
    IMAGES_PER_TASK,
    Evidence,
    Predictions,
    read_images,
)
from gpgc_dask.quality.quality_regression import (
    Copies,
    correct_frequencies,
    cross_predict,
    mean_quality,
    quality_table,
    reweigh,
)
from gpgc_dask.quality.scorer import LearnedPass, QualityScorer, relative_agreement

__all__ = ["MIN_IMAGES", "TRUSTED_QUALITY", "estimate_quality", "learn_quality"]

MIN_IMAGES = 30
"""With fewer images there are no copies to learn from: quality is then the soft agreement."""

TRUSTED_QUALITY = 0.8
"""Masks of at least this quality in a first pass are taken for correct in the second."""

MAX_ORIGINALS = 100
"""Number of masks that copies are made of: more do not improve the estimate."""

COPIES = 12
"""Copies of each mask: the mask itself, the mask along superpixels, and masks with errors."""

ALONG_SUPERPIXELS = 0.8
"""Share of the errors that follow superpixels, as those of tools do."""

ORIGINALS_PER_TASK = 8
"""Images of a batch that one task makes copies of."""


def estimate_quality(dataset: xr.Dataset, evidence: Evidence) -> pd.DataFrame:
    """The table of :func:`learn_quality`."""
    return learn_quality(dataset, evidence)[0]


def learn_quality(dataset: xr.Dataset, evidence: Evidence) -> tuple[pd.DataFrame, QualityScorer]:
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
    table : DataFrame
        One row per image: ``quality``; ``quality_low`` and ``quality_high``, an interval that
        contains the quality with a probability of 80 %; ``bad_probability`` that it is below 0.5.
        NaN for images without labels. With fewer than 30 images ``quality`` is the agreement with
        calibrated probabilities, relative to what is usual for the image, and the others are NaN.
        ``usual_agreement`` is what is usual: the soft IoU of a mask drawn from the probabilities,
        which is low for images that are hard to predict. Masks that a person has confirmed or
        corrected have the quality 1, rejected ones 0, both with certainty.
    scorer : QualityScorer
        Estimates the quality of masks of other photos.
    """
    table, scorer = _learn_quality(dataset, evidence)
    return _decide(table, evidence), scorer


def _decide(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The table with what people have decided."""
    for decided, quality in ((evidence.confirmed, 1.0), (evidence.rejected, 0.0)):
        table.loc[decided, ["quality", "quality_low", "quality_high"]] = quality
        table.loc[decided, "bad_probability"] = 1.0 - quality
    return table


def _learn_quality(dataset: xr.Dataset, evidence: Evidence) -> tuple[pd.DataFrame, QualityScorer]:
    predictions = evidence.predictions
    scorer = QualityScorer(predictions.calibration, predictions.frequency)
    soft, usual = _agreement(predictions.calibration, predictions.columns, evidence)
    labelled = evidence.labelled
    if labelled.sum() < MIN_IMAGES:
        table = relative_agreement(soft, usual, labelled)
    else:
        scorer, shares = _learn(scorer, _Describer(dataset, predictions), soft)
        table = quality_table(shares, labelled)
    return table.assign(usual_agreement=np.where(labelled, usual, np.nan)), scorer


def _learn(
    scorer: QualityScorer, describer: _Describer, soft: Array
) -> tuple[QualityScorer, Array]:
    """The scorer with its regressions, and probabilities (J, bins) of the given masks' qualities.

    The second pass takes more masks for correct: those of a high quality in the first one.
    """
    evidence = describer.predictions.evidence
    labelled, fold = evidence.labelled, evidence.fold
    undecided = labelled & ~evidence.confirmed & ~evidence.rejected
    undecided = undecided if undecided.any() else labelled
    first = np.flatnonzero(labelled)[_most_trusted(soft[labelled], evidence.noise[labelled])]
    first = _with_verdicts(first, labelled, evidence)
    given, copies = describer.describe_all(_sample(first, evidence))
    known, shares = _one_pass(copies, given, undecided, fold)
    passes, parts = [known], [shares]
    second = np.flatnonzero(labelled & (mean_quality(shares) >= TRUSTED_QUALITY))
    second = _with_verdicts(second, labelled, evidence)
    if second.size > first.size:
        originals = _sample(second, evidence)
        missing = np.setdiff1d(originals, copies.image)
        copies = copies.of_images(originals)
        if missing.size:
            copies = copies.join(describer.copies(missing))
        known, shares = _one_pass(copies, given, undecided, fold)
        passes.append(known)
        parts.append(shares)
    return replace(scorer, passes=tuple(passes)), np.asarray(np.mean(parts, axis=0))


def _one_pass(
    copies: Copies, given: Array, undecided: Mask, fold: Index
) -> tuple[LearnedPass, Array]:
    predicted = cross_predict(copies, given, fold)
    frequency = correct_frequencies(predicted, copies, undecided)
    return LearnedPass(copies, frequency), reweigh(predicted, copies, frequency)


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


class _Describer:
    """Describes masks of a dataset, some images per task."""

    def __init__(self, dataset: xr.Dataset, predictions: Predictions) -> None:
        self.maps = dataset[list(MAPS)]
        self.predictions = predictions

    def describe_all(self, originals: Index) -> tuple[Array, Copies]:
        """(J, d) descriptions of the given masks, and copies with errors of some of them.

        Both are one computation, so that no worker waits for the others in between.
        """
        photos = np.arange(self.predictions.evidence.n_images)
        given = lazy_calls("describe", _describe_given, self._batches(photos))
        copies = self._copies(originals)
        parts = compute(*copies, *given)
        return np.concatenate(parts[len(copies) :]), _join(parts[: len(copies)], originals)

    def copies(self, originals: Index) -> Copies:
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


def _join(parts: Sequence[tuple[Array, Array]], originals: Index) -> Copies:
    """The copies of all originals, from parts of them."""
    columns, quality = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Copies(columns, quality, np.repeat(originals, COPIES))
