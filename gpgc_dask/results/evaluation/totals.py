"""Counts of a folder of masks, image by image and together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Listener, work_listener
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.mask_sources import MaskOptions
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.results.evaluation.boundaries import Tolerance
from gpgc_dask.results.evaluation.measures import class_dice, class_iou, mean
from gpgc_dask.results.evaluation.pairs import MaskItem
from gpgc_dask.results.evaluation.pixels import ImageCounts, MaskReader, count_pixels

__all__ = ["ImageTotals", "Totals", "count_totals", "mask_format"]

Score = TypeVar("Score")


@dataclass(frozen=True)
class ImageTotals:
    """Counts of an image, and the scores that do not depend on which of two masks is right."""

    name: str
    confusion: Array
    boundary: float | None
    names: tuple[str, ...]

    @property
    def mean_iou(self) -> float | None:
        """Mean over the classes in one of the masks."""
        return mean(class_iou(self.confusion))

    @property
    def mean_dice(self) -> float | None:
        """Mean over the classes in one of the masks."""
        return mean(class_dice(self.confusion))

    @property
    def iou(self) -> dict[str, float]:
        """{class: IoU} of the classes in one of the masks."""
        values = zip(self.names, class_iou(self.confusion).tolist(), strict=True)
        return {name: value for name, value in values if not np.isnan(value)}


class Totals:
    """Sums over the images.

    Attributes
    ----------
    confusion : (classes, classes) array
        Pixels by class in the true mask (rows) and in the prediction (columns).
    void : int
        Number of pixels that are void in predictions only.
    """

    def __init__(self, fmt: MaskFormat) -> None:
        n = len(fmt.names)
        self.names = fmt.names
        self.confusion, self.void = np.zeros((n, n)), 0
        self._boundary, self._with_boundary = np.zeros(n), np.zeros(n)

    def add(self, item: MaskItem, counts: ImageCounts, rival: int) -> ImageTotals:
        """Add an image, and return its own part."""
        confusion, boundary = counts.confusion[rival], counts.boundary[rival]
        self.confusion += confusion
        self.void += int(counts.void[rival])
        self._boundary += np.nan_to_num(boundary)
        self._with_boundary += ~np.isnan(boundary)
        return ImageTotals(printable(item.name), confusion, mean(boundary), self.names)

    @property
    def boundary(self) -> Array:
        """(classes,) mean boundary F-score of the images in which a class has a boundary."""
        with np.errstate(invalid="ignore"):
            return self._boundary / self._with_boundary


def mask_format(
    foreground: Sequence[int],
    classes: Mapping[int, str] | str | None,
    void: Sequence[int],
    threshold: float | None,
    *,
    invert: bool,
) -> MaskFormat:
    """The format of masks whose classes have different names."""
    fmt = MaskOptions(
        foreground=foreground, classes=classes or {}, void=void, threshold=threshold, invert=invert
    ).mask_format
    if len(set(fmt.names)) < len(fmt.names):
        raise InputError(f"classes need different names, got {', '.join(fmt.names)}")
    return fmt


def count_totals(
    items: list[MaskItem],
    readers: tuple[MaskReader, MaskReader],
    score: Callable[[ImageTotals], Score],
    boundary: float | str | None,
    progress: bool | Listener | None,
) -> tuple[list[Totals], list[list[Score]]]:
    """Count the pixels of all masks.

    Parameters
    ----------
    items : list of MaskItem
    readers : tuple of two MaskReader
        Of the true masks, and of the predictions.
    score : callable
        Makes the scores of an image; its counts are not kept.
    boundary : float or str, optional
        Tolerance of boundaries.
    progress : bool or callable, optional
        See :func:`gpgc_dask.evaluate`.

    Returns
    -------
    tuple of list
        The totals, and the scores of the images, of each set of predictions.
    """
    tolerance = None if boundary is None else Tolerance.parse(boundary)
    totals = [Totals(readers[0].fmt) for _ in items[0].predicted]
    images: list[list[Score]] = [[] for _ in totals]
    with warnings.catch_warnings(), work_listener(progress) as listener:
        silence_pillow()
        counts = count_pixels(items, *readers, tolerance, listener)
        for item, own in zip(items, counts, strict=True):
            for rival, total in enumerate(totals):
                images[rival].append(score(total.add(item, own, rival)))
    return totals, images
