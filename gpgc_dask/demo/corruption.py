"""Ways in which annotators and tools corrupt masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError

__all__ = ["CORRUPTIONS", "WRONG", "corrupt_mask", "overlap"]

WRONG = 0.5
"""A mask is wrong if its intersection over union with the true mask is below this."""

ATTEMPTS = 20


class _Case(NamedTuple):
    """Input of a corruption; ``strength`` is 0 … 1, or more if that was not enough."""

    mask: Mask
    other: Mask
    other_masks: Sequence[Mask]
    rng: np.random.Generator
    strength: float


def corrupt_mask(
    kind: str, mask: Mask, other: Mask, other_masks: Sequence[Mask], rng: np.random.Generator
) -> Mask:
    """Corrupt a mask so that its overlap with the true one is below ``WRONG``.

    Parameters
    ----------
    kind : str
        One of ``CORRUPTIONS``.
    mask : (height, width) array of bool
        The true mask.
    other : (height, width) array of bool
        Mask of another thing in the photo.
    other_masks : sequence of (height, width) array of bool
        Masks of other photos.
    rng : numpy.random.Generator

    Returns
    -------
    (height, width) array of bool

    Notes
    -----
    The strength is random. If the result is nearly right, further attempts are stronger.
    """
    strength = rng.uniform()
    for _ in range(ATTEMPTS):
        corrupted = CORRUPTIONS[kind](_Case(mask, other, other_masks, rng, strength))
        if overlap(corrupted, mask) < WRONG:
            return corrupted
        strength += 0.25
    raise InputError(f"{ATTEMPTS} attempts at a mask of kind {kind!r} were all nearly right")


def overlap(first: Mask, second: Mask) -> float:
    """Intersection over union of two masks.

    Parameters
    ----------
    first, second : (height, width) array of bool

    Returns
    -------
    float
        1 if both masks are empty.
    """
    union = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / union if union else 1.0


def _shifted(case: _Case) -> Mask:
    """The mask moved by 0.2 … 0.45 of its size."""
    return _move(case.mask, 0.2 + 0.25 * case.strength, case.rng)


def _dilated(case: _Case) -> Mask:
    """The mask grown by 0.06 … 0.12 of the shorter side of the picture."""
    radius = (0.06 + 0.06 * case.strength) * min(case.mask.shape)
    return ndimage.distance_transform_edt(~case.mask) <= radius


def _box(case: _Case) -> Mask:
    """The bounding box of the mask, enlarged by up to 0.15 of its size on each side."""
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
    """The mask of another photo; moved after several attempts that were nearly right."""
    if not case.other_masks:
        raise InputError("a mask can be left over from another photo only, and there is none")
    mask = case.other_masks[int(case.rng.integers(len(case.other_masks)))]
    return _move(mask, 0.1 * (case.strength - 2), case.rng) if case.strength > 2 else mask.copy()


CORRUPTIONS: dict[str, Callable[[_Case], Mask]] = {
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


def _move(mask: Mask, share: float, rng: np.random.Generator) -> Mask:
    """A mask moved by a share of its size in a random direction, cut off at the picture."""
    rows, columns = _spans(mask)
    angle = rng.uniform(0, 2 * np.pi)
    down = round(share * np.sin(angle) * (rows.stop - rows.start))
    right = round(share * np.cos(angle) * (columns.stop - columns.start))
    return ndimage.shift(mask.astype(np.uint8), (down, right), order=0) > 0
