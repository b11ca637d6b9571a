"""Small pictures of images: the photo, its mask and the prediction."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import xarray as xr
from PIL import Image

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.masks import VOID, Codes
from gpgc_dask.imaging.painting import paint, rows_of, segment_chunks
from gpgc_dask.imaging.photo_format import PhotoFormat, stored_format
from gpgc_dask.imaging.photos import Orientation, Pixels, read_photo, silence_pillow
from gpgc_dask.imaging.slic import Segments
from gpgc_dask.imaging.superpixels import class_counts, sample_codes

__all__ = [
    "Painted",
    "Picture",
    "corrected_mask",
    "encode_jpeg",
    "open_masks",
    "paint_pictures",
    "pictures",
    "read_drawn_mask",
    "read_or_grey",
    "scaled_size",
    "thumbnail_side",
]

Made = TypeVar("Made")

MAX_SIDE, MIN_SIDE = 320, 80
PAGE_BYTES = 40_000_000
"""Approximate size of all pictures of a page; more images have smaller pictures."""

PIXEL_BYTES = 0.4
"""Size of a pixel of a photo as JPEG in base64."""

JPEG_QUALITY = 76

GONE = (90, 90, 90)
"""Colour of a photo that no longer exists."""


@dataclass(frozen=True)
class Painted:
    """A photo with its given and its predicted mask.

    Attributes
    ----------
    pixels : (height, width, 3) array of uint8
        The photo.
    given : (height, width) array
        Given class of each pixel; VOID if it is void.
    predicted : (height, width) array
        Predicted class of each pixel.
    gone : bool
        Whether the photo cannot be read any more, or has another size.
    changed : bool
        Whether the mask has changed since ingest.
    """

    pixels: Pixels
    given: Labels
    predicted: Labels
    gone: bool
    changed: bool = False


@dataclass(frozen=True)
class Picture:
    """A photo with its labels, as files in base64.

    Attributes
    ----------
    width, height : int
        Size in pixels.
    photo : str
        JPEG.
    labels : str
        PNG: red = given class, green = predicted class.
    gone, changed : bool
        See :class:`Painted`.
    """

    width: int
    height: int
    photo: str
    labels: str
    gone: bool
    changed: bool

    @classmethod
    def encode(cls, image: Painted) -> Picture:
        """Encode a painted image."""
        labels = np.stack([image.given, image.predicted, np.zeros_like(image.given)], axis=2)
        height, width = image.given.shape
        photo = base64.b64encode(encode_jpeg(image.pixels)).decode()
        mask = _png(labels.astype(np.uint8))
        return cls(width, height, photo, mask, image.gone, image.changed)


def thumbnail_side(n: int) -> int:
    """Longer side of each of n pictures, so that all fit into a page.

    Parameters
    ----------
    n : int
        Number of pictures.

    Returns
    -------
    int
        Pixels.
    """
    side = math.sqrt(PAGE_BYTES / (PIXEL_BYTES * 0.75 * max(n, 1)))
    return int(min(max(side, MIN_SIDE), MAX_SIDE))


@dataclass(frozen=True)
class _Task:
    """Input of one picture."""

    photo: int
    image_path: str
    segments: Segments
    given: Index
    weight: Array
    predicted: Index
    height: int
    width: int
    photo_format: PhotoFormat
    corrected: Codes | None = None


def pictures(
    dataset: xr.Dataset, predicted: Index, photos: Index, side: int
) -> Iterator[tuple[int, Picture]]:
    """Pictures of photos of a dataset, encoded for a page.

    Parameters
    ----------
    dataset : xarray.Dataset
    predicted : (N,) array of int
        Predicted class of each superpixel.
    photos : (n,) array of int
        Numbers of the photos.
    side : int
        Longer side of a picture in pixels.

    Yields
    ------
    photo : int
        Number of the photo, in the order of the dataset.
    picture : Picture
    """
    return _make(dataset, predicted, photos, side, Picture.encode)


def paint_pictures(
    dataset: xr.Dataset, predicted: Index, photos: Index, side: int
) -> Iterator[tuple[int, Painted]]:
    """Pictures of photos of a dataset as arrays.

    Parameters
    ----------
    dataset, predicted, photos, side
        See :func:`pictures`.

    Yields
    ------
    photo : int
        Number of the photo, in the order of the dataset.
    picture : Painted
    """
    return _make(dataset, predicted, photos, side, lambda image: image)


def _make(
    dataset: xr.Dataset,
    predicted: Index,
    photos: Index,
    side: int,
    finish: Callable[[Painted], Made],
) -> Iterator[tuple[int, Made]]:
    masks = open_masks(dataset)
    silence_pillow()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for numbers, tasks in _blocks(dataset, predicted, photos):
            made = pool.map(lambda task: finish(_paint(task, masks, side)), tasks)
            yield from zip(numbers, made, strict=True)


def open_masks(dataset: xr.Dataset) -> DatasetMasks | None:
    """The masks of the dataset; None if the file that held them all is gone."""
    try:
        return DatasetMasks.from_dataset(dataset)
    except (OSError, ValueError):
        return None


def _blocks(
    dataset: xr.Dataset, predicted: Index, photos: Index
) -> Iterator[tuple[list[int], list[_Task]]]:
    """Tasks of the photos whose superpixel maps are in one chunk, which is read once."""
    image, label = dataset["image"].values, dataset["label"].values.astype(np.intp)
    weight = dataset["weight"].values
    paths = text_values(dataset["image_path"])
    photo_format = stored_format(dataset.attrs)
    heights, widths = dataset["height"].values, dataset["width"].values
    for chunk in segment_chunks(dataset, photos):
        tasks = []
        for photo, segments in chunk:
            rows = rows_of(image, photo)
            tasks.append(
                _Task(
                    photo,
                    paths[photo],
                    segments,
                    label[rows],
                    weight[rows],
                    predicted[rows],
                    int(heights[photo]),
                    int(widths[photo]),
                    photo_format,
                    corrected_mask(dataset, photo),
                )
            )
        yield [photo for photo, _ in chunk], tasks


def corrected_mask(dataset: xr.Dataset, photo: int) -> Codes | None:
    """The mask of a photo as a person has corrected it, at working size; None if there is none."""
    if "verdict" not in dataset or dataset["verdict"].values[photo] != "corrected":
        return None
    h, w = (int(dataset[f"segment_{side}"].values[photo]) for side in ("height", "width"))
    return np.asarray(dataset["mask"][photo, :h, :w].values)


def scaled_size(height: int, width: int, side: int) -> tuple[int, int]:
    """Height and width of a photo that is scaled down to a longest side of ``side`` pixels."""
    scale = min(side / max(height, width), 1.0)
    return max(round(height * scale), 1), max(round(width * scale), 1)


def read_or_grey(
    path: str, size: tuple[int, int], side: int, photo_format: PhotoFormat
) -> tuple[Pixels, Orientation | None, str]:
    """Read a photo, or make a grey picture in its place.

    Parameters
    ----------
    path : str
        The photo.
    size : tuple of int
        Height and width that it is expected to have after it is scaled down.
    side : int
        Longest side in pixels to which it is scaled down.
    photo_format : PhotoFormat
        How it becomes RGB.

    Returns
    -------
    pixels : (height, width, 3) array of uint8
    orientation : Orientation or None
        None if the picture is grey, as the photo cannot be read any more or has another size.
    problem : str
        Why; empty if it is the photo.
    """
    try:
        photo = read_photo(path, side, photo_format)
    except UnusableFileError as error:
        problem = str(error)
    else:
        if photo.pixels.shape[:2] == size:
            return photo.pixels, photo.orientation, ""
        problem = "has another size than at ingest"
    return np.full((*size, 3), GONE, dtype=np.uint8), None, problem


def _paint(task: _Task, masks: DatasetMasks | None, side: int) -> Painted:
    h, w = scaled_size(task.height, task.width, side)
    given: Labels = paint(task.segments, task.given, h, w)
    pixels, orientation, _ = read_or_grey(task.image_path, (h, w), side, task.photo_format)
    gone = orientation is None
    own = None if task.corrected is not None else masks
    drawn = None if orientation is None else read_drawn_mask(own, task.photo, orientation)
    changed = drawn is not None and _has_changed(drawn, task)
    drawn = drawn if task.corrected is None else task.corrected
    if drawn is not None:
        given = sample_codes(drawn, h, w)
    predicted = paint(task.segments, task.predicted, h, w)
    return Painted(pixels, given, predicted, gone, changed)


def _has_changed(drawn: Codes, task: _Task) -> bool:
    """Whether the majority labels of a mask differ from the labels of the superpixels."""
    known = drawn[drawn != VOID]
    n_classes = int(max(task.given.max(), known.max(initial=0))) + 1
    counts = class_counts(task.segments, task.given.size, drawn, n_classes)
    votes, void = counts[:, :-1], counts[:, -1]
    weight = 2 * void < counts.sum(1)
    used = weight & (task.weight > 0)
    return bool(
        np.any(weight != (task.weight > 0)) or np.any(votes.argmax(1)[used] != task.given[used])
    )


def read_drawn_mask(
    masks: DatasetMasks | None, photo: int, orientation: Orientation
) -> Codes | None:
    """Read the mask at the size of the photo; None if it cannot be read any more."""
    try:
        return None if masks is None else masks.codes(photo, orientation)
    except (UnusableFileError, OSError):
        return None


def encode_jpeg(pixels: Pixels, quality: int = JPEG_QUALITY) -> bytes:
    """Encode a photo as JPEG."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=quality)
    return content.getvalue()


def _png(labels: Pixels) -> str:
    content = io.BytesIO()
    Image.fromarray(labels).save(content, "PNG", optimize=True)
    return base64.b64encode(content.getbuffer()).decode()
