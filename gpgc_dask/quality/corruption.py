"""Errors as people and tools make them, drawn into a mask.

A corruption takes a mask (h, w) of class codes, 255 where it is void, and returns another one. Void
pixels stay void. To add a kind, write a function and add it to :data:`ONE_OBJECT` (two classes) or
:data:`SEVERAL_CLASSES`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Mask
from gpgc_dask.data.maps import Codes, Segments, count_classes
from gpgc_dask.data.schema import VOID

__all__ = ["ONE_OBJECT", "SEVERAL_CLASSES", "corrupt", "follow_superpixels"]

Corruption = Callable[[Codes, Codes, int, np.random.Generator], Codes]
"""(mask, mask of another image, number of classes, generator) -> mask"""


def corrupt(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """Draw one error of a random kind into a mask.

    Parameters
    ----------
    mask : (h, w) array of uint8
        Class codes; 255 is void.
    other : (h', w') array of uint8
        Mask of another image, for masks that were confused.
    n_classes : int
        Number of classes.
    rng : numpy.random.Generator
        Source of the kind, the place and the size of the error.

    Returns
    -------
    (h, w) array of uint8
        The mask with the error. It may be the same, if the error has no effect.
    """
    kinds = ONE_OBJECT if n_classes == 2 else SEVERAL_CLASSES
    kind = kinds[int(rng.integers(len(kinds)))]
    result = kind(mask, other, n_classes, rng)
    return np.where(mask == VOID, VOID, np.where(result == VOID, 0, result)).astype(np.uint8)


def follow_superpixels(mask: Codes, segments: Segments, n_classes: int) -> Codes:
    """The mask with each superpixel in its most common class, as tools that follow edges draw it.

    Parameters
    ----------
    mask : (h, w) array of uint8
        Class codes; 255 is void.
    segments : (h, w) array of uint16
        Superpixel of each pixel, 0 … n − 1.
    n_classes : int
        Number of classes.
    """
    counts = count_classes(mask, segments, int(segments.max()) + 1, n_classes)
    painted = counts.argmax(1).astype(np.uint8)[segments]
    painted[mask == VOID] = VOID
    return painted


# -- parts of corruptions -----------------------------------------------------------------------


def _shift(
    mask: Codes, low: float, high: float, rng: np.random.Generator, fill: int | None
) -> Codes:
    """Move a mask by a share of its longest side; ``fill`` None repeats the edge."""
    h, w = mask.shape
    angle = rng.uniform(0.0, 2.0 * np.pi)
    length = rng.uniform(low, high) * max(h, w)
    down, right = round(length * np.sin(angle)), round(length * np.cos(angle))
    rows, columns = np.arange(h) - down, np.arange(w) - right
    moved = mask[np.clip(rows, 0, h - 1)][:, np.clip(columns, 0, w - 1)]
    if fill is not None:
        moved[(rows < 0) | (rows >= h)] = fill
        moved[:, (columns < 0) | (columns >= w)] = fill
    return moved


def _ellipse(shape: tuple[int, int], rng: np.random.Generator) -> Mask:
    """A random ellipse: half axes of 10 % to 40 % of the sides."""
    h, w = shape
    y, x = rng.integers(h), rng.integers(w)
    a, b = rng.uniform(0.1, 0.4, 2) * (h, w)
    rows, columns = np.ogrid[:h, :w]
    return np.asarray(((rows - y) / a) ** 2 + ((columns - x) / b) ** 2 < 1.0)


def _classes(mask: Codes) -> Codes:
    return np.unique(mask[mask != VOID])


# -- one object ---------------------------------------------------------------------------------


def _move(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    return _shift(mask, 0.03, 0.3, rng, fill=0)


def _too_large(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    inside = mask == 1
    if not inside.any():
        return mask
    distance = ndimage.distance_transform_edt(~inside)
    return (distance <= rng.uniform(0.01, 0.1) * max(mask.shape)).astype(np.uint8)


def _too_small(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    depth = ndimage.distance_transform_edt(mask == 1)
    width = rng.uniform(0.01, 0.1) * max(mask.shape)
    return (depth > min(width, 0.8 * depth.max())).astype(np.uint8)


def _box(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    inside = mask == 1
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    box = np.zeros_like(mask)
    if rows.size:
        box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = 1
    return box


def _empty(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    return np.zeros_like(mask)


def _confused(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """The mask of another image, at the size of this one."""
    rows = np.arange(mask.shape[0]) * other.shape[0] // mask.shape[0]
    columns = np.arange(mask.shape[1]) * other.shape[1] // mask.shape[1]
    return other[rows][:, columns]


def _part_missing(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    return np.where(_ellipse(mask.shape, rng), 0, mask).astype(np.uint8)


def _inverted_part(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """A hole in the object, or a second object."""
    return np.where(_ellipse(mask.shape, rng), mask != 1, mask).astype(np.uint8)


ONE_OBJECT: tuple[Corruption, ...] = (
    _move,
    _too_large,
    _too_small,
    _box,
    _empty,
    _confused,
    _part_missing,
    _inverted_part,
)
"""Errors in masks of two classes, all as likely."""


# -- several classes ----------------------------------------------------------------------------


def _move_all(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    return _shift(mask, 0.03, 0.3, rng, fill=None)


def _merged(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """All pixels of a class get another class of the image."""
    present = _classes(mask)
    if present.size < 2:
        return mask
    source, target = rng.choice(present, 2, replace=False)
    return np.where(mask == source, target, mask).astype(np.uint8)


def _wrong_class(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """All pixels of a class get any class."""
    present = _classes(mask)
    source = rng.choice(present) if present.size else 0
    return np.where(mask == source, rng.integers(n_classes), mask).astype(np.uint8)


def _swapped(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    present = _classes(mask)
    if present.size < 2:
        return mask
    a, b = rng.choice(present, 2, replace=False)
    return np.where(mask == a, b, np.where(mask == b, a, mask)).astype(np.uint8)


def _patch(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    """A region of one class of the image."""
    present = _classes(mask)
    code = rng.choice(present) if present.size else 0
    return np.where(_ellipse(mask.shape, rng), code, mask).astype(np.uint8)


def _region(mask: Codes, rng: np.random.Generator) -> tuple[Mask, int, int]:
    """A connected region, larger ones more likely, its class, and the one most common around it."""
    present = _classes(mask)
    code = int(rng.choice(present)) if present.size else 0
    numbers, count = ndimage.label(mask == code)
    if count == 0:
        return np.zeros(mask.shape, dtype=bool), code, code
    sizes = np.bincount(numbers.ravel())[1:]
    region = numbers == int(rng.choice(count, p=sizes / sizes.sum())) + 1
    ring = ndimage.binary_dilation(region, iterations=3) & ~region & (mask != VOID)
    around = mask[ring]
    return region, code, int(np.bincount(around).argmax()) if around.size else code


def _region_missing(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    region, _, around = _region(mask, rng)
    return np.where(region, around, mask).astype(np.uint8)


def _region_of_wrong_class(
    mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator
) -> Codes:
    region, _, _ = _region(mask, rng)
    return np.where(region, rng.integers(n_classes), mask).astype(np.uint8)


def _region_moved(mask: Codes, other: Codes, n_classes: int, rng: np.random.Generator) -> Codes:
    region, code, around = _region(mask, rng)
    moved = _shift(region.astype(np.uint8), 0.03, 0.2, rng, fill=0) == 1
    return np.where(moved, code, np.where(region, around, mask)).astype(np.uint8)


SEVERAL_CLASSES: tuple[Corruption, ...] = (
    _move_all,
    _merged,
    _wrong_class,
    _swapped,
    _patch,
    _region_missing,
    _region_of_wrong_class,
    _region_moved,
)
"""Errors in masks of more than two classes, all as likely."""
