"""The arrays that a dataset on disk consists of, and checks of what is stored there.

Nothing of a dataset is read before its metadata has been checked here: shapes must be consistent,
chunks must be of a size that fits into memory, and no codecs but our own may decode them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.storage.verified import MAX_CHUNK_BYTES

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MAPS",
    "OUTSIDE",
    "UNFINISHED_FOLDER",
    "UPDATES",
    "UPDATE_FOLDER",
    "VARIABLES",
    "VERDICTS_FOLDER",
    "VOID",
    "check_descriptions",
    "check_plain",
    "check_version",
    "codec_names",
]

FORMAT = "gpgc_dask dataset"
FORMAT_VERSION = 5

OUTSIDE = np.iinfo(np.uint16).max
"""In ``segments``: a pixel of the array that is outside the photo."""

VOID = 255
"""In ``mask``: a pixel of unknown class, or outside the photo."""

MAPS: dict[str, int] = {"segments": OUTSIDE, "mask": VOID}
"""{name: value outside the photo} of the arrays along (photo, y, x); they have the same chunks."""

UNFINISHED_FOLDER = ".ingest"
"""Folder in which an ingest keeps its intermediate files until the dataset is complete."""

VERDICTS_FOLDER = "verdicts"
"""Folder of a dataset that holds what people have decided about its masks."""

UPDATE_FOLDER = ".update"
"""Folder in which an update prepares the new state of a dataset."""

UPDATES = "updates"
"""Attribute with one entry per update: the ``files_digest`` before it, and numbers of images."""

VARIABLES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "features": (("superpixel", "feature"), None, "features, pooled over the superpixel"),
    "label": (("superpixel",), "uint8", "class of most of the mask's pixels"),
    "weight": (("superpixel",), "float32", "training weight; 0 where the mask is mostly void"),
    "image": (("superpixel",), "int32", "number of the image, along photo"),
    "pixels": (("superpixel",), "int64", "area in pixels of the photo"),
    "feature_group": (("feature",), str, "columns that share one prior scale"),
    "image_name": (("photo",), str, "path of the photo in its folder, and the name of the answer"),
    "photo_name": (("photo",), str, "path within the folder of images"),
    "group": (("photo",), str, "images of one group are left out together"),
    "annotator": (("photo",), str, "who drew the mask; empty if unknown"),
    "annotated": (("photo",), str, "when, as an ISO date; empty if unknown"),
    "image_path": (("photo",), str, "where the photo was read"),
    "mask_path": (("photo",), str, "where the mask was read"),
    "photo_stamp": (("photo",), str, "size and time of the photo's file when it was read"),
    "photo_digest": (("photo",), str, "digest of the photo's file"),
    "mask_stamp": (("photo",), str, "changes when the mask does: size and time, or a digest"),
    "height": (("photo",), "int32", "of the photo, upright, in pixels"),
    "width": (("photo",), "int32", "of the photo, upright, in pixels"),
    "flags": (("photo",), str, "what to know about the mask, joined by ;"),
    "segments": (("photo", "y", "x"), "uint16", "superpixel of each pixel at working size"),
    "mask": (
        ("photo", "y", "x"),
        "uint8",
        "class of each pixel of the mask at the size of segments; 255 = void",
    ),
    "segment_height": (("photo",), "int32", "rows of segments that are the photo's"),
    "segment_width": (("photo",), "int32", "columns of segments that are the photo's"),
    "object_image": (("object",), "int32", "number of the annotated object's image, along photo"),
    "object_id": (("object",), str, "id of the annotation; empty if it has none"),
    "object_class": (("object",), "uint8", "class of the annotation"),
    "object_crowd": (("object",), "uint8", "1 if it is a group of objects, else 0"),
    "object_area": (("object",), "float32", "share of the photo, hidden parts included"),
    "object_box": (("object", "side"), "float32", "left, top, width, height; pixels of the photo"),
    "object_region": (("object",), str, "run lengths (COCO counts) at the size of segments"),
    "skipped_name": (("skipped",), str, "file that could not be used"),
    "skipped_reason": (("skipped",), str, "why not"),
}
"""{name: (dimensions, type (None: any float), description)}"""

MAY_BE_EMPTY = ("skipped", "object")
"""Dimensions that may have no entries."""

FEATURE_TYPES = ("float16", "float32", "float64")

MAX_CHUNKS = 1 << 22
"""Maximum number of chunks per array: 64 TB of features."""

TEXT_BYTES = 64
"""Bytes that a text is taken to need in a chunk."""


def check_version(location: Any, attributes: Mapping[str, Any], version: int) -> None:
    """Raise an InputError if a dataset or model has another format version than this one.

    Parameters
    ----------
    location : str or Location
        Where it is, for the message.
    attributes : mapping
        Attributes of its Zarr group.
    version : int
        The format version that this gpgc_dask reads and writes.
    """
    stored = attributes.get("format_version")
    if type(stored) is not int or stored == version:
        return
    if stored > version:
        raise InputError(
            f"{location} was written by a newer gpgc_dask (format {stored}, this one reads format "
            f"{version}): upgrade gpgc_dask"
        )
    raise InputError(
        f"{location} was written by an older gpgc_dask (format {stored}, this one reads format "
        f"{version}): create it again"
    )


def check_descriptions(descriptions: Mapping[str, Any], place: str) -> None:
    """Raise a CorruptedError if the metadata of a dataset's arrays cannot be right.

    Parameters
    ----------
    descriptions : mapping of str to dict
        {name: content of zarr.json} of the arrays of :data:`VARIABLES`.
    place : str
        Where the dataset is, for the message.
    """
    sizes: dict[str, int] = {}
    for name in VARIABLES:
        _reject(name, place, array_problem(descriptions[name]))
        _reject(name, place, _variable_problem(name, descriptions[name], sizes))


def check_plain(descriptions: Mapping[str, Any], place: str) -> None:
    """Raise a CorruptedError if the metadata of arrays of any shape cannot be right."""
    for name, description in descriptions.items():
        _reject(name, place, array_problem(description))


def _reject(name: str, place: str, problem: str | None) -> None:
    if problem:
        raise CorruptedError(
            f"{place} is corrupted, or not trustworthy: the metadata of {name} {problem}; create "
            "it again"
        )


def array_problem(description: Any) -> str | None:
    """Why an array of this metadata must not be read; None if it may be."""
    try:
        shape = description["shape"]
        chunks = description["chunk_grid"]["configuration"]["chunk_shape"]
        if description["zarr_format"] != 3 or description["node_type"] != "array":
            return "is of no array"
        if not (_are_counts(shape, 0) and _are_counts(chunks, 1) and len(shape) == len(chunks)):
            return f"has shape {shape} in chunks of {chunks}"
        is_text = description["data_type"] == "string"
        itemsize = TEXT_BYTES if is_text else np.dtype(description["data_type"]).itemsize
        count = prod(-(-size // own) for size, own in zip(shape, chunks, strict=True))
        if prod(chunks) * itemsize > MAX_CHUNK_BYTES or count > MAX_CHUNKS:
            return f"has chunks of {chunks} for a shape of {shape}: too large, or too many"
        keys = {"name": "default", "configuration": {"separator": "/"}}
        regular = description["chunk_grid"]["name"] == "regular"
        if description["chunk_key_encoding"] != keys or not regular:
            return "keeps its chunks under other names than ours"
        names, first = codec_names(description), "vlen-utf8" if is_text else "bytes"
        ours = names in ([first, "crc32c"], [first, "zstd", "crc32c"])
        if not ours or description.get("storage_transformers"):
            return f"names codecs {names}, which are not ours"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        return "is not what Zarr writes"
    return None


def _variable_problem(name: str, description: Any, sizes: dict[str, int]) -> str | None:
    """Why an array does not fit into a dataset; ``sizes`` collects those of the dimensions."""
    dimensions, dtype, _ = VARIABLES[name]
    shape = description["shape"]
    chunks = description["chunk_grid"]["configuration"]["chunk_shape"]
    stored = description.get("dimension_names")
    if stored != list(dimensions) or len(shape) != len(dimensions):
        return f"has dimensions {stored} and not {list(dimensions)}"
    wanted = FEATURE_TYPES if dtype is None else ("string",) if dtype is str else (dtype,)
    if description["data_type"] not in wanted:
        return f"has type {description['data_type']} and not {' or '.join(wanted)}"
    for dimension, size in zip(dimensions, shape, strict=True):
        if sizes.setdefault(dimension, size) != size:
            return f"has {size} entries along {dimension}, where others have {sizes[dimension]}"
        if not size and dimension not in MAY_BE_EMPTY:
            return f"has no entries along {dimension}"
    if chunks[1:] != shape[1:]:
        return f"has chunks of {chunks}, which must span all but the first of {shape}"
    return None


def codec_names(description: Mapping[str, Any]) -> list[str]:
    """Names of the codecs in an array's metadata."""
    return [codec["name"] for codec in description["codecs"]]


def _are_counts(values: Any, minimum: int) -> bool:
    return all(type(value) is int and minimum <= value < 1 << 62 for value in values)
