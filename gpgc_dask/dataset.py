"""The dataset on disk: a Zarr v3 group that ``xarray.open_zarr`` opens.

One row a superpixel; rows of an image are adjacent and images are in the order of their names.

    features       (superpixel, feature)  float32 or float16
    label          (superpixel)           number of the class, see the attribute ``classes``
    weight         (superpixel)           1 in training, 0 where the mask is mostly void
    image          (superpixel)           number of the row's image, along ``photo``
    pixels         (superpixel)           area in pixels of the photo
    feature_group  (feature)              appearance, position or constant
    image_name     (photo)                path within the folder of images
    image_path, mask_path, height, width, flags  (photo)
    segments       (photo, y, x)          superpixel of each pixel, numbered within its image, at
                                          working size; 65535 outside the photo
    segment_height, segment_width  (photo)
    skipped_name, skipped_reason  (skipped)  files that could not be used
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr

from gpgc_dask.arrays import Array, Labels
from gpgc_dask.storage import Location

__all__ = [
    "OUTSIDE",
    "TrainingArrays",
    "check_same_features",
    "is_dataset",
    "open_dataset",
    "provenance",
    "state",
    "training_arrays",
]

FORMAT = "gpgc_dask dataset"
FORMAT_VERSION = 1

OUTSIDE = np.iinfo(np.uint16).max
"""In ``segments``: a pixel of the array that is none of the photo."""

UNFINISHED_FOLDER = ".ingest"
"""What an ingest keeps beside the arrays until the dataset is whole."""

CHUNK_BYTES = 16 << 20
ROW_CHUNK = 1 << 20
PHOTO_CHUNK = 1 << 16
SEGMENT_BYTES = 4 << 20

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


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], dtype: Any = None
) -> zarr.Array[Any]:
    """An empty array of the dataset, cut into chunks as its kind is best read.

    Features are not compressed: dense float32 hardly shrinks, and decoding it would cost half of
    a Gram product.
    """
    dimensions, fixed, told = VARIABLES[name]
    dtype = np.dtype(dtype) if fixed is None else fixed
    options: dict[str, Any] = {}
    if name == "features":
        # A chunk that gets lost reads as NaN, which every fit refuses, not as zeros.
        options |= {"compressors": None, "fill_value": np.nan}
    if name == "segments":
        options["fill_value"] = OUTSIDE
    return group.create_array(
        name,
        shape=shape,
        chunks=chunk_shape(name, shape, dtype),
        dtype=dtype,
        dimension_names=dimensions,
        attributes={"long_name": told},
        **options,
    )


def chunk_shape(name: str, shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """Features in row blocks of about 16 MB, superpixel maps some images a chunk, others whole."""
    if name == "features":
        rows = CHUNK_BYTES // (shape[1] * np.dtype(dtype).itemsize)
        return (min(1 << max(int(rows).bit_length() - 1, 6), shape[0]), shape[1])
    if name == "segments":
        images = max(SEGMENT_BYTES // (2 * shape[1] * shape[2]), 1)
        return (min(images, shape[0]), *shape[1:])
    limit = ROW_CHUNK if "superpixel" in VARIABLES[name][0] else PHOTO_CHUNK
    return (min(max(shape[0], 1), limit),)


def write_array(group: zarr.Group, name: str, values: Labels) -> None:
    """Create one of the small arrays and fill it."""
    array = create_array(group, name, values.shape)
    if values.size:
        array[...] = values


def finish(group: zarr.Group, attributes: Mapping[str, Any]) -> None:
    """Mark the dataset as whole: a group without this mark is not opened."""
    group.update_attributes({"format": FORMAT, "format_version": FORMAT_VERSION, **attributes})


def state(location: Location) -> str:
    """What is at a location: "absent", "complete", "unfinished" (an ingest) or "foreign"."""
    names = location.names()
    if not names:
        return "absent"
    if _attributes(location).get("format") == FORMAT:
        return "complete"
    return "unfinished" if UNFINISHED_FOLDER in names else "foreign"


def _attributes(location: Location) -> dict[str, Any]:
    try:
        return dict(location.group().attrs)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        return {}


def open_dataset(
    url: str | PathLike[str], storage_options: dict[str, Any] | None = None
) -> xr.Dataset:
    """A dataset written by ``gpgc ingest``, lazily: an xarray.Dataset of dask arrays.

    ``url`` is a local path or any fsspec URL. Pass the result to ``GPGC().fit``.
    """
    location = Location.of(url, storage_options)
    found = state(location)
    if found == "absent":
        raise FileNotFoundError(f"{url} does not exist: make a dataset with gpgc ingest")
    if found == "unfinished":
        raise ValueError(f"{url} is not finished: go on with the same gpgc ingest and --resume")
    if found == "foreign":
        raise ValueError(f"{url} is not a gpgc_dask dataset: make one with gpgc ingest")
    version = _attributes(location)["format_version"]
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{url} was written by a newer gpgc_dask (format {version}, this one reads up to "
            f"{FORMAT_VERSION}): upgrade gpgc_dask"
        )
    # What an interrupted overwrite left beside a whole dataset is no part of it.
    warnings.filterwarnings("ignore", message=f"Object at {re.escape(UNFINISHED_FOLDER)} is not")
    dataset = xr.open_zarr(
        location.store(read_only=True),
        chunks={},
        consolidated=False,
        mask_and_scale=False,
    )
    dataset.encoding["source"] = location.url
    _check(dataset, url)
    others = [name for name in dataset if name not in VARIABLES]
    ordered = dataset[[name for name in (*VARIABLES, *others) if name in dataset]]
    # What is known of each image is small, and good to look at.
    about = [name for name in ordered if ordered[name].dims in (("photo",), ("feature",))]
    ordered[about] = ordered[about].compute(scheduler="sync")
    return ordered.set_coords(about)


def _check(dataset: xr.Dataset, url: Any) -> None:
    missing = [name for name in VARIABLES if name not in dataset]
    if missing:
        raise ValueError(
            f"{url} is damaged: it lacks {', '.join(missing)}; make it anew with gpgc ingest"
        )


def text_values(variable: xr.DataArray) -> Labels:
    """Names as NumPy's ordinary text, whichever text type the store gave them."""
    return np.array(variable.values.tolist(), dtype=str)


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset as ``open_dataset`` gives it, or a selection of its rows."""
    return isinstance(X, xr.Dataset) and "features" in X and "image" in X


def summary(dataset: xr.Dataset) -> dict[str, Any]:
    """What is in a dataset, as plain values: sizes, classes, flags, provenance."""
    per_image = np.bincount(dataset["image"].values, minlength=dataset.sizes["photo"])
    label, weight = dataset["label"].values, dataset["weight"].values
    columns = Counter(text_values(dataset["feature_group"]).tolist())
    features = dataset["features"]
    return {
        "images": dataset.sizes["photo"],
        "superpixels": dataset.sizes["superpixel"],
        "superpixels_an_image": {
            "min": int(per_image.min()),
            "mean": float(per_image.mean()),
            "max": int(per_image.max()),
        },
        "features": dict(columns),
        "dtype": str(features.dtype),
        "block_rows": int(features.data.chunksize[0]),
        "classes": [
            {
                "name": name,
                "value": value,
                "superpixels": _share(weight, label == code),
                "pixels": _share(weight * dataset["pixels"].values, label == code),
            }
            for code, (name, value) in enumerate(
                zip(dataset.attrs["classes"], dataset.attrs["class_values"], strict=True)
            )
        ],
        "void": float(np.mean(weight == 0)),
        "flagged": flagged_images(dataset),
        "skipped": [
            {"name": name, "reason": reason}
            for name, reason in zip(
                text_values(dataset["skipped_name"]).tolist(),
                text_values(dataset["skipped_reason"]).tolist(),
                strict=True,
            )
        ],
        **{name: dataset.attrs[name] for name in ("source", "backbone", "recipe", "versions")},
    }


def flagged_images(dataset: xr.Dataset) -> dict[str, list[str]]:
    """{flag: names of the images that have it}."""
    found: dict[str, list[str]] = {}
    names = text_values(dataset["image_name"]).tolist()
    for name, text in zip(names, text_values(dataset["flags"]).tolist(), strict=True):
        for flag in filter(None, text.split(";")):
            found.setdefault(flag, []).append(name)
    return dict(sorted(found.items()))


def provenance(dataset: xr.Dataset) -> dict[str, Any]:
    """Where a dataset's rows come from, as plain values: what a model remembers of it.

    Enough to compute the same features of other photos, and to know the dataset again.
    """
    kept = ("classes", "class_values", "source", "backbone", "recipe", "versions", "files_digest")
    known = {name: dataset.attrs[name] for name in kept if name in dataset.attrs}
    return {"url": dataset.encoding.get("source"), "images": dataset.sizes["photo"], **known}


def check_same_features(dataset: xr.Dataset, fitted: Mapping[str, Any], n_features: int) -> None:
    """Complain where a dataset's features are not those a model was fitted on.

    fitted : the :func:`provenance` of the model's dataset;  n_features : of the model
    """
    k = dataset.sizes["feature"]
    if k != n_features:
        raise ValueError(
            f"the model was fitted on {n_features} features, and this dataset has {k}: pass the "
            "dataset of the model, or fit a model on this one"
        )
    here = provenance(dataset)
    for part in ("backbone", "recipe"):
        for name, value in fitted.get(part, {}).items():
            found = here.get(part, {}).get(name)
            if found != value and name not in ("onnxruntime", "path"):
                raise ValueError(
                    f"the model was fitted on other features than this dataset's: {part} {name} "
                    f"is {value} there, {found} here; fit a model on this dataset"
                )


def _share(values: Labels, where: Labels) -> float:
    total = float(values.sum())
    return float(values[where].sum()) / total if total else 0.0


@dataclass(frozen=True)
class TrainingArrays:
    """What an estimator takes from a dataset. ``X`` is a dask array, the rest NumPy and pandas."""

    X: Any
    y: Labels
    groups: Any
    feature_groups: Labels
    weight: Array
    area: Array

    def replaced(self, **given: Any) -> TrainingArrays:
        """The same with what somebody gave instead; None is nothing given."""
        return replace(self, **{k: value for k, value in given.items() if value is not None})


def training_arrays(dataset: xr.Dataset) -> TrainingArrays:
    """Features, labels, image names, feature groups, weights and areas of a dataset's rows."""
    return TrainingArrays(
        X=dataset["features"].data,
        y=np.asarray(dataset["label"].values),
        groups=pd.Categorical.from_codes(
            dataset["image"].values, text_values(dataset["image_name"])
        ),
        feature_groups=text_values(dataset["feature_group"]),
        weight=np.asarray(dataset["weight"].values, dtype=np.float64),
        area=np.asarray(dataset["pixels"].values, dtype=np.float64),
    )
