"""Whether an annotated object fits its photo better in another place nearby.

The outline of an object that is in its place follows edges; that of an object that was moved would
follow them better after it is moved back. The same holds for the region and the probabilities of
its class. All places within some distance are compared, by cross-correlation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.data.maps import Segments

__all__ = ["N_PLACEMENT", "Neighbours", "contrast_edges", "describe_placement", "outline_of"]

REACH = 0.15
"""Distance of the farthest place that is compared, as a share of the longest side."""

RING = 0.25
"""Width of the ring around an object, in square roots of its area."""

MIN_RING = 3
"""Smallest width of the ring, in pixels."""

MIN_SEEN = 0.5
"""Places where less than this share of the object is in the photo are left out."""

OUTLINE_SLACK, REGION_SLACK = 1, 2
"""Pixels by which right outlines, and regions, may be moved."""

REGION_WEIGHT = 0.5
"""Weight of the region, next to that of the outline."""

N_PLACEMENT = 6
"""Length of descriptions."""

Maps = NDArray[np.float32]


@dataclass(frozen=True)
class Neighbours:
    """The other annotations of a photo: their pixels (h, w), and those of their outlines."""

    inside: Mask
    outlines: Mask


def outline_of(inside: Mask) -> Mask:
    """Pixels of a region that touch others; all if the region covers the photo."""
    outline = inside & ~ndimage.binary_erosion(inside, border_value=1)
    return outline if outline.any() else inside


def contrast_edges(segments: Segments, values: Array) -> Array:
    """How much superpixels differ on both sides of each pixel.

    Parameters
    ----------
    segments : (h, w) array of uint16
        Superpixel of each pixel.
    values : (n, d) array
        What is compared.

    Returns
    -------
    (h, w) array
        From 0 to 1: the distance of the values of two adjacent superpixels at their border, half of
        it next to the border, divided by the largest one of the photo.
    """
    edges = np.zeros(segments.shape)
    for axis in (0, 1):
        turned, target = (each if axis == 0 else each.T for each in (segments, edges))
        first, second = turned[:-1], turned[1:]
        differs = first != second
        distance = np.zeros(first.shape)
        difference = values[first[differs]] - values[second[differs]]
        distance[differs] = np.sqrt((difference**2).sum(1))
        target[1:] = np.maximum(target[1:], distance)
        target[:-1] = np.maximum(target[:-1], distance)
    edges = np.maximum(edges, 0.5 * ndimage.maximum_filter(edges, 3))
    return np.asarray(edges / max(float(edges.max()), 1e-9))


def describe_placement(
    inside: Mask, visible: Mask, maps: tuple[Array, Array, Array], neighbours: Neighbours
) -> list[float]:
    """Describe how much better an object would fit elsewhere.

    Parameters
    ----------
    inside, visible : (h, w) array of bool
        Pixels of the object, and those by which it is judged.
    maps : tuple of three (h, w) arrays
        Outlines of superpixels, their contrast, and P of the object's class.
    neighbours : Neighbours
        Their outlines count as edges, and their pixels not as places for this object.

    Returns
    -------
    list of float
        How much the best place is above the given one, in standard deviations over all places: of
        the outline on edges, of the outline on edges of contrast, of P in the object minus P around
        it, and of the last two together. Then the distance of the best place of the last one, in
        square roots of the object's area, and the overlap with the neighbours, as a share.
    """
    edges, contrast, p = maps
    reach = max(round(REACH * max(inside.shape)), MIN_RING)
    root = float(np.sqrt(inside.sum()))
    width = max(int(RING * root), MIN_RING)
    box = _box(inside, width)
    body = _crop(inside, box) > 0
    ring = (ndimage.distance_transform_cdt(~body) <= width) & ~body
    parts = [_crop(outline_of(inside), box), _crop(visible, box), ring]
    strong = np.maximum(contrast, 0.5 * neighbours.outlines)
    free = np.where(neighbours.inside, 0.0, p)
    fit = _correlate([edges, strong, free], parts, box, reach)
    around = np.where(np.isfinite(fit[2, 2]), fit[2, 2], 0.0)
    plain, outline, region = (
        _standardised(each, reach) for each in (fit[0, 0], fit[0, 1], fit[1, 2] - around)
    )
    together = outline + REGION_WEIGHT * region
    best = int(np.nanargmax(together))
    return [
        _gain(plain, OUTLINE_SLACK),
        _gain(outline, OUTLINE_SLACK),
        _gain(region, REGION_SLACK),
        _gain(_standardised(together, reach), REGION_SLACK),
        float(_distances(reach).ravel()[best]) / root,
        float((inside & neighbours.inside).sum()) / root**2,
    ]


def _box(inside: Mask, width: int) -> tuple[int, int, int, int]:
    """First and last row, first and last column of an object and the ring around it."""
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    first, last = rows[0] - width, rows[-1] + 1 + width
    return int(first), int(last), int(columns[0] - width), int(columns[-1] + 1 + width)


def _crop(values: Array | Mask, box: tuple[int, int, int, int]) -> Maps:
    """A part of a map; 0 where the box is not in the photo."""
    top, bottom, left, right = box
    height, width = values.shape
    result = np.zeros((bottom - top, right - left), dtype=np.float32)
    rows, columns = (max(top, 0), min(bottom, height)), (max(left, 0), min(right, width))
    result[slice(*np.subtract(rows, top)), slice(*np.subtract(columns, left))] = values[
        slice(*rows), slice(*columns)
    ]
    return result


def _correlate(
    maps: list[Array], parts: list[Maps | Mask], box: tuple[int, int, int, int], reach: int
) -> Array:
    """Means of maps over parts of an object, in all places.

    Returns
    -------
    (parts, maps, 2 reach + 1, 2 reach + 1) array
        NaN where too little of the part is in the photo.
    """
    top, bottom, left, right = box
    wide = (top - reach, bottom + reach, left - reach, right + reach)
    shape = tuple(fft.next_fast_len(wide[k + 1] - wide[k], real=True) for k in (0, 2))
    cropped = np.stack([_crop(each, wide) for each in (np.ones(maps[0].shape), *maps)])
    drawn = np.stack([np.asarray(part, dtype=np.float32) for part in parts])
    product = np.conj(fft.rfft2(drawn, shape))[:, None] * fft.rfft2(cropped, shape)[None]
    sums = fft.irfft2(product, shape)[..., : 2 * reach + 1, : 2 * reach + 1]
    seen = sums[:, :1]
    enough = seen >= np.maximum(MIN_SEEN * drawn.sum((1, 2)) - 0.5, 0.5)[:, None, None, None]
    return np.where(enough, sums[:, 1:] / np.maximum(seen, 1.0), np.nan)


@lru_cache(maxsize=8)
def _distances(reach: int) -> Array:
    """Distances of all places from the given one."""
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    return np.hypot(rows, columns)


def _standardised(fit: Array, reach: int) -> Array:
    """Values within reach, in standard deviations from their mean; NaN elsewhere."""
    known = np.isfinite(fit) & (_distances(reach) <= reach)
    known[reach, reach] = True
    fit = np.where(np.isfinite(fit), fit, 0.0)
    spread = max(float(fit[known].std()), 1e-6)
    return np.where(known, (fit - fit[known].mean()) / spread, np.nan)


def _gain(fit: Array, slack: int) -> float:
    """How much the best place is above the best one within some pixels of the given one."""
    reach = len(fit) // 2
    near = slice(reach - slack, reach + slack + 1)
    return float(np.nanmax(fit) - np.nanmax(fit[near, near]))
