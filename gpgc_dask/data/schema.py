"""What a dataset on disk is made of, and whether what is found there may be one.

Nothing of a dataset is read before its description has been judged here: arrays must fit each
other, chunks must be of a size that memory holds, and only our own codecs unpack them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.storage.verified import MAX_CHUNK_BYTES

__all__ = ["VARIABLES", "check_descriptions", "check_plain", "codec_names"]

VARIABLES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "features": (("superpixel", "feature"), None, "features, pooled over the superpixel"),
    "label": (("superpixel",), "uint8", "class of most of the mask's pixels"),
    "weight": (("superpixel",), "float32", "training weight; 0 where the mask is mostly void"),
    "image": (("superpixel",), "int32", "number of the image, along photo"),
    "pixels": (("superpixel",), "int64", "area in pixels of the photo"),
    "feature_group": (("feature",), str, "columns that share one prior scale"),
    "image_name": (("photo",), str, "path within the folder of images"),
    "image_path": (("photo",), str, "where the photo was read"),
    "mask_path": (("photo",), str, "where the mask was read"),
    "height": (("photo",), "int32", "of the photo, upright, in pixels"),
    "width": (("photo",), "int32", "of the photo, upright, in pixels"),
    "flags": (("photo",), str, "what to know about the mask, joined by ;"),
    "segments": (("photo", "y", "x"), "uint16", "superpixel of each pixel at working size"),
    "segment_height": (("photo",), "int32", "rows of segments that are the photo's"),
    "segment_width": (("photo",), "int32", "columns of segments that are the photo's"),
    "skipped_name": (("skipped",), str, "file that could not be used"),
    "skipped_reason": (("skipped",), str, "why not"),
}
"""{name: (dimensions, type (None: as given), what it is)}"""

FEATURE_TYPES = ("float16", "float32", "float64")

MAX_CHUNKS = 1 << 22
"""Chunks of an array at most: of features, 64 TB."""

TEXT_BYTES = 64
"""A text counts for so many bytes of a chunk."""


def check_descriptions(found: Mapping[str, Any], place: str, *, checksums: bool) -> None:
    """Complain of descriptions of a dataset's arrays (zarr.json, by name) that cannot be true.

    checksums : whether every chunk has one
    """
    sizes: dict[str, int] = {}
    for name in VARIABLES:
        _complain(name, place, array_problem(found[name], checksums=checksums))
        _complain(name, place, _problem(name, found[name], sizes))


def check_plain(found: Mapping[str, Any], place: str) -> None:
    """The same of arrays of numbers, of whatever shape, that belong to no dataset."""
    for name, told in found.items():
        _complain(name, place, array_problem(told, checksums=True))


def _complain(name: str, place: str, problem: str | None) -> None:
    if problem:
        raise CorruptedError(
            f"{place} is damaged, or not to be trusted: the description of {name} {problem}; "
            "make it anew"
        )


def array_problem(told: Any, *, checksums: bool) -> str | None:
    """What forbids to read an array of this description; None: nothing."""
    try:
        shape, chunks = told["shape"], told["chunk_grid"]["configuration"]["chunk_shape"]
        if told["zarr_format"] != 3 or told["node_type"] != "array":
            return "is of no array"
        if not (_are_counts(shape, 0) and _are_counts(chunks, 1) and len(shape) == len(chunks)):
            return f"has shape {shape} in chunks of {chunks}"
        is_text = told["data_type"] == "string"
        itemsize = TEXT_BYTES if is_text else np.dtype(told["data_type"]).itemsize
        count = prod(-(-size // own) for size, own in zip(shape, chunks, strict=True))
        if prod(chunks) * itemsize > MAX_CHUNK_BYTES or count > MAX_CHUNKS:
            return f"has chunks of {chunks} for a shape of {shape}: too large, or too many"
        keys = {"name": "default", "configuration": {"separator": "/"}}
        if told["chunk_key_encoding"] != keys or told["chunk_grid"]["name"] != "regular":
            return "keeps its chunks under other names than ours"
        names, first = codec_names(told), "vlen-utf8" if is_text else "bytes"
        last = ["crc32c"] if checksums else []
        ours = names in ([first, *last], [first, "zstd", *last])
        if not ours or told.get("storage_transformers"):
            return f"names codecs {names}, which are not ours"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        return "is not what Zarr writes"
    return None


def _problem(name: str, told: Any, sizes: dict[str, int]) -> str | None:
    """What does not fit a dataset; ``sizes`` of dimensions seen so far are kept."""
    dimensions, dtype, _ = VARIABLES[name]
    shape, chunks = told["shape"], told["chunk_grid"]["configuration"]["chunk_shape"]
    if told.get("dimension_names") != list(dimensions) or len(shape) != len(dimensions):
        return f"has dimensions {told.get('dimension_names')} and not {list(dimensions)}"
    wanted = FEATURE_TYPES if dtype is None else ("string",) if dtype is str else (dtype,)
    if told["data_type"] not in wanted:
        return f"has type {told['data_type']} and not {' or '.join(wanted)}"
    for dimension, size in zip(dimensions, shape, strict=True):
        if sizes.setdefault(dimension, size) != size:
            return f"has {size} entries along {dimension}, where others have {sizes[dimension]}"
        if not size and dimension != "skipped":
            return f"has no entries along {dimension}"
    if chunks[1:] != shape[1:]:
        return f"has chunks of {chunks}, which must span all but the first of {shape}"
    return None


def codec_names(told: Mapping[str, Any]) -> list[str]:
    """Names of the codecs in an array's description."""
    return [codec["name"] for codec in told["codecs"]]


def _are_counts(values: Any, least: int) -> bool:
    return all(type(value) is int and least <= value < 1 << 62 for value in values)
