"""Regions of pixels as text: run lengths, compressed as COCO's ``counts``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpgc_dask.core.arrays import Index, Mask
from gpgc_dask.core.errors import InputError

__all__ = ["check_counts", "decode", "encode", "fill_runs"]

FIRST = 48
"""Code of the character that stands for 0."""

BITS, MORE, SIGN = 5, 0x20, 0x10
"""Bits of a number per character, the bit that is set if more follow, and the one of the sign."""

MAX_CHARACTERS = 7
"""Characters per number: 35 bits are more than any photo has pixels."""


def encode(mask: Mask) -> str:
    """Encode a region.

    Parameters
    ----------
    mask : (height, width) array of bool
        Where the region is.

    Returns
    -------
    str
        Run lengths by columns, outside first, in the encoding of pycocotools.

    Examples
    --------
    >>> encode(np.array([[False, True], [True, True]]))
    '13'
    """
    flat = mask.ravel(order="F")
    bounds = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1]))
    lengths = np.diff(bounds, prepend=0).astype(np.int64)
    lengths[3:] -= lengths[1:-2].copy()  # of the run before the last one
    characters = []
    for number in lengths.tolist():
        more = True
        while more:
            low = number & 0x1F
            number >>= BITS
            more = number != (-1 if low & SIGN else 0)
            characters.append(FIRST + (low | MORE if more else low))
    return bytes(characters).decode("ascii")


def decode(counts: str, height: int, width: int) -> Mask:
    """Decode a region; the inverse of :func:`encode`.

    Raises
    ------
    InputError
        If the text is not that of a region of this size.
    """
    return fill_runs(check_counts(counts, height, width), height, width)


def check_counts(counts: str | Sequence[int], height: int, width: int) -> Index:
    """Lengths of the runs of COCO's ``counts``, compressed or not, outside first.

    Raises
    ------
    InputError
        If they are not those of a region of this size.
    """
    if isinstance(counts, str):
        return _check_lengths(_run_lengths(counts), height, width)
    try:
        return _check_lengths(np.array(counts, dtype=np.int64), height, width)
    except (TypeError, ValueError, OverflowError):
        raise InputError("run lengths are unreadable") from None


def _check_lengths(lengths: Index, height: int, width: int) -> Index:
    """The lengths of runs; an InputError if they do not sum up to the pixels."""
    pixels = height * width
    single = lengths.ndim == 1 and lengths.min(initial=0) >= 0 and lengths.max(initial=0) <= pixels
    if not single or lengths.sum() != pixels:
        raise InputError(f"run lengths are not those of {height}×{width} pixels")
    return lengths


def fill_runs(lengths: Index, height: int, width: int) -> Mask:
    """Pixels (height, width) of checked run lengths by columns."""
    values = np.arange(lengths.size) % 2 == 1
    return np.repeat(values, lengths).reshape(width, height).T


def _run_lengths(counts: str) -> Index:
    """Lengths of the runs, outside first."""
    codes = np.frombuffer(counts.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
    codes -= FIRST
    if not codes.size or codes.min() < 0 or codes.max() >= 2 * MORE or codes[-1] & MORE:
        raise InputError("run lengths are unreadable")
    last = np.flatnonzero(codes & MORE == 0)
    first = np.concatenate([[0], last[:-1] + 1])
    size = last - first + 1
    if size.max() > MAX_CHARACTERS:
        raise InputError("run lengths are unreadable")
    shift = BITS * (np.arange(codes.size) - np.repeat(first, size))
    numbers = np.add.reduceat((codes & 0x1F) << shift, first)
    numbers -= np.where(codes[last] & SIGN, 1 << (BITS * size), 0)
    # Every number from the fourth on is relative to the one before the last.
    for start in (1, 2):
        numbers[start::2] = np.cumsum(numbers[start::2])
    return numbers
