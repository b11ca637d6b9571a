"""Writing a dataset: its arrays, their chunks, and the attributes that mark it as complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.data.schema import FORMAT, FORMAT_VERSION, MAPS, VARIABLES
from gpgc_dask.storage.integrity import DIGESTS, digests, read_attributes, read_metadata
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import checksum_options

__all__ = ["CHUNK_BYTES", "chunk_shape", "create_array", "finish", "write_array"]

CHUNK_BYTES = 16 << 20
"""Bytes per chunk of features, about."""

ROW_CHUNK = 1 << 20
PHOTO_CHUNK = 1 << 16
OBJECT_CHUNK = 1 << 13
SEGMENT_BYTES = 4 << 20
"""Bytes per chunk of ``segments``, about; ``mask`` has as many images per chunk."""

LONGEST_CHUNK = {"superpixel": ROW_CHUNK, "object": OBJECT_CHUNK}
"""{dimension: entries per chunk} of the small arrays; others have PHOTO_CHUNK."""


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], dtype: Any = None
) -> zarr.Array[Any]:
    """Create an empty array of a dataset, in chunks that suit how it is read.

    Features are not compressed: dense float32 hardly shrinks, and decoding it would take half as
    long as a Gram product. ``benchmarks/storage.py`` measures this, and the cost of the checksums.

    Parameters
    ----------
    group : zarr.Group
        The dataset.
    name : str
        One of :data:`~gpgc_dask.data.schema.VARIABLES`.
    shape : tuple of int
        Its shape.
    dtype : dtype, optional
        Type of the features; all other arrays have a type of their own.
    """
    dimensions, own_dtype, description = VARIABLES[name]
    dtype = np.dtype(dtype) if own_dtype is None else own_dtype
    options = checksum_options(compressed=name != "features")
    if name == "features":
        # A chunk that was lost is NaN to other programs, not zero.
        options["fill_value"] = np.nan
    if name in MAPS:
        options["fill_value"] = MAPS[name]
    return group.create_array(
        name,
        shape=shape,
        chunks=chunk_shape(name, shape, dtype),
        dtype=dtype,
        dimension_names=dimensions,
        attributes={"long_name": description},
        **options,
    )


def chunk_shape(name: str, shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """Shape of the chunks: features in blocks of rows of about 16 MB, maps of some images each."""
    if name == "features":
        rows = CHUNK_BYTES // (shape[1] * np.dtype(dtype).itemsize)
        return (min(1 << max(int(rows).bit_length() - 1, 6), shape[0]), shape[1])
    if name in MAPS:
        images = max(SEGMENT_BYTES // (2 * shape[1] * shape[2]), 1)
        return (min(images, shape[0]), *shape[1:])
    limit = LONGEST_CHUNK.get(VARIABLES[name][0][0], PHOTO_CHUNK)
    return (min(max(shape[0], 1), limit), *shape[1:])


def write_array(group: zarr.Group, name: str, values: Labels) -> None:
    """Create one of the small arrays and fill it."""
    array = create_array(group, name, values.shape)
    if values.size:
        array[...] = values


def finish(location: Location, attributes: Mapping[str, Any]) -> None:
    """Mark a dataset as complete: a group without this mark is not opened.

    The mark is written together with a copy of the metadata of the arrays, with which xarray opens
    the dataset in one read and without a warning. It is part of the same file, so that neither is
    there without the other; this program reads the metadata of each array.
    """
    arrays = read_metadata(location, VARIABLES)
    marked = {"format": FORMAT, "format_version": FORMAT_VERSION, **attributes}
    marked[DIGESTS] = digests(marked, arrays)
    root = {
        "attributes": (read_attributes(location) or {}) | marked,
        "zarr_format": 3,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
        "node_type": "group",
    }
    location.write("zarr.json", json.dumps(root, indent=2).encode())
