"""Outlines of regions as polygons."""

from __future__ import annotations

import numpy as np
from skimage.measure import approximate_polygon, find_contours

from gpgc_dask.core.arrays import Mask

__all__ = ["outline"]

TOLERANCE = 0.7
"""Largest distance in pixels of the region's map between polygon and outline."""

MAX_POLYGONS = 20


def outline(inside: Mask, scale: tuple[float, float]) -> list[list[float]]:
    """Outline of a region.

    Parameters
    ----------
    inside : (h, w) array of bool
        Its pixels.
    scale : tuple of float
        Pixels of the photo per pixel of the map, down and across.

    Returns
    -------
    list of list of float
        Polygons x, y, x, y, … in pixels of the photo, of at least three points, the largest first;
        holes are not cut out.

    Examples
    --------
    >>> outline(np.ones((20, 40), dtype=bool), (10.0, 10.0))
    [[395.0, 200.0, 5.0, 200.0, 0.0, 5.0, 395.0, 0.0]]
    """
    height, width = inside.shape
    polygons = []
    for contour in find_contours(np.pad(inside, 1).astype(float), 0.5, positive_orientation="low"):
        area = _signed_area(contour)
        points = approximate_polygon(contour, TOLERANCE)[:-1]
        if area <= 0 or len(points) < 3:
            continue  # a hole
        # Centres of pixels have whole coordinates here, and halves in the photo.
        rows = np.clip(points[:, 0] - 0.5, 0, height) * scale[0]
        columns = np.clip(points[:, 1] - 0.5, 0, width) * scale[1]
        flat = np.column_stack([columns, rows]).round(1).ravel().tolist()
        polygons.append((area, flat))
    polygons.sort(key=lambda each: -each[0])
    return [flat for _, flat in polygons[:MAX_POLYGONS]]


def _signed_area(contour: np.ndarray) -> float:
    y, x = contour[:, 0], contour[:, 1]
    return float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) / 2)
