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
import uuid
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
import zarr

from gpgc_dask.core.arrays import Array, Index, Labels, Mask
from gpgc_dask.core.display import render_card
from gpgc_dask.core.errors import CorruptedError, InputError, MissingFileError
from gpgc_dask.core.paths import check_sources
from gpgc_dask.data.schema import VARIABLES, check_descriptions, codec_names
from gpgc_dask.storage.integrity import (
    DIGESTS,
    check_digests,
    digests,
    read_attributes,
    read_metadata,
)
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import GuardedArray, checksummed, open_guarded

__all__ = [
    "OUTSIDE",
    "SuperpixelDataset",
    "TrainingArrays",
    "background_class",
    "check_same_features",
    "is_dataset",
    "open_dataset",
    "provenance",
    "state",
    "training_arrays",
]

FORMAT = "gpgc_dask dataset"
FORMAT_VERSION = 2
"""2: every chunk is written and has a checksum, descriptions have digests. 1 had none of these."""

OUTSIDE = np.iinfo(np.uint16).max
"""In ``segments``: a pixel of the array that is none of the photo."""

UNFINISHED_FOLDER = ".ingest"
"""What an ingest keeps beside the arrays until the dataset is whole."""

CHUNK_BYTES = 16 << 20
ROW_CHUNK = 1 << 20
PHOTO_CHUNK = 1 << 16
SEGMENT_BYTES = 4 << 20

MAX_PIXELS = 1 << 28
"""Pixels of a photo at most: more than PIL decodes."""

WAY_OUT = (
    "restore that file from a copy, or make the dataset anew (gpgc ingest --overwrite), without "
    "those images if their photos are lost"
)


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], dtype: Any = None
) -> zarr.Array[Any]:
    """An empty array of the dataset, cut into chunks as its kind is best read.

    Features are not compressed: dense float32 hardly shrinks, and decoding it would cost half of
    a Gram product. ``benchmarks/storage.py`` measures that, and what the checksums cost.
    """
    dimensions, fixed, told = VARIABLES[name]
    dtype = np.dtype(dtype) if fixed is None else fixed
    options = checksummed(compressed=name != "features")
    if name == "features":
        # To other programs a chunk that gets lost reads as NaN, not as zeros.
        options["fill_value"] = np.nan
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


def finish(location: Location, attributes: Mapping[str, Any]) -> None:
    """Mark the dataset as whole: a group without this mark is not opened."""
    known = {"format": FORMAT, "format_version": FORMAT_VERSION, **attributes}
    known[DIGESTS] = digests(location, known, VARIABLES)
    location.group("r+").update_attributes(known)


def state(location: Location) -> str:
    """What is at a location: "absent", "complete", "unfinished" (an ingest) or "foreign"."""
    names = location.names()
    if not names:
        return "absent"
    if _attributes(location).get("format") == FORMAT:
        return "complete"
    return "unfinished" if UNFINISHED_FOLDER in names else "foreign"


def _attributes(location: Location) -> dict[str, Any]:
    return read_attributes(location) or {}


class SuperpixelDataset(xr.Dataset):  # type: ignore[no-untyped-call]
    """What :func:`open_dataset` gives: an xarray.Dataset that a notebook shows with its photos."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        usual = str(super()._repr_html_())
        whole = set(VARIABLES) <= set(self.variables) and {"backbone", "classes"} <= set(self.attrs)
        return render_card("dataset", self, usual) if whole else usual


def open_dataset(
    url: str | PathLike[str], storage_options: dict[str, Any] | None = None
) -> SuperpixelDataset:
    """A dataset written by ``gpgc ingest``, lazily: an xarray.Dataset of dask arrays.

    ``url`` is a local path or any fsspec URL. Pass the result to ``GPGC().fit``. What is damaged
    is refused, here or when it is read, with a :class:`~gpgc_dask.core.errors.CorruptedError`.

    Examples
    --------
    >>> from gpgc_dask import open_dataset
    >>> dataset = open_dataset("horses.zarr")
    >>> dataset.sizes["photo"]
    12
    >>> dataset["features"].dims, str(dataset["features"].dtype)
    (('superpixel', 'feature'), 'float32')
    """
    location = Location.of(url, storage_options)
    found = state(location)
    if found == "absent":
        raise MissingFileError(f"{url} does not exist: make a dataset with gpgc ingest")
    if found == "unfinished":
        raise InputError(f"{url} is not finished: go on with the same gpgc ingest and --resume")
    if found == "foreign":
        if {"features", "image"} <= set(location.names()):
            raise CorruptedError(
                f"{url} is damaged: its zarr.json cannot be read; restore that file from a copy, "
                "or remove the dataset and make it anew with gpgc ingest"
            )
        raise InputError(f"{url} is not a gpgc_dask dataset: make one with gpgc ingest")
    attributes = _attributes(location)
    arrays = _descriptions(location, attributes)
    dataset = _opened(location, arrays, attributes)
    dataset.encoding["source"] = location.url
    _check_photos(dataset, location)
    return dataset


def _descriptions(location: Location, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """{name: description} of the dataset's arrays, as they were written and fit to be read."""
    version = attributes.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise InputError(
            f"{location} was written by a newer gpgc_dask (format {version}, this one reads up to "
            f"{FORMAT_VERSION}): upgrade gpgc_dask"
        )
    guarded = version != 1 or DIGESTS in attributes
    if guarded:
        arrays = check_digests(location, attributes, WAY_OUT)
    else:
        arrays = read_metadata(location, VARIABLES)
    missing = [name for name in VARIABLES if name not in arrays]
    if missing:
        raise CorruptedError(
            f"{location} is damaged: it lacks {', '.join(missing)}; make it anew with gpgc ingest"
        )
    check_descriptions(arrays, str(location), checksums=guarded)
    return {name: arrays[name] for name in VARIABLES}


def _opened(
    location: Location, arrays: Mapping[str, Any], attributes: Mapping[str, Any]
) -> SuperpixelDataset:
    """Our arrays, each guarded, and whatever else somebody has put into the group."""
    whole = VARIABLES if DIGESTS in attributes else ("features", "segments")
    compressed = [name for name, told in arrays.items() if "zstd" in codec_names(told)]
    group = open_guarded(location, arrays, whole=whole, compressed=compressed)
    # What an interrupted overwrite left beside a whole dataset is no part of it.
    warnings.filterwarnings("ignore", message=f"Object at {re.escape(UNFINISHED_FOLDER)} is not")
    others = xr.open_zarr(
        group.store,
        chunks={},
        consolidated=False,
        mask_and_scale=False,
        drop_variables=[*VARIABLES],
    )
    own = {name: _variable(GuardedArray(group, name, str(location), WAY_OUT, _contents))
           for name in VARIABLES}  # fmt: skip
    # What is known of each image is small, and good to look at.
    about = [name for name in own if own[name].dims in (("photo",), ("feature",))]
    told = {name: value for name, value in others.attrs.items() if name != DIGESTS}
    opened = SuperpixelDataset({**own, **others.data_vars}, others.coords, told)
    return opened.set_coords(about)


def _variable(array: GuardedArray) -> xr.Variable:
    """Numbers a row or a pixel as dask arrays, what is known of images and columns in memory."""
    dimensions, dtype, told = VARIABLES[array.name]
    if dimensions[0] == "superpixel" or array.ndim > 1:
        meta = np.empty((0,) * array.ndim, dtype=array.dtype)
        name = f"{array.name}-{uuid.uuid4().hex}"
        data = da.from_array(array, array.chunks, name=name, meta=meta)
    else:
        data = array[...]
        data = np.array(data.tolist(), dtype=object) if dtype is str else data
    return xr.Variable(dimensions, data, {"long_name": told})


def _contents(group: zarr.Group, dimension: str, first: int, last: int) -> str:
    """What entries [first, last) along a dimension are, for people."""
    if dimension == "superpixel":
        photos = np.unique(group["image"][first:last])
        told = f"rows {first} … {last - 1}, "
    else:
        photos, told = np.arange(first, last), ""
    names = group["image_name"]
    low, high = str(names[int(photos[0])]), str(names[int(photos[-1])])
    return told + (f"image {low}" if low == high else f"images {low} … {high} ({photos.size})")


def _check_photos(dataset: xr.Dataset, location: Location) -> None:
    """Complain of photos that cannot be: those of a dataset that somebody has tampered with."""
    try:
        attributes = dataset.attrs
        n_classes = len(attributes["classes"])
        if n_classes < 2 or len(attributes["class_values"]) != n_classes:
            raise InputError(f"it names {n_classes} classes")
        sizes = np.stack([dataset[name].values for name in ("height", "width")]).astype(np.int64)
        if sizes.min() < 1 or sizes.prod(0).max() > MAX_PIXELS:
            raise InputError("a photo's height or width is out of range")
        for name, limit in (("height", dataset.sizes["y"]), ("width", dataset.sizes["x"])):
            used = dataset[f"segment_{name}"].values
            if used.min() < 1 or used.max() > limit:
                raise InputError(f"segment_{name} is out of range")
        columns = ("image_name", "image_path", "mask_path")
        names, images, masks = (text_values(dataset[name]) for name in columns)
        check_sources(names, images, masks, attributes["source"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptedError(
            f"{location} is damaged, or not to be trusted: {error}; {WAY_OUT}"
        ) from error


def text_values(variable: xr.DataArray) -> Labels:
    """Names as NumPy's ordinary text, whichever text type the store gave them."""
    return np.array(variable.values.tolist(), dtype=str)


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset as ``open_dataset`` gives it, or a selection of its rows."""
    return isinstance(X, xr.Dataset) and "features" in X and "image" in X


def background_class(dataset: xr.Dataset) -> int:
    """Number of the class of value 0, which pictures leave unpainted; -1 where there is none."""
    values = list(dataset.attrs["class_values"])
    return values.index(0) if 0 in values else -1


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
        raise InputError(
            f"the model was fitted on {n_features} features, and this dataset has {k}: pass the "
            "dataset of the model, or fit a model on this one"
        )
    here = provenance(dataset)
    for part in ("backbone", "recipe"):
        for name, value in fitted.get(part, {}).items():
            found = here.get(part, {}).get(name)
            if found != value and name not in ("onnxruntime", "path"):
                raise InputError(
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
    place: Index | None = None
    """Numbers of the rows in the dataset; None: all of them."""

    def replaced(self, **given: Any) -> TrainingArrays:
        """The same with what somebody gave instead; None is nothing given."""
        return replace(self, **{k: value for k, value in given.items() if value is not None})


def training_arrays(dataset: xr.Dataset) -> TrainingArrays:
    """Features, labels, image names, feature groups, weights and areas of a dataset's rows."""
    names = text_values(dataset["image_name"])
    image, label, weight = (dataset[name].values for name in ("image", "label", "weight"))
    _check_rows("image", (image >= 0) & (image < names.size), dataset)
    _check_rows("label", label < len(dataset.attrs.get("classes", range(256))), dataset)
    _check_rows("weight", np.isfinite(weight) & (weight >= 0), dataset)
    return TrainingArrays(
        X=dataset["features"].data,
        y=np.asarray(label),
        groups=pd.Categorical.from_codes(image, names),
        feature_groups=text_values(dataset["feature_group"]),
        weight=np.asarray(weight, dtype=np.float64),
        area=np.asarray(dataset["pixels"].values, dtype=np.float64),
    )


def _check_rows(name: str, right: Mask, dataset: xr.Dataset) -> None:
    wrong = np.flatnonzero(~right)
    if wrong.size:
        raise CorruptedError(
            f"{dataset.encoding.get('source', 'the dataset')} is damaged: {name} is out of range "
            f"in {wrong.size} row(s), the first is {wrong[0]}; make it anew with gpgc ingest"
        )
