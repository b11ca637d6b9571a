"""SLIC superpixels by two scales: k-means on a sample of the pixels, then exact borders.

The time of SLIC is proportional to pixels times iterations. A few pixels per superpixel are enough
to find the clusters; only the pixels at borders need the full resolution, once.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.color import rgb2lab
from skimage.segmentation import slic

from gpgc_dask.core.arrays import Index, nearest_rows
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Segments", "segment"]

Segments = NDArray[np.uint16]
"""Map of superpixel numbers."""

Colours = NDArray[np.float32]

SAMPLED_SIDE = 5
"""Side of a superpixel in the sample, in pixels, before the first iteration."""

ITERATIONS, FULL_ITERATIONS = 5, 10
"""Iterations of k-means on the sample; on images that are not larger than the sample would be."""


def segment(pixels: Pixels, n_segments: int, compactness: float, sigma: float) -> Segments:
    """Compute SLIC superpixels.

    Parameters
    ----------
    pixels : (h, w, 3) uint8 array
        The image in RGB.
    n_segments : int
        Approximate number of superpixels.
    compactness, sigma : float
        Parameters of SLIC.

    Returns
    -------
    (h, w) uint16 array
        Number of each pixel's superpixel, 0 … n−1 without gaps.
    """
    h, w = pixels.shape[:2]
    if min(h, w) < 2 or h * w < 16:
        raise UnusableFileError(f"only {w}×{h} pixels: too small to have superpixels")
    colours = _smooth_colours(pixels, sigma)
    n_segments = min(n_segments, h * w // 4)
    grid = _choose_grid(h, w, n_segments)
    sampled = [n * SAMPLED_SIDE for n in grid]
    if sampled[0] >= h or sampled[1] >= w:
        return _number(_cluster(colours, n_segments, compactness, FULL_ITERATIONS))
    rows, columns = nearest_rows(sampled[0], h), nearest_rows(sampled[1], w)
    sample = colours[rows[:, None], columns]
    labels = _cluster(sample, math.prod(grid), compactness, ITERATIONS)
    space = compactness / math.sqrt(h * w / n_segments)
    centres = _centres(sample, labels, rows * space, columns * space)
    large = labels[nearest_rows(h, sampled[0])[:, None], nearest_rows(w, sampled[1])]
    return _number(_sharpen(colours, large, centres, space))


def _choose_grid(h: int, w: int, n: int) -> tuple[int, ...]:
    """Rows and columns of about n nearly square cells, in number as near to n as possible."""
    side = math.sqrt(h * w / n)
    choices = product(
        *({max(f(size / side), 1) for f in (math.floor, math.ceil)} for size in (h, w))
    )
    return min(choices, key=lambda grid: (abs(math.prod(grid) - n), grid))


def _smooth_colours(pixels: Pixels, sigma: float) -> Colours:
    """(h, w, 3) CIELAB colours after stretching the contrast, smoothed."""
    low, high = int(pixels.min()), int(pixels.max())
    stretched = (pixels - np.float32(low)) / np.float32(max(high - low, 1))
    return gaussian_filter(rgb2lab(stretched), (sigma, sigma, 0))


def _cluster(colours: Colours, n_segments: int, compactness: float, iterations: int) -> Index:
    """(h, w) connected clusters of colour and place."""
    span = float(np.ptp(colours)) or 1.0  # slic divides colours by it
    return slic(
        colours,
        n_segments=n_segments,
        compactness=compactness / span,
        max_num_iter=iterations,
        sigma=0,
        convert2lab=False,
        start_label=0,
        channel_axis=-1,
    )


def _centres(sample: Colours, labels: Index, y: Any, x: Any) -> Colours:
    """(n, 5) mean colour and place of each superpixel; y and x are those of rows and columns."""
    flat = labels.ravel()
    area = np.maximum(np.bincount(flat), 1)
    places = np.broadcast_arrays(y[:, None], x)
    values = [*np.moveaxis(sample, -1, 0), *places]
    sums = [np.bincount(flat, weights=value.ravel()) / area for value in values]
    return np.stack(sums, axis=1).astype(np.float32)


def _sharpen(colours: Colours, labels: Index, centres: Colours, space: float) -> Index:
    """Give the pixels at borders to the nearest of the superpixels that meet there.

    Parameters
    ----------
    colours : (h, w, 3) array
        Colours.
    labels : (h, w) array
        Superpixels.
    centres : (n, 5) array
        Colour and place, times ``space``, of each superpixel.
    space : float
        Scale of places.

    Returns
    -------
    (h, w) array of int
    """
    padded = np.pad(labels, 1, mode="edge")
    border = (labels != padded[:-2, 1:-1]) | (labels != padded[2:, 1:-1])
    border |= (labels != padded[1:-1, :-2]) | (labels != padded[1:-1, 2:])
    y, x = np.nonzero(border)
    stride = padded.shape[1]
    place = (y + 1) * stride + x + 1
    candidates = padded.ravel()[place + np.array([0, -stride, stride, -1, 1])[:, None]]
    points = [*colours[y, x].T, y * np.float32(space), x * np.float32(space)]
    # ½|x − c|² without the part that is the same for all candidates of a pixel
    distance = (0.5 * np.einsum("nd,nd->n", centres, centres)).take(candidates)
    for point, centre in zip(points, centres.T, strict=True):
        distance -= point * centre.take(candidates)
    nearest = candidates[distance.argmin(0), np.arange(place.size)]
    result = labels.copy()
    result[y, x] = nearest
    return result


def _number(labels: Index) -> Segments:
    """The same map with numbers from 0 without gaps."""
    present = np.bincount(labels.ravel()) > 0
    return (np.cumsum(present) - 1).astype(np.uint16)[labels]
