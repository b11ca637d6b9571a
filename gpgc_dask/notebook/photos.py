"""Some images of a dataset with their masks, ready to be shown."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.dataset import background_class, open_dataset, text_values
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.models.decisions import to_labels
from gpgc_dask.models.review import check_fitted_on
from gpgc_dask.notebook.overlays import Kind, overlay
from gpgc_dask.results.pictures import Painted, painted
from gpgc_dask.storage.location import is_url

__all__ = ["data_url", "dataset_of", "judged", "numbers_of", "thumbnails"]

THUMBNAIL_SIDE = 112
"""Pixels of a small picture's longer side."""


def dataset_of(model: Any) -> xr.Dataset:
    """The dataset that a model was fitted on, opened where it was."""
    if not hasattr(model, "dataset_"):
        raise InputError(
            "the model was fitted on arrays, which have no photos: fit one on a dataset "
            "(open_dataset)"
        )
    dataset = open_dataset(model.dataset_["url"])
    check_fitted_on(model, dataset)
    return dataset


def numbers_of(dataset: xr.Dataset, names: Sequence[str]) -> Index:
    """Numbers of the photos of these names."""
    place = {name: number for number, name in enumerate(text_values(dataset["image_name"]))}
    unknown = [name for name in names if name not in place]
    if unknown:
        raise InputError(f"the dataset has no image {unknown[0]}: its images are named as files")
    return np.array([place[name] for name in names], dtype=np.intp)


def judged(model: Any, dataset: xr.Dataset, photos: Index, side: int) -> dict[int, Painted]:
    """The photos with their given masks and those predicted by a model that never saw them.

    What leaving a group out takes is in the group's own rows: no others are read.
    """
    part = take_photos(dataset, photos)
    predicted = to_labels(np.asarray(model.leave_group_out(part)), model.classes_)
    return dict(painted(part, np.asarray(predicted, dtype=np.intp), np.sort(photos), side))


def shown(dataset: xr.Dataset, one: Painted, kind: Kind) -> Any:
    """(h, w, 3) a photo with one of its masks in the dataset's classes."""
    return overlay(one, kind, len(dataset.attrs["classes"]), background_class(dataset))


def thumbnails(dataset: xr.Dataset, photos: Index) -> dict[int, str]:
    """Small pictures of photos with their given masks, as data URLs; of those still there.

    None of a dataset at a URL: looking at a variable is no reason to load from afar.
    """
    if is_url(str(dataset.encoding.get("source", ""))):
        return {}
    part = take_photos(dataset, photos)
    labels = np.asarray(part["label"].values, dtype=np.intp)
    made = painted(part, labels, np.sort(photos), THUMBNAIL_SIDE)
    return {photo: _jpeg_url(shown(dataset, one, "given")) for photo, one in made if not one.gone}


def _jpeg_url(pixels: Any) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=80)
    return data_url(content.getvalue(), "image/jpeg")


def data_url(content: bytes, kind: str) -> str:
    """A file's content as an address, so that a page needs no other files."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
