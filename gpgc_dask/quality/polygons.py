"""Outlines of regions as polygons."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from skimage.measure import find_contours

from gpgc_dask.core.arrays import Array, Index, Mask

__all__ = ["outlines", "simplify"]

TOLERANCE = 0.7
"""Largest distance in pixels of the region's map between polygon and outline."""

MAX_POLYGONS = 20


def outlines(
    regions: Iterable[Mask], scales: Iterable[tuple[float, float]]
) -> list[list[list[float]]]:
    """Outlines of many regions: all at once, as there are many of few points.

    Parameters
    ----------
    regions : iterable of (h, w) array of bool
        Pixels of each region.
    scales : iterable of tuple of float
        Pixels of the region's photo per pixel of its map, down and across.

    Returns
    -------
    list of list of list of float
        Of each region, polygons x, y, x, y, … in pixels of the photo, of at least three points, the
        largest first; holes are not cut out.

    Examples
    --------
    >>> outlines([np.ones((20, 40), dtype=bool)], [(10.0, 10.0)])
    [[[395.0, 200.0, 5.0, 200.0, 0.0, 5.0, 395.0, 0.0]]]
    """
    shapes, contours, owners, areas = [], [], [], []
    for number, inside in enumerate(regions):
        shapes.append(inside.shape)
        for contour in _contours(inside):
            area = _signed_area(contour)
            if area > 0:  # others are holes
                contours.append(contour)
                owners.append(number)
                areas.append(area)
    found: list[list[tuple[float, list[float]]]] = [[] for _ in shapes]
    factors = list(scales)
    for points, owner, area in zip(simplify(contours, TOLERANCE), owners, areas, strict=True):
        ring = points[:-1]
        if len(ring) < 3:
            continue
        height, width = shapes[owner]
        # Centres of pixels have whole coordinates here, and halves in the photo.
        rows = np.clip(ring[:, 0] - 0.5, 0, height) * factors[owner][0]
        columns = np.clip(ring[:, 1] - 0.5, 0, width) * factors[owner][1]
        found[owner].append((area, np.column_stack([columns, rows]).round(1).ravel().tolist()))
    for polygons in found:
        polygons.sort(key=lambda each: -each[0])
    return [[flat for _, flat in polygons[:MAX_POLYGONS]] for polygons in found]


def _contours(inside: Mask) -> list[Array]:
    """Closed chains of points around a region, clockwise, and around its holes, the other way.

    Coordinates are those of a map with one more pixel on each side.
    """
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not rows.size:
        return []
    part = inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    first = np.array([rows[0], columns[0]], dtype=float)
    found = find_contours(np.pad(part, 1).astype(float), 0.5, positive_orientation="low")
    return [contour + first for contour in found]


def _signed_area(contour: Array) -> float:
    y, x = contour[:, 0], contour[:, 1]
    return float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) / 2)


def simplify(chains: list[Array], tolerance: float) -> list[Array]:
    """Leave out points of chains that are near the line between others, by Douglas and Peucker.

    The result is that of scikit-image's ``approximate_polygon`` for each chain. All chains are
    processed together: each step divides all segments of all chains that are too far from their
    points.

    Parameters
    ----------
    chains : list of (n, 2) array
        Points of each chain.
    tolerance : float
        Largest distance of the points from the simplified chain.

    Returns
    -------
    list of (m, 2) array
    """
    if not chains:
        return []
    points = np.concatenate(chains)
    ends = np.cumsum([len(chain) for chain in chains])
    start, end = ends - [len(chain) for chain in chains], ends - 1
    kept = np.zeros(len(points), dtype=bool)
    kept[start] = kept[end] = True
    while True:
        inner = end - start > 1
        start, end = start[inner], end[inner]
        if not start.size:
            break
        far, distance = _farthest(points, start, end)
        divided = distance > tolerance
        start, far, end = start[divided], far[divided], end[divided]
        kept[far] = True
        start, end = np.concatenate([start, far]), np.concatenate([far, end])
    return [part[own] for part, own in zip(chains, np.split(kept, ends[:-1]), strict=True)]


def _farthest(points: Array, start: Index, end: Index) -> tuple[Index, Array]:
    """The point between the ends of each segment that is farthest from it, and its distance."""
    first, last = points[start], points[end]
    along = last - first
    angle = -np.arctan2(along[:, 0], along[:, 1])
    sine, cosine = np.sin(angle), np.cos(angle)
    offset = first[:, 1] * sine + first[:, 0] * cosine
    size = end - start - 1
    bounds = np.cumsum(size) - size
    segment = np.repeat(np.arange(size.size), size)
    place = np.arange(segment.size) + (start + 1 - bounds)[segment]
    own = points[place]
    before, after, line = own - first[segment], own - last[segment], along[segment]
    beside = (before * line).sum(1) > 0
    beside &= (after * line).sum(1) < 0
    distance = np.where(
        beside,
        np.abs(own[:, 0] * cosine[segment] + own[:, 1] * sine[segment] - offset[segment]),
        np.sqrt(np.minimum((before**2).sum(1), (after**2).sum(1))),
    )
    largest = np.maximum.reduceat(distance, bounds)
    places = np.where(distance == largest[segment], place, len(points))
    return np.minimum.reduceat(places, bounds), largest
