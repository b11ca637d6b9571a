"""The ways in which people and tools spoil masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError

__all__ = ["SPOILERS", "WRONG", "overlap", "spoil"]

WRONG = 0.5
"""Intersection over union with the true mask below which anybody would call a mask wrong."""

ATTEMPTS = 20


class _Case(NamedTuple):
    """What a mask is spoilt with. ``strength``: 0 … 1, more where that was not enough."""

    mask: Mask
    other: Mask
    strangers: Sequence[Mask]
    rng: np.random.Generator
    strength: float


def spoil(
    kind: str, mask: Mask, other: Mask, strangers: Sequence[Mask], rng: np.random.Generator
) -> Mask:
    """(h, w) a mask spoilt in one of the ways in ``SPOILERS``, its overlap below ``WRONG``.

    other : (h, w) mask of another thing in the photo;  strangers : (h, w) masks of other photos

    Strengths vary; where the outcome is nearly right, another is tried, and a stronger one.
    """
    strength = rng.uniform()
    for _ in range(ATTEMPTS):
        spoilt = SPOILERS[kind](_Case(mask, other, strangers, rng, strength))
        if overlap(spoilt, mask) < WRONG:
            return spoilt
        strength += 0.25
    raise InputError(f"{ATTEMPTS} attempts at a mask of kind {kind!r} were all nearly right")


def overlap(first: Mask, second: Mask) -> float:
    """Intersection over union of two masks (h, w); 1 where both are empty."""
    union = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / union if union else 1.0


def _shifted(case: _Case) -> Mask:
    """Moved by 0.2 … 0.45 of the object's size."""
    return _moved(case.mask, 0.2 + 0.25 * case.strength, case.rng)


def _dilated(case: _Case) -> Mask:
    """Grown by 0.06 … 0.12 of the picture's shorter side."""
    radius = (0.06 + 0.06 * case.strength) * min(case.mask.shape)
    return ndimage.distance_transform_edt(~case.mask) <= radius


def _box(case: _Case) -> Mask:
    """The object's bounding box, on each side up to 0.15 of its size too large."""
    spans = []
    for span in _spans(case.mask):
        before, after = case.rng.uniform(0, 0.15 * case.strength, 2) * (span.stop - span.start)
        spans.append(slice(max(span.start - round(before), 0), span.stop + round(after)))
    box = np.zeros_like(case.mask)
    box[tuple(spans)] = True
    return box


def _wrong_object(case: _Case) -> Mask:
    return case.other.copy()


def _empty(case: _Case) -> Mask:
    return np.zeros_like(case.mask)


def _left_over(case: _Case) -> Mask:
    """Another photo's mask; moved too, after several that were nearly right."""
    if not case.strangers:
        raise InputError("a mask can only be left over from another photo, and there is none")
    mask = case.strangers[int(case.rng.integers(len(case.strangers)))]
    return _moved(mask, 0.1 * (case.strength - 2), case.rng) if case.strength > 2 else mask.copy()


SPOILERS: dict[str, Callable[[_Case], Mask]] = {
    "shifted": _shifted,
    "dilated": _dilated,
    "box": _box,
    "wrong object": _wrong_object,
    "empty": _empty,
    "left over": _left_over,
}


def _spans(mask: Mask) -> tuple[slice, slice]:
    """Rows and columns of the bounding box."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def _moved(mask: Mask, share: float, rng: np.random.Generator) -> Mask:
    """Moved by a share of its size in some direction; what leaves the picture is lost."""
    rows, columns = _spans(mask)
    angle = rng.uniform(0, 2 * np.pi)
    down = round(share * np.sin(angle) * (rows.stop - rows.start))
    right = round(share * np.cos(angle) * (columns.stop - columns.start))
    return ndimage.shift(mask.astype(np.uint8), (down, right), order=0) > 0
