"""Reading the maps of a dataset's photos: superpixels and masks at working size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.data.schema import VOID

__all__ = ["MAPS", "Codes", "Segments", "image_maps", "load_maps", "map_chunks"]

Segments = NDArray[np.uint16]
Codes = NDArray[np.uint8]

MAPS = ("segments", "mask", "segment_height", "segment_width", "image_name")
"""The variables that :func:`load_maps` needs."""


def image_maps(
    dataset: xr.Dataset, photos: Index | None = None
) -> Iterator[list[tuple[int, Segments, Codes]]]:
    """Read superpixels and masks of some photos, or of all, chunk by chunk.

    Each chunk is read once, and one chunk is in memory at a time.

    Parameters
    ----------
    dataset : xarray.Dataset
        The dataset.
    photos : (n,) array of int, optional
        Numbers of the photos along ``photo``.

    Yields
    ------
    list of (int, (h, w) uint16 array, (h, w) uint8 array)
        Number, superpixel of each pixel, and class of each pixel of the mask (255 where it is void)
        of the photos in one chunk.

    Raises
    ------
    CorruptedError
        If a mask has a class that the dataset does not have.
    """
    for chunk in map_chunks(dataset, ("segments", "mask"), photos):
        for photo, _, mask in chunk:
            _check_classes(dataset, photo, mask)
        yield chunk


def load_maps(dataset: xr.Dataset) -> list[tuple[Segments, Codes]]:
    """Read superpixels and masks of all photos of a part of a dataset, in the calling thread.

    Parameters
    ----------
    dataset : xarray.Dataset
        Some photos, with the variables :data:`MAPS`. It may be the argument of a task.

    Returns
    -------
    list of ((h, w) uint16 array, (h, w) uint8 array)
        Superpixel of each pixel, and class of each pixel of the mask (255 where it is void).

    Raises
    ------
    CorruptedError
        If a mask has a class that the dataset does not have.
    """
    loaded = dataset[list(MAPS)].load(scheduler="sync")
    segments, masks, heights, widths = (loaded[name].values for name in MAPS[:4])
    maps = []
    for photo, (height, width) in enumerate(zip(heights, widths, strict=True)):
        mask = masks[photo, :height, :width]
        _check_classes(loaded, photo, mask)
        maps.append((segments[photo, :height, :width], mask))
    return maps


def count_classes(mask: Codes, segments: Segments, n: int, n_classes: int) -> Index:
    """(n, classes) pixels of each class of a mask in each of n superpixels; void does not count."""
    # Void pixels are counted as one class more, which is faster than selecting the others.
    cells = segments.astype(np.intp)
    cells *= n_classes + 1
    cells += np.minimum(mask, n_classes)
    counts = np.bincount(cells.ravel(), minlength=n * (n_classes + 1))
    return counts.reshape(n, n_classes + 1)[:, :n_classes]


def _check_classes(dataset: xr.Dataset, photo: int, mask: Codes) -> None:
    n_classes = len(dataset.attrs["classes"])
    known = mask[mask != VOID]
    if known.size and known.max() >= n_classes:
        raise CorruptedError(
            f"{dataset.encoding.get('source', 'the dataset')} is corrupted: the mask of "
            f"{dataset['image_name'].values[photo]} has class {known.max()} of "
            f"{n_classes}; create it again with gpgc ingest"
        )


def map_chunks(
    dataset: xr.Dataset, names: Sequence[str], photos: Index | None = None
) -> Iterator[list[tuple[Any, ...]]]:
    """Read maps of some photos, or of all, chunk by chunk; each chunk is read once.

    Parameters
    ----------
    dataset : xarray.Dataset
        The dataset.
    names : sequence of str
        The maps: ``segments``, ``mask``, which have the same chunks.
    photos : (n,) array of int, optional
        Numbers of the photos along ``photo``.

    Yields
    ------
    list of (int, (h, w) array, …)
        Number and maps, without what is outside the photo, of the photos in one chunk.
    """
    heights, widths = (dataset[f"segment_{name}"].values for name in ("height", "width"))
    wanted = np.arange(dataset.sizes["photo"]) if photos is None else np.sort(photos)
    size = int(dataset[names[0]].data.chunksize[0])
    for first in (np.unique(wanted // size) * size).tolist():
        maps = [dataset[name][first : first + size].values for name in names]
        own = wanted[(wanted >= first) & (wanted < first + size)].tolist()
        yield [
            (photo, *(each[photo - first, : heights[photo], : widths[photo]] for each in maps))
            for photo in own
        ]
