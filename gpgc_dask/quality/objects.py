"""Scores of annotated objects: the probability that an annotation is right, without a true one.

Annotations are compared with predictions by models that never saw their image. Copies of the given
annotations get errors (another class, moved), and two regressions learn to distinguish them from
the given ones, of which most are right, by what they look like to the model. Trained on other
images, they give each annotation the probability that it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.maps import MAPS
from gpgc_dask.data.run_lengths import decode
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.quality.object_descriptors import (
    N_COLUMNS,
    Placed,
    Scene,
    describe_object,
    pool_object,
)
from gpgc_dask.quality.placement import Neighbours, outline_of
from gpgc_dask.quality.predictions import (
    FOLDS,
    IMAGES_PER_TASK,
    ImagePrediction,
    Predictions,
    read_images,
)

__all__ = ["MIN_OBJECTS", "ObjectScores", "score_objects"]

MIN_OBJECTS = 30
"""With fewer annotations, or images of them, the score is the mean margin."""

MIN_SUPERPIXELS = 0.5
"""Annotations smaller than this share of a mean superpixel of their photo are not judged."""

MAX_ORIGINALS = 1000
"""Number of annotations that copies are made of."""

WRONG_CLASS, MOVED = 4, 4
"""Copies of another class, and in another place, of each annotation."""

MOVES = (0.04, 0.3)
"""Distances to which copies are moved, as shares of the longest side."""

STILL_RIGHT = 0.6
"""A copy with at least this IoU with the original is not wrong."""

TREES, MIN_LEAF, MAX_FEATURES = 200, 5, 0.3
"""The forest: trees per fold, rows per leaf, share of the columns per split."""

PENALTY, CLASS_PENALTY = 10.0, 0.3
"""Inverse penalties of the linear regressions: of two columns, and of many."""

LIMITS = (0.005, 0.995)
"""Limits of the probabilities of the forest."""

DOUBTED = 0.25
"""Share of the annotations that the second round of regressions does not learn from."""

WRONG = (0.05, 0.5)
"""Limits of the share of wrong annotations."""

STEPS = 50
"""EM steps for the share of right annotations."""

OBJECTS = ("object_image", "object_class", "object_region")


@dataclass(frozen=True)
class ObjectScores:
    """Scores of a dataset's annotations.

    Attributes
    ----------
    score : (n,) array
        Probability that the annotation is right; NaN where it is not judged.
    judged : (n,) array of bool
        False for annotations that are too small, or of a class that the model does not know.
    """

    score: Array
    judged: Mask


@dataclass(frozen=True)
class _Described:
    """Descriptions (n, d), pooled probabilities (n, e), class and number of objects."""

    columns: Array
    pooled: Array
    code: Index
    number: Index

    @classmethod
    def join(cls, parts: list[_Described]) -> _Described:
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("columns", "pooled", "code", "number")
            )
        )


def score_objects(dataset: xr.Dataset, predictions: Predictions) -> ObjectScores:
    """Estimate for each annotation of a dataset the probability that it is right.

    Parameters
    ----------
    dataset : xarray.Dataset
        With annotated objects.
    predictions : Predictions
        Of all its images.

    Returns
    -------
    ObjectScores
        In the order of the dataset.
    """
    image = dataset["object_image"].values.astype(np.intp)
    n = image.size
    score, judged = np.full(n, np.nan), np.zeros(n, dtype=bool)
    if not n:
        return ObjectScores(score, judged)
    step = -(-n // MAX_ORIGINALS)
    tasks = _tasks(dataset, predictions, image, step)
    parts = compute(*lazy_calls("objects", _describe_task, tasks))
    given = _Described.join([part for part, _ in parts])
    copies = _Described.join([part for _, part in parts])
    if not given.number.size:
        return ObjectScores(score, judged)
    judged[given.number] = True
    own = image[given.number]
    if given.number.size < MIN_OBJECTS or np.unique(own).size < MIN_OBJECTS or not len(copies.code):
        score[given.number] = (1.0 + given.columns[:, 0]) / 2
        return ObjectScores(score, judged)
    score[given.number] = _estimate(given, copies, predictions.evidence.fold[image])
    return ObjectScores(score, judged)


# -- descriptions --------------------------------------------------------------------------------


def _tasks(
    dataset: xr.Dataset, predictions: Predictions, image: Index, step: int
) -> Iterator[tuple[xr.Dataset, list[ImagePrediction], xr.Dataset, int, int]]:
    photos = np.unique(image)
    for first in range(0, photos.size, IMAGES_PER_TASK):
        own = photos[first : first + IMAGES_PER_TASK]
        low, high = np.searchsorted(image, [own[0], own[-1] + 1]).tolist()
        yield (
            dataset[list(MAPS)].isel(photo=own),
            [predictions.of_image(photo) for photo in own.tolist()],
            dataset[list(OBJECTS)].isel(object=slice(low, high)),
            low,
            step,
        )


def _describe_task(
    maps: xr.Dataset, images: list[ImagePrediction], objects: xr.Dataset, first: int, step: int
) -> tuple[_Described, _Described]:
    """Descriptions of the annotations of some images, and of copies of every ``step``-th of them.

    Annotations that are too small are left out.
    """
    loaded = objects.load(scheduler="sync")
    owner, regions = loaded["object_image"].values, loaded["object_region"].values
    given, copies = _Collector(), _Collector()
    for image, (prediction, mask) in zip(images, read_images(maps, images), strict=True):
        scene = Scene(prediction, image.spread)
        codes = image.codes[loaded["object_class"].values]
        own = np.flatnonzero(owner == image.photo)
        rng = np.random.default_rng([1, image.photo])
        drawn = [_decode(str(regions[number]), *mask.shape) for number in own.tolist()]
        outlines = [outline_of(inside) for inside in drawn]
        covered, lines = (np.sum(each, axis=0, dtype=np.int32) for each in (drawn, outlines))
        for place, number in enumerate(own.tolist()):
            inside, code = drawn[place], int(codes[number])
            smallest = MIN_SUPERPIXELS * mask.size / len(prediction.shares)
            if code >= prediction.n_classes or inside.sum() < max(smallest, 1.0):
                continue
            # Objects are in the order in which they are drawn.
            hidden = np.zeros_like(inside)
            for later in range(place + 1, own.size):
                if codes[own[later]] != code:
                    hidden |= drawn[later]
            others = Neighbours(covered > inside, lines > outlines[place])
            placed = Placed(inside, code, hidden, others)
            given.add(scene, placed, first + number)
            if (first + number) % step == 0:
                for copy in _copies(placed, prediction.n_classes, 0, rng):
                    copies.add(scene, copy, first + number)
    return given.result(images[0]), copies.result(images[0])


def _decode(counts: str, height: int, width: int) -> Mask:
    try:
        return decode(counts, height, width)
    except InputError as error:
        raise CorruptedError(
            f"the dataset is corrupted: object_region holds {error}; create it again with gpgc "
            "ingest"
        ) from error


class _Collector:
    """Collects descriptions."""

    def __init__(self) -> None:
        self.rows: list[tuple[Array, Array, int, int]] = []

    def add(self, scene: Scene, placed: Placed, number: int) -> None:
        described = describe_object(scene, placed), pool_object(scene, placed)
        self.rows.append((*described, placed.code, number))

    def result(self, image: ImagePrediction) -> _Described:
        if not self.rows:
            empty = np.zeros(0, dtype=np.intp)
            n_pooled = 2 * image.shares.shape[1] + 4
            return _Described(np.zeros((0, N_COLUMNS)), np.zeros((0, n_pooled)), empty, empty)
        columns, pooled, codes, numbers = zip(*self.rows, strict=True)
        return _Described(np.stack(columns), np.stack(pooled), np.array(codes), np.array(numbers))


def _copies(
    placed: Placed, n_classes: int, background: int, rng: np.random.Generator
) -> Iterator[Placed]:
    """Copies of an annotation that are wrong."""
    others = [code for code in range(n_classes) if code not in (placed.code, background)]
    for _ in range(WRONG_CLASS if others else 0):
        yield replace(placed, code=int(rng.choice(others)))
    for _ in range(MOVED):
        inside = _move(placed.inside, rng)
        if inside is not None:
            yield replace(placed, inside=inside)


def _move(inside: Mask, rng: np.random.Generator) -> Mask | None:
    """A region in another place, at least half of it in the photo; None if that fails."""
    height, width = inside.shape
    points = np.argwhere(inside)
    for _ in range(10):
        angle = rng.uniform(0.0, 2.0 * np.pi)
        length = np.exp(rng.uniform(*np.log(MOVES))) * max(height, width)
        moved = points + np.round(length * np.array([np.sin(angle), np.cos(angle)])).astype(int)
        moved = moved[((moved >= 0) & (moved < (height, width))).all(1)]
        if 2 * len(moved) < len(points):
            continue
        result = np.zeros_like(inside)
        result[moved[:, 0], moved[:, 1]] = True
        if (result & inside).sum() < STILL_RIGHT * (result | inside).sum():
            return result
    return None


# -- regressions ---------------------------------------------------------------------------------


def _estimate(given: _Described, copies: _Described, folds: Index) -> Array:
    """(n,) probability that each annotation, in these folds, is right, learned from other folds."""
    fold, copy_fold = folds[given.number], folds[copies.number]
    codes = np.zeros(folds.size, dtype=np.intp)
    codes[given.number] = given.code
    is_class = copies.code != codes[copies.number]
    parts = [(part.pooled, part.code, own) for part, own in ((given, fold), (copies, copy_fold))]

    def odds(trusted: Mask, own: Mask) -> Array:
        (evidence,) = compute(*lazy_calls("classes", _class_evidence, [(*parts, trusted)]))
        tests = (
            _Test(_linear_odds, evidence[0], evidence[1], is_class),
            _Test(_forest_odds, given.columns, copies.columns, ~is_class),
        )
        return _logits(tests, fold, copy_fold, (trusted, own))

    first = odds(np.ones(fold.size, dtype=bool), np.ones(copy_fold.size, dtype=bool))
    # Wrong annotations among the given ones blur the difference: the second round omits those that
    # look worst, and their copies.
    likely = _combine(first)
    trusted = likely >= np.quantile(likely, DOUBTED)
    known = np.zeros(folds.size, dtype=bool)
    known[given.number[trusted]] = True
    return _combine((first + odds(trusted, known[copies.number])) / 2)


@dataclass(frozen=True)
class _Test:
    """How one kind of error is recognised.

    Attributes
    ----------
    odds : callable
        Log-odds of wanted annotations, from right and wrong ones.
    given, copies : array
        What it is recognised by.
    is_wrong : array of bool
        Copies with this kind of error.
    """

    odds: Callable[[Array, Array, Array], Array]
    given: Array
    copies: Array
    is_wrong: Mask


def _logits(
    tests: Sequence[_Test], fold: Index, copy_fold: Index, trusted: tuple[Mask, Mask]
) -> Array:
    """(tests, n) log-odds against errors of each kind, learned from trusted ones of other folds."""
    arguments, places = [], []
    for row, test in enumerate(tests):
        for number in range(FOLDS):
            wanted, right = fold == number, (fold != number) & trusted[0]
            wrong = (copy_fold != number) & trusted[1] & test.is_wrong
            if wrong.any() and right.any() and wanted.any():
                parts = (test.given[right], test.copies[wrong], test.given[wanted])
                arguments.append((test.odds, *parts))
                places.append((row, wanted))
    logits = np.full((len(tests), fold.size), np.inf)
    for (row, wanted), part in zip(
        places, compute(*lazy_calls("score", _apply, arguments)), strict=True
    ):
        logits[row, wanted] = part
    return logits


def _apply(
    odds: Callable[[Array, Array, Array], Array], right: Array, wrong: Array, wanted: Array
) -> Array:
    return odds(right, wrong, wanted)


def _class_evidence(
    given: tuple[Array, Index, Index], copies: tuple[Array, Index, Index], trusted: Mask
) -> list[Array]:
    """(n, 2) ln of the probability of the class of given objects and copies, and its margin.

    The probability is that of a regression from pooled probabilities, size and place of the trusted
    objects of other folds to their classes.
    """
    parts = [np.zeros((part[1].size, 2)) for part in (given, copies)]
    pooled, codes, fold = given
    for number in np.unique(fold):
        train = (fold != number) & trusted
        if np.unique(codes[train]).size < 2:
            continue
        regression = make_pipeline(
            StandardScaler(), LogisticRegression(C=CLASS_PENALTY, max_iter=500)
        ).fit(pooled[train], codes[train])
        for result, (wanted, own, folds) in zip(parts, (given, copies), strict=True):
            rows = folds == number
            if rows.any():
                logs = regression.predict_log_proba(wanted[rows])
                result[rows] = _evidence_of(logs, regression.classes_, own[rows])
    return parts


def _evidence_of(logs: Array, classes: Index, codes: Index) -> Array:
    """(n, 2) log-probability of each object's class, and that minus the largest other one."""
    place = np.searchsorted(classes, codes).clip(max=classes.size - 1)
    known = classes[place] == codes
    rows = np.arange(codes.size)
    own = np.where(known, logs[rows, place], logs.min(1))
    others = logs.copy()
    others[rows[known], place[known]] = -np.inf
    return np.column_stack([own, own - others.max(1)])


def _linear_odds(right: Array, wrong: Array, wanted: Array) -> Array:
    """Log-odds that wanted annotations are right and not wrong, by a linear regression."""
    regression = make_pipeline(
        StandardScaler(), LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=500)
    )
    labels = np.repeat([1, 0], [len(right), len(wrong)])
    regression.fit(np.concatenate([right, wrong]), labels)
    return np.asarray(regression.decision_function(wanted))


def _forest_odds(right: Array, wrong: Array, wanted: Array) -> Array:
    """The same by a forest."""
    forest = ExtraTreesClassifier(
        TREES,
        min_samples_leaf=MIN_LEAF,
        max_features=MAX_FEATURES,
        class_weight="balanced",
        random_state=0,
    )
    labels = np.repeat([1, 0], [len(right), len(wrong)])
    forest.fit(np.concatenate([right, wrong]), labels)
    p = np.clip(forest.predict_proba(wanted)[:, 1], *LIMITS)
    return np.asarray(np.log(p / (1.0 - p)))


def _combine(logits: Array) -> Array:
    """(n,) probabilities of right annotations, from the odds (2, n) against two kinds of errors.

    Errors are more common among the copies than among the given annotations: their share is that
    which explains the odds best, found by EM, within limits.
    """
    against = np.exp(-logits)
    wrong = 0.5
    for _ in range(STEPS):
        prior = wrong / (1.0 - wrong) / 2.0
        right = 1.0 / (1.0 + prior * against.sum(0))
        wrong = float(np.clip(1.0 - right.mean(), *WRONG))
    return np.asarray(right)
