"""Superpixels, and counts and averages over them.

Segments are a map (h, w) of superpixel numbers 0 … n−1 at working size. All functions sum over
pixels: of feature maps of any resolution, of grid cells, of the classes of a mask at the photo's
own size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from skimage.segmentation import slic

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.masks import VOID, Codes
from gpgc_dask.imaging.photos import Pixels

__all__ = [
    "Segments",
    "cell_shares",
    "class_counts",
    "nearest_rows",
    "pool",
    "position_features",
    "sample_codes",
    "segment",
]

Segments = NDArray[np.uint16]

MAX_SUPERPIXELS = 65_000
"""Numbers must fit into 16 bits; 65535 marks pixels outside a photo."""

GRID = 4
"""Position features are shares of a grid of GRID×GRID cells."""

MAX_DENSE_COUNTS = 1 << 22
"""Counts per superpixel and cell are dense up to this number of entries."""

STRIP_PIXELS = 1 << 20
"""Pixels of a mask processed together."""


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
    labels = slic(
        pixels,
        n_segments=min(n_segments, h * w // 4),
        compactness=compactness,
        sigma=sigma,
        start_label=0,
        channel_axis=-1,
    )
    # An image of one colour may become a single region, numbered from 1.
    _, numbers = np.unique(labels, return_inverse=True)
    return numbers.reshape(h, w).astype(np.uint16)


def nearest_rows(n: int, source: int) -> Index:
    """(n,) index of the nearest of ``source`` pixels in a line, for each of n pixels in a line."""
    return (2 * np.arange(n) + 1) * source // (2 * n)


def sample_codes(codes: Codes, height: int, width: int) -> Codes:
    """(height, width) class of the mask's pixel at the centre of each pixel of a smaller map."""
    rows, columns = nearest_rows(height, codes.shape[0]), nearest_rows(width, codes.shape[1])
    return codes[rows[:, None], columns]


def cell_shares(segments: Segments, n: int, grid: tuple[int, int]) -> sparse.csr_matrix:
    """(n, cells) share of each superpixel's pixels in each cell of a grid over the image."""
    h, w = segments.shape
    rows, columns = nearest_rows(h, grid[0]), nearest_rows(w, grid[1])
    cells = grid[0] * grid[1]
    key = segments.astype(np.int64) * cells
    key += (rows * grid[1])[:, None] + columns
    if n * cells <= MAX_DENSE_COUNTS:
        counts = np.bincount(key.ravel(), minlength=n * cells)
        filled = np.flatnonzero(counts)
        counts = counts[filled]
    else:
        filled, counts = np.unique(key, return_counts=True)
    area = np.bincount(segments.ravel(), minlength=n)
    owner = filled // cells
    starts = np.searchsorted(owner, np.arange(n + 1))
    return sparse.csr_matrix((counts / area[owner], filled % cells, starts), shape=(n, cells))


def pool(maps: list[Features], segments: Segments, n: int) -> Array:
    """Average feature maps over superpixels, by area.

    Parameters
    ----------
    maps : list of (channels, h', w') arrays
        Feature maps of any resolution. All cells of a map that is finer than the superpixels count.
    segments : (h, w) array
        Number of each pixel's superpixel.
    n : int
        Number of superpixels.

    Returns
    -------
    (n, channels of all maps) float64 array
    """
    pooled = []
    for values in maps:
        shares = cell_shares(_enlarge(segments, *values.shape[1:]), n, values.shape[1:])
        flat = values.reshape(values.shape[0], -1).T.astype(np.float64)
        pooled.append(shares @ np.ascontiguousarray(flat))
    return np.concatenate(pooled, axis=1)


def _enlarge(segments: Segments, height: int, width: int) -> Segments:
    """The map at a size of at least (height, width): each pixel repeated, none left out."""
    h, w = segments.shape
    if height <= h and width <= w:
        return segments
    rows, columns = nearest_rows(max(height, h), h), nearest_rows(max(width, w), w)
    return segments[rows[:, None], columns]


def position_features(segments: Segments, n: int) -> Array:
    """(n, 16) share of each superpixel's pixels in each cell of a 4×4 grid."""
    return cell_shares(segments, n, (GRID, GRID)).toarray()


def class_counts(segments: Segments, n: int, codes: Codes, n_classes: int) -> Index:
    """(n, n_classes + 1) number of pixels of each class, void last, at the photo's own size."""
    h, w = codes.shape
    rows, columns = nearest_rows(h, segments.shape[0]), nearest_rows(w, segments.shape[1])
    counts = np.zeros(n * (n_classes + 1), dtype=np.int64)
    step = max(STRIP_PIXELS // w, 1)
    for top in range(0, h, step):
        strip = codes[top : top + step]
        key = segments[rows[top : top + step]][:, columns].astype(np.int64)
        key *= n_classes + 1
        key += np.where(strip == VOID, n_classes, strip)
        counts += np.bincount(key.ravel(), minlength=counts.size)
    return counts.reshape(n, n_classes + 1).astype(np.intp)
