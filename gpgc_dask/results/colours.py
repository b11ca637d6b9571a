"""Colours of classes and of differences, for the report and for notebooks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from skimage.color import rgb2lab

from gpgc_dask.core.arrays import Array

__all__ = ["BACKGROUND", "KIND_COLOURS", "Colour", "class_colours"]

Colour = tuple[int, int, int]

KIND_COLOURS: dict[str, Colour] = {
    "spurious": (255, 140, 0),
    "missing": (0, 163, 224),
    "wrong class": (255, 43, 214),
    "given": (250, 240, 120),
}
"""Colours of differences and of outlines. Of two classes, the given mask has the colour of
"spurious", because that is where only the given mask has the object, and the predicted mask that of
"missing"."""

BACKGROUND: Colour = (44, 48, 84)
"""The background of several classes: dark, so that the objects stand out."""

FIRST: tuple[Colour, ...] = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (204, 121, 167), (0, 114, 178), (240, 228, 66),
    (213, 94, 0),
)  # fmt: skip
"""The palette of Okabe and Ito (2008), which people with any colour vision can distinguish."""

LEVELS = 9
"""Number of values of red, green and blue of the colours that continue the palette."""

LIGHTNESS, MIN_CHROMA = (35, 92), 28
"""Limits of these colours in CIELAB: neither black nor white, nor grey like void."""

DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
"""Linear RGB as it is seen without green-sensitive cones (Machado et al. 2009)."""


@lru_cache
def class_colours(n: int, background: int = -1) -> tuple[Colour, ...]:
    """Colours of n classes.

    The colour of a class depends on its number and on the background only. The palette of Okabe and
    Ito comes first. Each further colour is the one that differs most from all before it, both for
    normal vision and without green-sensitive cones.

    Parameters
    ----------
    n : int
        Number of classes.
    background : int, default -1
        Number of the class without objects, which is dark; -1 for none.

    Returns
    -------
    tuple of (red, green, blue)

    Examples
    --------
    >>> class_colours(3)
    ((230, 159, 0), (86, 180, 233), (0, 158, 115))
    >>> class_colours(3, background=0)[1:] == class_colours(2)
    True
    """
    colours = list(_palette(n))
    if 0 <= background < n:
        colours.insert(background, BACKGROUND)
    return tuple(colours[:n])


@lru_cache
def _palette(n: int) -> tuple[Colour, ...]:
    if n <= len(FIRST):
        return FIRST[:n]
    levels = np.linspace(0, 255, LEVELS).round().astype(int)
    candidates = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3)
    lab = _appearance(candidates)[:, :3]
    usable = (lab[:, 0] >= LIGHTNESS[0]) & (lab[:, 0] <= LIGHTNESS[1])
    usable &= np.hypot(lab[:, 1], lab[:, 2]) >= MIN_CHROMA
    candidates = candidates[usable]
    seen, palette = _appearance(candidates), np.array([*FIRST, BACKGROUND])
    nearest = _distances(seen, _appearance(palette)).min(1)
    colours = list(FIRST)
    while len(colours) < n:
        best = int(nearest.argmax())
        if nearest[best] <= 0:  # all are used: begin again
            colours += colours[: n - len(colours)]
            break
        colours.append(tuple(candidates[best].tolist()))
        nearest = np.minimum(nearest, _distances(seen, seen[best : best + 1])[:, 0])
    return tuple(colours)


def _appearance(colours: Array) -> Array:
    """(n, 6) CIELAB coordinates, for normal vision and without green-sensitive cones."""
    rgb = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    reduced = np.clip(linear @ DEUTERANOPIA.T, 0, 1)
    reduced = np.where(reduced <= 0.0031308, 12.92 * reduced, 1.055 * reduced ** (1 / 2.4) - 0.055)
    seen: Array = np.concatenate([rgb2lab(rgb[None])[0], rgb2lab(reduced[None])[0]], axis=1)
    return seen


def _distances(one: Array, other: Array) -> Array:
    """(n, m) distances for the kind of vision for which two colours are more alike."""
    apart = one[:, None] - other[None]
    normal, reduced = (np.linalg.norm(part, axis=2) for part in np.split(apart, 2, axis=2))
    distances: Array = np.minimum(normal, reduced)
    return distances
