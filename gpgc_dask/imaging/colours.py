"""Colours of masks: which class each stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.errors import UnusableFileError

__all__ = [
    "COLOUR_DISTANCE",
    "colour_name",
    "match_colours",
    "pack_colours",
    "unlisted_colours",
    "unpack_colours",
]

COLOUR_DISTANCE = 32
"""Largest Euclidean distance in RGB at which a colour stands for the nearest listed one."""

EXACT_DISTANCE = 8
"""Within this distance a colour is a listed one that compression has changed."""

MAX_UNLISTED, MAX_ONE = 0.1, 0.05
"""Largest share of a mask with colours that are not listed, and with one such colour."""

STRIP_PIXELS = 1 << 20
"""Pixels processed together, so that a huge mask needs little additional memory."""


def pack_colours(pixels: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """One number per colour: (..., 3) to (...)."""
    red, green, blue = (pixels[..., band].astype(np.int32) for band in range(3))
    return (red << 16) | (green << 8) | blue


def unpack_colours(packed: NDArray[np.int32]) -> NDArray[np.int32]:
    """The reverse of :func:`pack_colours`: (n,) to (n, 3)."""
    return np.stack([packed >> 16, (packed >> 8) & 255, packed & 255], axis=-1)


def colour_name(packed: int) -> str:
    """A colour as three numbers: 128,64,0."""
    return f"{packed >> 16},{(packed >> 8) & 255},{packed & 255}"


def match_colours(
    pixels: NDArray[np.uint8], colours: Sequence[tuple[int, int, int, int]], unlisted: int
) -> NDArray[np.uint16]:
    """Replace each colour by the value of the nearest listed one.

    Edges that were smoothed, and JPEG compression, make colours that are not listed. Those with a
    distance of at most ``COLOUR_DISTANCE`` are taken for the nearest listed colour, others are
    ``unlisted``.

    Parameters
    ----------
    pixels : (height, width, 3) uint8 array
        The mask.
    colours : sequence of (int, int, int, int)
        Red, green, blue and the value of each listed colour.
    unlisted : int
        Value of the pixels of other colours.

    Returns
    -------
    (height, width) uint16 array

    Raises
    ------
    UnusableFileError
        If more than ``MAX_UNLISTED`` of the pixels have other colours, or more than ``MAX_ONE``
        of them one colour that is not listed, nor a listed one changed by compression.
    """
    table = np.array(colours, dtype=np.int32)
    packed = pack_colours(table[:, :3])
    order = np.argsort(packed)
    packed, table = packed[order], table[order]
    values = np.empty(pixels.shape[:2], dtype=np.uint16)
    counts: dict[int, int] = {}
    far = 0
    step = max(STRIP_PIXELS // pixels.shape[1], 1)
    for top in range(0, len(pixels), step):
        own = pack_colours(pixels[top : top + step])
        nearest = np.minimum(np.searchsorted(packed, own), len(packed) - 1)
        strip = table[nearest, 3].astype(np.uint16)
        other = packed[nearest] != own
        if other.any():
            kinds, which, sizes = np.unique(own[other], return_inverse=True, return_counts=True)
            value, distance = _nearest(kinds, table)
            value[distance > COLOUR_DISTANCE] = unlisted
            strip[other] = value[which]
            far += int(sizes[distance > COLOUR_DISTANCE].sum())
            doubtful = distance > EXACT_DISTANCE
            for kind, size in zip(kinds[doubtful].tolist(), sizes[doubtful].tolist(), strict=True):
                counts[kind] = counts.get(kind, 0) + size
        values[top : top + step] = strip
    _check_unlisted(counts, far, values.size)
    return values


def _nearest(
    kinds: NDArray[np.int32], table: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Value of the nearest listed colour of each packed colour, and its distance."""
    best = np.full(len(kinds), np.inf)
    value = np.zeros(len(kinds), dtype=np.int32)
    for *colour, listed in table.tolist():
        distance = np.sqrt(((unpack_colours(kinds) - colour) ** 2).sum(-1))
        closer = distance < best
        best[closer], value[closer] = distance[closer], listed
    return value, best


def unlisted_colours(
    counts: Mapping[int, int], colours: Sequence[tuple[int, int, int, int]]
) -> dict[int, int]:
    """The colours that :func:`match_colours` does not take for a listed one.

    Parameters
    ----------
    counts : mapping of int to int
        Pixels of each colour, see :func:`pack_colours`.
    colours : sequence of (int, int, int, int)
        Red, green, blue and the value of each listed colour.

    Returns
    -------
    dict of int to int
        Pixels of each of them, the most frequent first.
    """
    kinds = np.array([*counts], dtype=np.int32)
    _, distance = _nearest(kinds, np.array(colours, dtype=np.int32))
    far = kinds[distance > COLOUR_DISTANCE].tolist()
    return {kind: counts[kind] for kind in sorted(far, key=lambda kind: -counts[kind])}


def _check_unlisted(counts: dict[int, int], far: int, total: int) -> None:
    """Raise an UnusableFileError if a mask has too many pixels of colours that are not listed."""
    common = sorted(counts, key=lambda kind: (-counts[kind], kind))
    one = counts[common[0]] if common else 0
    if far <= MAX_UNLISTED * total and one <= MAX_ONE * total:
        return
    shown = ", ".join(f"{colour_name(kind)} ({counts[kind] / total:.1%})" for kind in common[:3])
    raise UnusableFileError(
        f"mask holds colours that are neither classes nor void: {shown}: add them to the file of "
        "the classes (--classes)"
    )
