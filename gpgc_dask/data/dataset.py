"""The dataset on disk: a Zarr v3 group that ``xarray.open_zarr`` opens.

One row per superpixel; rows of an image are adjacent, and images are in the order of their groups,
then of their names.

    features       (superpixel, feature)  float32 or float16
    label          (superpixel)           number of the class, see the attribute ``classes``
    weight         (superpixel)           1 in training, 0 where the mask is mostly void
    image          (superpixel)           number of the row's image, along ``photo``
    pixels         (superpixel)           area in pixels of the photo
    feature_group  (feature)              appearance, position or constant
    image_name     (photo)                path within the folder of images; if photos have several
                                          masks (answers), with the name of the answer
    photo_name     (photo)                path within the folder of images
    group          (photo)                images of one group are left out together
    annotator, annotated  (photo)         who drew the mask, and when
    image_path, mask_path, height, width, flags  (photo)
    photo_stamp, photo_digest, mask_stamp  (photo)  by which an update notices changed files
    segments       (photo, y, x)          superpixel of each pixel, numbered within its image, at
                                          working size; 65535 outside the photo
    mask           (photo, y, x)          class of each pixel of the mask, at working size; 255
                                          where it is void, and outside the photo
    segment_height, segment_width  (photo)
    object_image, object_id, object_class, object_crowd, object_area, object_region  (object)
                                          annotations of COCO files, in the order of their images
    object_box     (object, side)         left, top, width, height in pixels of the photo
    skipped_name, skipped_reason  (skipped)  files that could not be used
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Collection, Iterable, Mapping
from os import PathLike
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.display import render_card
from gpgc_dask.core.errors import ChangedError, CorruptedError, InputError, MissingFileError
from gpgc_dask.core.paths import check_names, check_sources
from gpgc_dask.data.apply_verdicts import apply_verdicts, read_verdicts
from gpgc_dask.data.attributes import check_attributes
from gpgc_dask.data.replacement import SameState, is_committed, state_digest
from gpgc_dask.data.schema import (
    FORMAT,
    FORMAT_VERSION,
    UNFINISHED_FOLDER,
    UPDATE_FOLDER,
    VARIABLES,
    VERDICTS_FOLDER,
    check_descriptions,
    check_version,
    codec_names,
)
from gpgc_dask.data.verdicts import Verdict
from gpgc_dask.storage.integrity import DIGESTS, check_digests, read_attributes
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import VerifiedArray, open_verified

__all__ = [
    "SuperpixelDataset",
    "background_class",
    "check_same_features",
    "check_unchanged",
    "is_dataset",
    "open_arrays",
    "open_dataset",
    "provenance",
    "state",
    "text_values",
]

MAX_PIXELS = 1 << 28
"""Maximum number of pixels per photo: more than PIL decodes."""

BACKGROUND_NAMES = {
    "background", "bg", "_background_", "__background__", "ground", "none", "nothing", "other",
    "others", "unlabelled", "unlabeled", "rest",
}  # fmt: skip

WAY_OUT = (
    "restore that file from a copy, or create the dataset again (gpgc ingest --overwrite), without "
    "those images if their photos are lost"
)


def state(location: Location) -> str:
    """What is at a location.

    Returns
    -------
    str
        "absent", "complete", "unfinished" (an ingest), "updating" (an update takes effect) or
        "foreign".
    """
    return _look(location)[0]


def _look(location: Location) -> tuple[str, list[str], dict[str, Any]]:
    """The :func:`state` of a location, the names in it, and the attributes of its group."""
    names = location.names()
    attributes = _attributes(location) if names else {}
    return _state_of(location, names, attributes), names, attributes


def _state_of(location: Location, names: list[str], attributes: Mapping[str, Any]) -> str:
    if not names:
        return "absent"
    if attributes.get("format") == FORMAT:
        return "complete"
    if UPDATE_FOLDER in names:
        if is_committed(location):
            return "updating"
        if _attributes(location).get("format") == FORMAT:  # it has just been finished
            return "complete"
    return "unfinished" if UNFINISHED_FOLDER in names else "foreign"


def _attributes(location: Location) -> dict[str, Any]:
    return read_attributes(location) or {}


class SuperpixelDataset(xr.Dataset):  # type: ignore[no-untyped-call]
    """An xarray.Dataset that a notebook shows with its photos, see :func:`open_dataset`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        default = str(super()._repr_html_())
        whole = set(VARIABLES) <= set(self.variables) and {"backbone", "classes"} <= set(self.attrs)
        return render_card("dataset", self, default) if whole else default


def open_dataset(
    url: str | PathLike[str],
    storage_options: dict[str, Any] | None = None,
    *,
    verdicts: bool | Collection[str] = True,
) -> SuperpixelDataset:
    """Open a dataset written by ``gpgc ingest``, lazily.

    Parameters
    ----------
    url : str or path-like
        A local path or any fsspec URL.
    storage_options : dict, optional
        Options of fsspec for a URL.
    verdicts : bool or collection of str, default True
        Whether verdicts of people are applied: labels, weights and masks of corrected images are
        those of the corrected masks, and there is a coordinate ``verdict``. Or the ids of the
        verdicts to apply: ``model.verdicts_`` opens the dataset that a model was fitted on.

    Returns
    -------
    SuperpixelDataset
        An xarray.Dataset of dask arrays, to be passed to ``GPGC().fit``.

    Raises
    ------
    CorruptedError
        If what is stored is not what was written: here, or when it is read.

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
    there, names, attributes = _look(location)
    _check_complete(location, url, there)
    attributes = attributes or _attributes(location)  # an update may have just been finished
    check = SameState(location, state_digest(attributes))
    try:
        group = _open_group(location, _read_descriptions(location, attributes), attributes)
        chosen = read_verdicts(location, verdicts) if VERDICTS_FOLDER in names else []
        dataset = _open_arrays(location, group, check, chosen)
    except Exception:
        check()  # an update may have begun to take effect in between
        raise
    _check_photos(dataset, location)
    return dataset


def open_arrays(location: Location, names: Iterable[str]) -> dict[str, VerifiedArray]:
    """Open arrays of a dataset to read parts of them, in this process or on workers."""
    attributes = _attributes(location)
    check = SameState(location, state_digest(attributes))
    group = _open_group(location, _read_descriptions(location, attributes), attributes)
    return {name: _verified(group, name, location, check) for name in names}


def _open_group(
    location: Location, descriptions: Mapping[str, Any], attributes: Mapping[str, Any]
) -> zarr.Group:
    compressed = [name for name, each in descriptions.items() if "zstd" in codec_names(each)]
    return open_verified(
        location,
        descriptions,
        complete=VARIABLES,
        compressed=compressed,
        attributes=attributes,
    )


def _verified(
    group: zarr.Group, name: str, location: Location, check: SameState | None
) -> VerifiedArray:
    return VerifiedArray(group, name, str(location), WAY_OUT, _describe_entries, check)


def _check_complete(location: Location, url: str | PathLike[str], there: str) -> None:
    """Raise an error if there is no complete dataset at a location, of which this is the state."""
    if there == "absent":
        raise MissingFileError(f"{url} does not exist: make a dataset with gpgc ingest")
    if there == "unfinished":
        raise InputError(f"{url} is not finished: resume the same gpgc ingest with --resume")
    if there == "updating":
        raise ChangedError(
            f"an update of {url} is not finished: wait for it or, if it was stopped, finish it "
            "with the same gpgc update"
        )
    if there == "foreign":
        if {"features", "image"} <= set(location.names()):
            raise CorruptedError(
                f"{url} is corrupted: its zarr.json cannot be read; restore that file from a copy, "
                "or remove the dataset and create it again with gpgc ingest"
            )
        raise InputError(f"{url} is not a gpgc_dask dataset: make one with gpgc ingest")


def _read_descriptions(location: Location, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """{name: metadata} of the dataset's arrays, checked."""
    check_version(location, attributes, FORMAT_VERSION)
    arrays = check_digests(location, attributes, WAY_OUT)
    missing = [name for name in VARIABLES if name not in arrays]
    if missing:
        raise CorruptedError(
            f"{location} is corrupted: it lacks {', '.join(missing)}; create it again with gpgc "
            "ingest"
        )
    check_descriptions(arrays, str(location))
    return {name: arrays[name] for name in VARIABLES}


def _open_arrays(
    location: Location, group: zarr.Group, check: SameState, verdicts: list[Verdict]
) -> SuperpixelDataset:
    """Our arrays, each verified when read, and whatever else a user has added to the group."""
    # What an interrupted overwrite or update left in a complete dataset is no part of it.
    for folder in (UNFINISHED_FOLDER, UPDATE_FOLDER, VERDICTS_FOLDER):
        warnings.filterwarnings("ignore", message=f"Object at {re.escape(folder)} is not")
    others = xr.open_zarr(
        group.store,
        chunks={},
        consolidated=False,
        mask_and_scale=False,
        drop_variables=[*VARIABLES],
    )
    stored = {
        name: _verified(group, name, location, check if _is_lazy(name) else None)
        for name in VARIABLES
    }
    own = {name: _variable(array) for name, array in stored.items()}
    check.verify()  # once for all that was read now, not after each of them
    # Coordinates: small, and worth seeing in the dataset's repr.
    coordinates = [name for name in own if own[name].dims in (("photo",), ("feature",))]
    attributes = {name: value for name, value in others.attrs.items() if name != DIGESTS}
    opened = SuperpixelDataset({**own, **others.data_vars}, others.coords, attributes)
    opened = opened.set_coords(coordinates)
    opened.encoding["source"] = location.url
    result = apply_verdicts(opened, stored, verdicts)
    result.encoding |= {"source": location.url, "state": check}
    return result


def _is_lazy(name: str) -> bool:
    """Whether an array is read when it is needed, not when the dataset is opened."""
    dimensions, _, _ = VARIABLES[name]
    return dimensions[0] in ("superpixel", "object") or len(dimensions) > 1


def _variable(array: VerifiedArray) -> xr.Variable:
    """Arrays along rows, pixels or objects as dask arrays, the others in memory."""
    dimensions, dtype, description = VARIABLES[array.name]
    if _is_lazy(array.name):
        meta = np.empty((0,) * array.ndim, dtype=array.dtype)
        name = f"{array.name}-{uuid.uuid4().hex}"
        data = da.from_array(array, array.chunks, name=name, meta=meta)
    else:
        data = array[...]
    if dtype is str:  # xarray cannot compare NumPy's StringDType
        data = data.astype(object)
    return xr.Variable(dimensions, data, {"long_name": description})


def _describe_entries(group: zarr.Group, dimension: str, first: int, last: int) -> str:
    """Which rows and images the entries [first, last) along a dimension are."""
    if dimension == "superpixel":
        photos = np.unique(group["image"][first:last])
        rows = f"rows {first} … {last - 1}, "
    elif dimension == "object":
        return f"objects {first} … {last - 1}"
    else:
        photos, rows = np.arange(first, last), ""
    names = group["image_name"]
    low, high = str(names[int(photos[0])]), str(names[int(photos[-1])])
    return rows + (f"image {low}" if low == high else f"images {low} … {high} ({photos.size})")


def _check_photos(dataset: xr.Dataset, location: Location) -> None:
    """Raise a CorruptedError if the photos of a dataset have impossible sizes, classes or paths."""
    try:
        attributes = dataset.attrs
        check_attributes(attributes)
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
        columns = ("photo_name", "image_path", "mask_path")
        names, images, masks = (text_values(dataset[name]) for name in columns)
        check_sources(names, images, masks, attributes["source"])
        check_names(text_values(dataset["image_name"]), names)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptedError(
            f"{location} is corrupted, or not trustworthy: {error}; {WAY_OUT}"
        ) from error


def text_values(variable: xr.DataArray) -> Labels:
    """Names as NumPy's ordinary text, whichever text type the store has."""
    return np.array(variable.values.tolist(), dtype=str)


def check_unchanged(dataset: xr.Dataset) -> None:
    """Raise a ChangedError if a dataset was updated since it was opened.

    After a computation on it: then all that was read is of one state.
    """
    check = dataset.encoding.get("state")
    if isinstance(check, SameState):
        check.verify()


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset from :func:`open_dataset`, or a selection of its rows."""
    return isinstance(X, xr.Dataset) and "features" in X and "image" in X


def background_class(dataset: xr.Dataset) -> int:
    """Number of the class without objects; -1 if there is none.

    It is the class of value 0. With more than two classes only if its name means background: sky,
    for example, is a class like the others.
    """
    names, values = list(dataset.attrs["classes"]), list(dataset.attrs["class_values"])
    number = values.index(0) if 0 in values else -1
    named = number >= 0 and str(names[number]).strip().lower() in BACKGROUND_NAMES
    return number if len(names) == 2 or named else -1


def provenance(dataset: xr.Dataset) -> dict[str, Any]:
    """Where a dataset's rows come from, as plain values that a model keeps.

    Enough to compute the same features of other photos, and to recognise the dataset.
    """
    names = [
        "classes", "class_values", "source", "backbone", "recipe", "versions", "files_digest",
        "verdicts",
    ]  # fmt: skip
    attributes = {name: dataset.attrs[name] for name in names if name in dataset.attrs}
    return {"url": dataset.encoding.get("source"), "images": dataset.sizes["photo"], **attributes}


def check_same_features(dataset: xr.Dataset, fitted: Mapping[str, Any], n_features: int) -> None:
    """Raise an InputError if a dataset has other features than a model was fitted on.

    Parameters
    ----------
    dataset : xarray.Dataset
        The dataset to be used with the model.
    fitted : mapping
        The :func:`provenance` of the model's dataset.
    n_features : int
        Number of features of the model.
    """
    k = dataset.sizes["feature"]
    if k != n_features:
        raise InputError(
            f"the model was fitted on {n_features} features, and this dataset has {k}: pass the "
            "dataset of the model, or fit a model on this one"
        )
    own = provenance(dataset)
    for part in ("backbone", "recipe"):
        for name, expected in fitted.get(part, {}).items():
            value = own.get(part, {}).get(name)
            if value != expected and name not in ("onnxruntime", "path"):
                raise InputError(
                    f"the model was fitted on other features than this dataset's: {part} {name} "
                    f"is {expected} there, {value} here; fit a model on this dataset"
                )
