"""Images of a dataset with their masks, for display."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import xarray as xr
from PIL import Image

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.dataset import background_class, text_values
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.imaging.photos import Pixels
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.fitted_dataset import check_fitted_on, open_fitted
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import leave_out_values
from gpgc_dask.notebook.overlays import Kind, overlay
from gpgc_dask.results.pictures import Painted, paint_pictures
from gpgc_dask.storage.location import is_url

__all__ = [
    "data_url",
    "open_training_data",
    "paint_photos",
    "photo_numbers",
    "photo_with_mask",
    "thumbnails",
]

THUMBNAIL_SIDE = 112
"""Longer side of a small picture in pixels."""


def open_training_data(model: FittedModel) -> xr.Dataset:
    """Open the dataset that a model was fitted on.

    Parameters
    ----------
    model : FittedModel

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    InputError
        If the model was fitted on arrays, or the dataset has changed since.
    """
    if model.dataset_info is None:
        raise InputError(
            "the model was fitted on arrays, which have no photos: fit one on a dataset "
            "(open_dataset)"
        )
    dataset = open_fitted(model, model.dataset_info["url"])
    check_fitted_on(model, dataset)
    return dataset


def photo_numbers(dataset: xr.Dataset, names: Sequence[str]) -> Index:
    """Numbers of the photos of some names.

    Parameters
    ----------
    dataset : xarray.Dataset
    names : sequence of str
        Paths within the folder of photos.

    Returns
    -------
    (names,) array of int
    """
    place = {name: number for number, name in enumerate(text_values(dataset["image_name"]))}
    unknown = [name for name in names if name not in place]
    if unknown:
        raise InputError(f"the dataset has no image {unknown[0]}: its images are named as files")
    return np.array([place[name] for name in names], dtype=np.intp)


def paint_photos(
    model: FittedModel, dataset: xr.Dataset, photos: Index, side: int
) -> dict[int, Painted]:
    """Paint photos with their given masks and the masks predicted without them.

    Parameters
    ----------
    model : FittedModel
    dataset : xarray.Dataset
        The dataset of the model.
    photos : (n,) array of int
        Numbers of the photos.
    side : int
        Longer side of a picture in pixels.

    Returns
    -------
    dict
        {photo: Painted}.

    Notes
    -----
    The features are not read if the model keeps the decision values of its review. Otherwise only
    the rows of these photos are read, because leaving a group out needs no others.
    """
    if model.leave_out is None:
        dataset = take_photos(dataset, photos)
        values = np.asarray(model.leave_group_out(dataset))
    else:
        values = leave_out_values(model, dataset)
    predicted = np.asarray(decide(values, model.classes_, model.calibration), dtype=np.intp)
    return dict(paint_pictures(dataset, predicted, np.sort(photos), side))


def photo_with_mask(dataset: xr.Dataset, photo: Painted, kind: Kind) -> Pixels:
    """A photo with one of its masks.

    Parameters
    ----------
    dataset : xarray.Dataset
        Names the classes.
    photo : Painted
    kind : {"given", "predicted", "differ"}

    Returns
    -------
    (height, width, 3) array of uint8
    """
    return overlay(photo, kind, len(dataset.attrs["classes"]), background_class(dataset))


def thumbnails(dataset: xr.Dataset, photos: Index) -> dict[int, str]:
    """Small pictures of photos with their given masks.

    Parameters
    ----------
    dataset : xarray.Dataset
    photos : (n,) array of int
        Numbers of the photos.

    Returns
    -------
    dict
        {photo: data URL} of the photos that still exist. Empty for a dataset at a URL, so that
        displaying a variable does not download anything.
    """
    if is_url(str(dataset.encoding.get("source", ""))):
        return {}
    part = take_photos(dataset, photos)
    labels = np.asarray(part["label"].values, dtype=np.intp)
    made = paint_pictures(part, labels, np.sort(photos), THUMBNAIL_SIDE)
    return {
        number: _jpeg_url(photo_with_mask(dataset, photo, "given"))
        for number, photo in made
        if not photo.gone
    }


def _jpeg_url(pixels: Pixels) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=80)
    return data_url(content.getvalue(), "image/jpeg")


def data_url(content: bytes, kind: str) -> str:
    """A data URL with the content of a file.

    Parameters
    ----------
    content : bytes
    kind : str
        Media type, such as "image/png".

    Returns
    -------
    str
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
