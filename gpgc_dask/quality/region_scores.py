"""Regions where masks are probably wrong, with the probability of each.

Copies of trusted masks get local errors. Of the regions in which the prediction contradicts such a
copy, some are the errors and the others those of the prediction. Two regressions learn the
difference, from other images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import xarray as xr
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.data.maps import MAPS, Codes
from gpgc_dask.data.run_lengths import decode, encode
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.quality.descriptors import Prediction
from gpgc_dask.quality.object_descriptors import Scene
from gpgc_dask.quality.predictions import (
    FOLDS,
    IMAGES_PER_TASK,
    ImagePrediction,
    Predictions,
    read_images,
)
from gpgc_dask.quality.regions import (
    N_COLUMNS,
    Kind,
    describe_region,
    draw_error,
    find_regions,
    remove_things,
)

__all__ = ["FoundRegion", "score_regions"]

MIN_IMAGES = 30
"""With fewer images the probability follows from the evidence alone."""

MAX_COPIED = 400
"""Number of images whose masks are copied."""

COPIES = 4
"""Copies of each mask."""

OVERLAP, COVERED = 0.5, 0.3
"""A region is an error if the first share of it was changed, and it has the second share of the
change."""

MAX_REGIONS = 12
"""Regions per image: the most probable ones."""

KNOWN = 0.5
"""A region is left out if more than this share of it is in more probable ones."""

TREES, MIN_LEAF = 100, 3
PENALTY = 0.1
LIMITS = (0.005, 0.995)
STEPS = 50
ERRORS = (0.05, 0.5)
"""Limits of the share of regions that are errors of the masks."""


@dataclass(frozen=True)
class FoundRegion:
    """A region of a dataset's image.

    Attributes
    ----------
    photo : int
        Number of the image.
    kind : {"missing", "spurious", "wrong class"}
    code, given : int
        Numbers of the predicted and the given class.
    counts : str
        Run lengths of its pixels at working size.
    evidence : float
        Mean log-odds.
    columns : (d,) array
        Its description.
    probability : float
        That the mask is wrong there.
    """

    photo: int
    kind: Kind
    code: int
    given: int
    counts: str
    evidence: float
    columns: Array
    probability: float = 0.0


def score_regions(
    dataset: xr.Dataset, predictions: Predictions, trusted: Mask, background: int
) -> list[FoundRegion]:
    """Find regions in which masks are probably wrong.

    Parameters
    ----------
    dataset : xarray.Dataset
        Superpixel maps and masks are read, in parallel.
    predictions : Predictions
        Of all its images.
    trusted : (J,) array of bool
        Images whose masks are taken for right, to learn from.
    background : int
        Number of the class of the background, among those of the predictions; -1 if there is none.

    Returns
    -------
    list of FoundRegion
        In the order of the images.
    """
    labelled = predictions.evidence.labelled
    photos = np.flatnonzero(labelled)
    if photos.size < 2:
        return []
    own = photos[trusted[photos]]
    copied = np.zeros(labelled.size, dtype=bool)
    copied[own[:: max(-(-own.size // MAX_COPIED), 1)]] = True
    tasks = _tasks(dataset, predictions, photos, background, copied)
    parts = compute(*lazy_calls("regions", _find_task, tasks))
    found = [region for regions, _, _, _ in parts for region in regions]
    columns, is_error, owner = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
    if not found:
        return []
    fold = predictions.evidence.fold
    given = np.stack([region.columns for region in found])
    image = np.array([region.photo for region in found])
    if photos.size < MIN_IMAGES or np.unique(is_error).size < 2:
        probability = 1.0 / (1.0 + np.exp(-np.array([region.evidence for region in found])))
    else:
        probability = _estimate(columns, is_error, fold[owner], given, fold[image])
    scored = [
        replace(region, probability=float(p)) for region, p in zip(found, probability, strict=True)
    ]
    return _select(scored, dataset)


def _select(regions: list[FoundRegion], dataset: xr.Dataset) -> list[FoundRegion]:
    """The most probable regions of each image that are not in others, in the order of the images.

    One image at a time is in memory.
    """
    heights, widths = (dataset[name].values for name in ("segment_height", "segment_width"))
    selected: list[FoundRegion] = []
    for photo, group in groupby(regions, key=lambda region: region.photo):
        size = int(heights[photo]), int(widths[photo])
        taken, count = np.zeros(size, dtype=bool), 0
        for region in sorted(group, key=lambda region: -region.probability):
            inside = decode(region.counts, *size)
            if count < MAX_REGIONS and taken[inside].mean() <= KNOWN:
                selected.append(region)
                taken |= inside
                count += 1
    return selected


def _tasks(
    dataset: xr.Dataset, predictions: Predictions, photos: Index, background: int, copied: Mask
) -> Iterator[tuple[xr.Dataset, list[ImagePrediction], int, Mask]]:
    maps = dataset[list(MAPS)]
    for first in range(0, photos.size, IMAGES_PER_TASK):
        own = photos[first : first + IMAGES_PER_TASK]
        images = [predictions.of_image(photo) for photo in own.tolist()]
        yield maps.isel(photo=own), images, background, copied[own]


def _find_task(
    maps: xr.Dataset, images: list[ImagePrediction], background: int, copied: Mask
) -> tuple[list[FoundRegion], Array, Index, Index]:
    """Regions of some images; descriptions, kinds (1: error) and images of regions of copies."""
    found: list[FoundRegion] = []
    columns, is_error, owner = [], [], []
    read = read_images(maps, images)
    for image, (prediction, mask), is_copied in zip(images, read, copied, strict=True):
        scene = Scene(prediction, image.spread)
        for region in find_regions(scene, mask, background):
            described = describe_region(scene, mask, region)
            found.append(
                FoundRegion(
                    image.photo,
                    region.kind,
                    region.code,
                    region.given,
                    encode(region.inside),
                    region.evidence,
                    described,
                )
            )
            if is_copied:
                columns.append(described)
                is_error.append(0)
                owner.append(image.photo)
        for copy, changed in _errors(prediction, mask, background, image) if is_copied else ():
            wanted = COVERED * np.count_nonzero(changed)
            for region in find_regions(scene, copy, background):
                size = OVERLAP * np.count_nonzero(region.part)
                if region.overlap(changed) >= max(size, wanted):
                    columns.append(describe_region(scene, copy, region))
                    is_error.append(1)
                    owner.append(image.photo)
    described = np.array(columns).reshape(-1, N_COLUMNS)
    return found, described, np.array(is_error, dtype=np.intp), np.array(owner, dtype=np.intp)


def _errors(
    prediction: Prediction, mask: Codes, background: int, image: ImagePrediction
) -> Iterator[tuple[Codes, Mask]]:
    """Copies of a mask with an error each, and where they differ from it."""
    rng = np.random.default_rng([2, image.photo])
    for _ in range(COPIES):
        copy = draw_error(prediction, mask, background, rng)
        if (copy != mask).any():
            yield copy, copy != mask
    yield from remove_things(prediction, mask, background)


def _estimate(columns: Array, is_error: Index, owner: Index, given: Array, fold: Index) -> Array:
    """(n,) probability that each region is an error of the mask, learned from other folds."""
    logits = np.zeros(fold.size)
    folds = []
    for number in range(FOLDS):
        train = owner != number
        folds.append((columns[train], is_error[train], fold == number))
    folds = [fold for fold in folds if fold[2].any() and np.unique(fold[1]).size == 2]
    arguments = [(train, labels, given[wanted]) for train, labels, wanted in folds]
    parts = compute(*lazy_calls("score", _regress, arguments))
    for (_, _, wanted), part in zip(folds, parts, strict=True):
        logits[wanted] = part
    odds, error = np.exp(logits), 0.5
    for _ in range(STEPS):
        prior = error / (1.0 - error)
        probability = prior * odds / (1.0 + prior * odds)
        error = float(np.clip(probability.mean(), *ERRORS))
    return np.asarray(probability)


def _regress(columns: Array, labels: Index, wanted: Array) -> Array:
    """Log-odds of errors, if they were as common as other regions."""
    forest = ExtraTreesClassifier(
        TREES,
        min_samples_leaf=MIN_LEAF,
        max_features=0.5,
        class_weight="balanced",
        random_state=0,
    )
    linear = make_pipeline(
        StandardScaler(), LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=500)
    )
    logits = []
    for regression in (forest, linear):
        p = np.clip(regression.fit(columns, labels).predict_proba(wanted)[:, 1], *LIMITS)
        logits.append(np.log(p / (1.0 - p)))
    return np.mean(logits, axis=0)
