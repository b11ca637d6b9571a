"""Counts of the pixels that predictions get right, in bounded memory."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.core.metrics import class_hits
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.masks import STRIP_PIXELS, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, open_image
from gpgc_dask.results.evaluation.pairs import MaskItem

__all__ = ["Counts", "count_pixels"]

MAX_THREADS = 4

LARGE_PIXELS = 1 << 24
"""Masks with more pixels than this are compared one pair at a time, to limit memory."""

Counts = tuple[Array, Array]
"""(classes,) pixels of each class of a true mask, and (rivals, classes) those predicted right."""


class _Counter:
    """Counts the pixels of a true mask that each prediction gets right."""

    def __init__(self, fmt: MaskFormat) -> None:
        self.n_classes = len(fmt.names)
        advice = "a prediction has the value 0 and one other value, as gpgc predict writes it"
        if fmt.classes:
            known = ", ".join(map(str, fmt.values))
            advice = (
                f"each pixel of a prediction has the value of a class, one of {known} (--classes)"
            )
        self.true = _Reader("true mask", fmt)
        # Predictions have the values of the classes and are never void.
        self.predicted = _Reader("prediction", MaskFormat(classes=fmt.classes), advice)
        self.large = threading.Lock()

    def __call__(self, item: MaskItem) -> Counts:
        size = self.true.size(item.true)
        for path in item.predicted:
            _check_size(path, self.predicted.size(path), item.true, size)
        with self.large if size[0] * size[1] > LARGE_PIXELS else nullcontext():
            truth = self.true.codes(item.true, size)
            counts = [self._hits(truth, path) for path in item.predicted]
        return counts[0][1], np.array([hits for hits, _ in counts])

    def _hits(self, truth: Codes, path: str) -> Counts:
        """:func:`class_hits` in strips of rows, because it needs many bytes per pixel."""
        guess = self.predicted.codes(path, truth.shape)
        hits, totals = np.zeros(self.n_classes), np.zeros(self.n_classes)
        step = max(STRIP_PIXELS // truth.shape[1], 1)
        for top in range(0, len(truth), step):
            true, own = (codes[top : top + step].astype(np.intp) for codes in (truth, guess))
            more = class_hits(true, own, self.n_classes)
            hits, totals = hits + more[0], totals + more[1]
        return hits, totals


def count_pixels(items: list[MaskItem], fmt: MaskFormat, progress: Listener | None) -> list[Counts]:
    """Count the pixels of all masks, in threads that hold one pair of masks each.

    Parameters
    ----------
    items : list of MaskItem
    fmt : MaskFormat
        Format of the true masks.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress` after each mask.

    Returns
    -------
    list of Counts
    """
    counts = []
    meter = Meter(progress, "images", len(items))
    pool = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        for each in pool.map(_Counter(fmt), items):
            counts.append(each)
            meter(1, 0)
    finally:
        pool.shutdown(cancel_futures=True)
    return counts


@dataclass(frozen=True)
class _Reader:
    """Reads masks of one kind; ``advice`` describes values that no option can change."""

    kind: str
    fmt: MaskFormat
    advice: str = ""

    def size(self, path: str) -> tuple[int, int]:
        """(height, width), from the header of the file."""
        try:
            with open_image(path) as image:
                return image.height, image.width
        except UnusableFileError as error:
            raise self._error(path, str(error)) from None

    def codes(self, path: str, size: tuple[int, int]) -> Codes:
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


def _check_size(predicted: str, own: tuple[int, int], true: str, size: tuple[int, int]) -> None:
    if own != size:
        raise UnusableFileError(
            printable(
                f"prediction {predicted} has {own[1]}×{own[0]} pixels, but its true mask {true} "
                f"has {size[1]}×{size[0]}: scale or turn one of them"
            )
        )
