"""Counts of the pixels of masks by their classes, in bounded memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.core.metrics import confusion_matrix
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.masks import STRIP_PIXELS, VOID, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, open_image
from gpgc_dask.results.evaluation.boundaries import Tolerance, boundary_scores
from gpgc_dask.results.evaluation.pairs import MaskItem

__all__ = ["ImageCounts", "MaskReader", "count_pixels"]

MAX_THREADS = 4

LARGE_PIXELS = 1 << 24
"""Masks with more pixels than this are compared one pair at a time, to limit memory."""


@dataclass(frozen=True)
class ImageCounts:
    """The pixels of a true mask and of its predictions.

    Attributes
    ----------
    confusion : (rivals, classes, classes) array
        Number of pixels by true and by predicted class. A pixel that is void in one of the masks
        does not count.
    boundary : (rivals, classes) array
        Boundary F-scores; NaN for classes without a boundary, and without a tolerance.
    void : (rivals,) array
        Number of pixels that are void in a prediction but not in the true mask.
    """

    confusion: Array
    boundary: Array
    void: Array


@dataclass(frozen=True)
class MaskReader:
    """Reads masks of one kind.

    Attributes
    ----------
    kind : str
        Name of the kind in errors.
    fmt : MaskFormat
        How the values are read.
    advice : str
        What to do about values that ``fmt`` does not allow; default: the advice of ``fmt``.
    """

    kind: str
    fmt: MaskFormat
    advice: str = ""

    def size(self, path: str) -> tuple[int, int]:
        """(height, width) of a mask, from the header of its file."""
        try:
            with open_image(path) as image:
                return image.height, image.width
        except UnusableFileError as error:
            raise self._error(path, str(error)) from None

    def codes(self, path: str, size: tuple[int, int]) -> Codes:
        """Class codes of a mask of this size."""
        try:
            return read_mask(path, self.fmt, Orientation(*size, size))
        except UnusableFileError as error:
            text, prefix = str(error), f"mask {path}: "
            if text.startswith(prefix):
                raise self._error(path, text.removeprefix(prefix)) from None
            reason = text.removeprefix("mask ")
            if self.advice:
                reason = f"{reason.partition(': ')[0]}: {self.advice}"
            raise self._error(path, reason) from None

    def _error(self, path: str, reason: str) -> UnusableFileError:
        return UnusableFileError(printable(f"{self.kind} {path}: {reason}"))


class _Counter:
    """Counts the pixels of the masks of an image."""

    def __init__(
        self, true: MaskReader, predicted: MaskReader, tolerance: Tolerance | None
    ) -> None:
        self.true, self.predicted, self.tolerance = true, predicted, tolerance
        self.n_classes = len(true.fmt.names)
        self.large = threading.Lock()

    def __call__(self, item: MaskItem) -> ImageCounts:
        size = self.true.size(item.true)
        for path in item.predicted:
            self._check_size(path, item.true, size)
        with self.large if size[0] * size[1] > LARGE_PIXELS else nullcontext():
            truth = self.true.codes(item.true, size)
            return self._count(truth, [self.predicted.codes(path, size) for path in item.predicted])

    def _count(self, truth: Codes, guesses: list[Codes]) -> ImageCounts:
        """Counts in strips of rows, because they need many bytes per pixel."""
        shape = (len(guesses), self.n_classes, self.n_classes)
        confusion, void = np.zeros(shape), np.zeros(len(guesses))
        valid = truth != VOID
        for rival, guess in enumerate(guesses):
            void[rival] = np.count_nonzero((guess == VOID) & (truth != VOID))
            valid &= guess != VOID
        step = max(STRIP_PIXELS // truth.shape[1], 1)
        for top in range(0, len(truth), step):
            rows = slice(top, top + step)
            true = np.where(valid[rows], truth[rows], VOID).astype(np.intp)
            for rival, guess in enumerate(guesses):
                own = guess[rows].astype(np.intp)
                confusion[rival] += confusion_matrix(true, own, self.n_classes)
        return ImageCounts(confusion, self._boundaries(truth, guesses, valid), void)

    def _boundaries(self, truth: Codes, guesses: list[Codes], valid: Mask) -> Array:
        if self.tolerance is None:
            return np.full((len(guesses), self.n_classes), np.nan)
        distance = self.tolerance.at(truth.shape)
        return np.array(
            [boundary_scores(truth, guess, valid, self.n_classes, distance) for guess in guesses]
        )

    def _check_size(self, path: str, true: str, size: tuple[int, int]) -> None:
        own = self.predicted.size(path)
        if own != size:
            other = f"its {self.true.kind}" if self.true.kind != self.predicted.kind else "mask"
            raise UnusableFileError(
                printable(
                    f"{self.predicted.kind} {path} has {own[1]}×{own[0]} pixels, but {other} "
                    f"{true} has {size[1]}×{size[0]}: scale or turn one of them"
                )
            )


def count_pixels(
    items: list[MaskItem],
    true: MaskReader,
    predicted: MaskReader,
    tolerance: Tolerance | None,
    progress: Listener | None,
) -> Iterator[ImageCounts]:
    """Count the pixels of all masks, in threads that hold the masks of one image each.

    Parameters
    ----------
    items : list of MaskItem
    true, predicted : MaskReader
        Readers of the true masks and of the predictions.
    tolerance : Tolerance, optional
        Computes the scores of boundaries.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress` after each image.

    Yields
    ------
    ImageCounts
        In the order of ``items``.
    """
    meter = Meter(progress, "images", len(items))
    pool = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        for each in pool.map(_Counter(true, predicted, tolerance), items):
            yield each
            meter(1, 0)
    finally:
        pool.shutdown(cancel_futures=True)
