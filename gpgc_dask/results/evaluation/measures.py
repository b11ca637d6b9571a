"""Measures of the agreement of two masks, from the number of pixels per pair of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array

__all__ = [
    "ClassScore",
    "average_accuracy",
    "class_accuracy",
    "class_dice",
    "class_iou",
    "class_scores",
    "cohen_kappa",
    "mean",
    "number",
    "pixel_accuracy",
]


@dataclass(frozen=True)
class ClassScore:
    """Scores of a class. They are None where no pixel counts.

    Attributes
    ----------
    iou : float or None
        Intersection over union (Jaccard index) of the pixels in the two masks.
    dice : float or None
        Twice the intersection over the sum of the two areas (F1 score).
    precision : float or None
        Share of the pixels predicted as this class that are right.
    recall : float or None
        Share of the pixels of this class that are predicted right.
    boundary : float or None
        Boundary F-score, averaged over the images in which the class has a boundary.
    pixels : int
        Number of pixels of the class in the true masks.
    """

    iou: float | None
    dice: float | None
    precision: float | None
    recall: float | None
    boundary: float | None
    pixels: int


def _ratio(part: Any, whole: Any) -> Any:
    """Shares; NaN where the whole is 0."""
    with np.errstate(invalid="ignore"):
        return part / whole


def class_iou(confusion: Array) -> Array:
    """Intersection over union of each class, (classes,); NaN for those in neither mask."""
    both = confusion.diagonal()
    return _ratio(both, confusion.sum(0) + confusion.sum(1) - both)


def class_dice(confusion: Array) -> Array:
    """Dice coefficient of each class, (classes,); NaN for those in neither mask."""
    return _ratio(2 * confusion.diagonal(), confusion.sum(0) + confusion.sum(1))


def class_scores(confusion: Array, boundary: Array) -> list[ClassScore]:
    """All scores of each class.

    Parameters
    ----------
    confusion : (classes, classes) array
        Pixels by true and by predicted class.
    boundary : (classes,) array
        Boundary F-scores; NaN for those that are not known.
    """
    true = confusion.sum(1)
    iou, dice, recall = class_iou(confusion), class_dice(confusion), class_accuracy(confusion)
    precision = _ratio(confusion.diagonal(), confusion.sum(0))
    return [
        ClassScore(
            iou=number(iou[code]),
            dice=number(dice[code]),
            precision=number(precision[code]),
            recall=number(recall[code]),
            boundary=number(boundary[code]),
            pixels=int(true[code]),
        )
        for code in range(true.size)
    ]


def pixel_accuracy(confusion: Array) -> float | None:
    """Share of the pixels with the same class in both masks; None without pixels."""
    return number(_ratio(confusion.trace(), confusion.sum()))


def class_accuracy(confusion: Array) -> Array:
    """Share of the pixels of each true class that are predicted right; NaN without pixels."""
    return _ratio(confusion.diagonal(), confusion.sum(1))


def average_accuracy(confusion: Array) -> float | None:
    """Mean of :func:`class_accuracy` over the classes that occur; None without pixels."""
    return mean(class_accuracy(confusion))


def cohen_kappa(confusion: Array) -> float | None:
    """Cohen's kappa: (p − e) / (1 − e) for the share p of equal pixels and its chance level e.

    None without pixels, or if both masks consist of one and the same class.
    """
    n = confusion.sum()
    chance = confusion.sum(0) @ confusion.sum(1)
    return number(_ratio(n * confusion.trace() - chance, n * n - chance))


def mean(values: Array) -> float | None:
    """Mean of the values that are not NaN; None if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def number(value: Any) -> float | None:
    """A plain number; None for NaN."""
    return None if np.isnan(value) else float(value)
