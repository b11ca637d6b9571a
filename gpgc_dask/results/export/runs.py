"""Masks as run lengths, in the ways of Label Studio and of CVAT."""

from __future__ import annotations

import numpy as np

from gpgc_dask.core.arrays import Index, Mask

__all__ = ["boxed_runs", "brush_bytes", "run_lengths"]

CHANNELS = 4
"""Label Studio's masks are pictures of red, green, blue and alpha."""

SIZES = np.array([3, 4, 8, 16])
"""Bits that the length of a run may have."""


def run_lengths(flat: Mask) -> Index:
    """Lengths of the runs of a flat mask in turn, False first: where it begins with True, 0."""
    bounds = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1]))
    return np.diff(bounds, prepend=0)


def boxed_runs(mask: Mask) -> tuple[list[int], tuple[int, int, int, int]]:
    """(run lengths, outside first, row by row, within a box; its left, top, width and height).

    The box is the smallest that holds the mask, which must not be empty.
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    top, left = int(rows[0]), int(columns[0])
    height, width = int(rows[-1]) + 1 - top, int(columns[-1]) + 1 - left
    box = mask[top : top + height, left : left + width]
    return run_lengths(box.ravel()).tolist(), (left, top, width, height)


def brush_bytes(mask: Mask) -> list[int]:
    """A mask as Label Studio's brush has it: rle-pack of its RGBA picture, 0 or 255, as bytes.

    A bit stream: the number of values (32 bits), their size less 1 (5 bits), four sizes of lengths
    less 1 (4 bits each); then of each run a 1, which of the sizes (2 bits), its length less 1 and
    its value.
    """
    lengths = CHANNELS * run_lengths(mask.ravel())
    values = np.where(np.arange(lengths.size) % 2, 255, 0)
    longest = 1 << SIZES[-1]
    pieces = -(-lengths // longest)  # none of a run of nothing
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
    """The bits of numbers that are so many bits wide each, one after the other."""
    aligned = (codes.astype(np.uint64) << (32 - width).astype(np.uint64)).astype(">u4")
    bits = np.unpackbits(aligned.view(np.uint8).reshape(-1, 4), axis=1)
    return bits[np.arange(32) < width[:, None]].astype(bool)
