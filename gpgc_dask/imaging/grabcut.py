"""GrabCut: the object in a box, by OpenCV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.core.errors import InputError, MissingDependencyError, UnusableFileError
from gpgc_dask.imaging.boxes import box_edges, to_box
from gpgc_dask.imaging.photos import Pixels

__all__ = ["check_numbers", "cut_object", "grabcut", "import_opencv"]

MAX_SEED = 2**31 - 1
"""OpenCV's seeds are C's int."""


def grabcut(pixels: Pixels, box: Sequence[float], iterations: int = 5, seed: int = 0) -> Mask:
    """Find the object in a box by OpenCV's GrabCut with default parameters.

    The result depends on the arguments alone, whatever ran before and in whichever thread. GrabCut
    is slow on large photos, and on photos of one colour with some specks.

    Parameters
    ----------
    pixels : (h, w, 3) uint8 array
        The photo in RGB.
    box : sequence of 4 floats
        x, y, width and height in pixels. Edges are rounded and clipped to the photo, and at least
        one pixel is kept. GrabCut learns the background outside the box: a box of the whole photo
        is made smaller by one pixel on each side.
    iterations : int, default 5
        Iterations of learning colours and cutting.
    seed : int, default 0
        Seed of the initial colour models.

    Returns
    -------
    (h, w) bool array
        Pixels of the object.
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise InputError(f"pixels must be (h, w, 3) uint8, got {pixels.shape} {pixels.dtype}")
    check_numbers(iterations, seed)
    height, width = pixels.shape[:2]
    return cut_object(pixels, box_edges(to_box(box, "box"), height, width), iterations, seed)


def check_numbers(iterations: int, seed: int) -> None:
    """Raise an InputError if a number cannot be used."""
    if iterations < 1:
        raise InputError(f"iterations must be 1 or more, got {iterations!r}")
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"seed must be a whole number from 0 to {MAX_SEED}, got {seed!r}")


def import_opencv() -> Any:
    """Import OpenCV, an optional dependency."""
    try:
        import cv2
    except ImportError as error:
        raise MissingDependencyError(
            f'GrabCut needs OpenCV ({error}): pip install "gpgc_dask[grabcut]"'
        ) from None
    return cv2


def cut_object(pixels: Pixels, edges: Array, iterations: int, seed: int) -> Mask:
    """As :func:`grabcut`, with the edges (4,) of the box: left, top, right, bottom."""
    cv2 = import_opencv()
    left, top, right, bottom = _rectangle(edges, *pixels.shape[:2])
    mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    box = (left, top, right - left, bottom - top)
    blue_first = np.ascontiguousarray(pixels[..., ::-1])  # as OpenCV reads photos
    try:
        cv2.setRNGSeed(int(seed))  # of this thread alone
        cv2.grabCut(blue_first, mask, box, *models, int(iterations), cv2.GC_INIT_WITH_RECT)
    except cv2.error as error:
        raise UnusableFileError(f"GrabCut fails on it: {' '.join(str(error).split())}") from None
    return (mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)


def _rectangle(edges: Array, height: int, width: int) -> tuple[int, int, int, int]:
    """Edges in whole pixels, at least one apart, that leave part of the photo outside."""
    size = np.array([width, height])
    first = np.minimum(np.floor(edges[:2] + 0.5), size - 1).astype(int)
    last = np.maximum(np.floor(edges[2:] + 0.5), first + 1).astype(int)
    if (first == 0).all() and (last == size).all():
        if size.max() < 3:
            raise UnusableFileError(
                f"too small for GrabCut: {width}×{height} pixels are all in the box"
            )
        first, last = np.where(size > 2, 1, first), np.where(size > 2, size - 1, last)
    return int(first[0]), int(first[1]), int(last[0]), int(last[1])
