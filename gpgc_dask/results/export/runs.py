"""Masks as run lengths, in the encodings of Label Studio and CVAT."""

from __future__ import annotations

import numpy as np

from gpgc_dask.core.arrays import Index, Mask

__all__ = ["boxed_runs", "brush_bytes", "run_lengths"]

CHANNELS = 4
"""Label Studio's masks are pictures of red, green, blue and alpha."""

SIZES = np.array([3, 4, 8, 16])
"""Numbers of bits in which the length of a run can be stored."""


def run_lengths(flat: Mask) -> Index:
    """Lengths of the runs of equal values in a flat mask.

    Parameters
    ----------
    flat : (n,) array of bool

    Returns
    -------
    (runs,) array of int
        Runs of False and True alternate, False first: 0 if the mask begins with True.
    """
    bounds = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1]))
    return np.diff(bounds, prepend=0)


def boxed_runs(mask: Mask) -> tuple[list[int], tuple[int, int, int, int]]:
    """Run lengths of a mask within its bounding box, as CVAT stores them.

    Parameters
    ----------
    mask : (height, width) array of bool
        Must not be empty.

    Returns
    -------
    lengths : list of int
        Run lengths within the box, row by row, outside first.
    box : tuple of int
        Left, top, width and height of the bounding box.
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    top, left = int(rows[0]), int(columns[0])
    height, width = int(rows[-1]) + 1 - top, int(columns[-1]) + 1 - left
    box = mask[top : top + height, left : left + width]
    return run_lengths(box.ravel()).tolist(), (left, top, width, height)


def brush_bytes(mask: Mask) -> list[int]:
    """Encode a mask as Label Studio's brush: rle-pack of its RGBA picture of 0 and 255.

    Parameters
    ----------
    mask : (height, width) array of bool

    Returns
    -------
    list of int
        The bytes of the encoding.

    Notes
    -----
    The encoding is a bit stream: the number of values (32 bits), the size of a value minus 1
    (5 bits), four sizes of lengths minus 1 (4 bits each); then for each run a 1, the index of its
    size (2 bits), its length minus 1 and its value.
    """
    lengths = CHANNELS * run_lengths(mask.ravel())
    values = np.where(np.arange(lengths.size) % 2, 255, 0)
    longest = 1 << SIZES[-1]
    pieces = -(-lengths // longest)  # an empty run has no pieces
    parts = np.full(pieces.sum(), longest)
    last = np.cumsum(pieces)[pieces > 0] - 1
    parts[last] = (lengths[pieces > 0] - 1) % longest + 1
    kind = np.searchsorted(1 << SIZES[:-1], parts)
    width = 11 + SIZES[kind]
    codes = ((4 | kind) << SIZES[kind] | (parts - 1)) << 8 | np.repeat(values, pieces)
    header = [(CHANNELS * mask.size, 32), (8 - 1, 5), *((size - 1, 4) for size in SIZES)]
    bits = np.concatenate(
        [
            _bits(np.array([code for code, _ in header]), np.array([n for _, n in header])),
            _bits(codes, width),
        ]
    )
    return np.packbits(bits).tolist()


def _bits(codes: Index, width: Index) -> Mask:
    """Concatenated bits of numbers, each ``width`` bits wide."""
    aligned = (codes.astype(np.uint64) << (32 - width).astype(np.uint64)).astype(">u4")
    bits = np.unpackbits(aligned.view(np.uint8).reshape(-1, 4), axis=1)
    return bits[np.arange(32) < width[:, None]].astype(bool)
