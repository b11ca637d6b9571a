"""Small pictures of every image for the page: the photo, its mask and what is predicted."""

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
from gpgc_dask.imaging.photos import Orientation, Pixels, read_photo, silence_pillow
from gpgc_dask.imaging.superpixels import Segments, class_counts, nearest_rows

__all__ = ["Painted", "Picture", "painted", "pictures", "thumbnail_side"]

Made = TypeVar("Made")

LARGEST_SIDE, SMALLEST_SIDE = 320, 80
PAGE_BYTES = 40_000_000
"""About what the pictures of a page may weigh; more images get smaller pictures."""

PIXEL_BYTES = 0.4
"""A photo's pixel as JPEG, in base64."""

JPEG_QUALITY = 76

GONE = (90, 90, 90)
"""Colour of a photo that is no longer there."""


@dataclass(frozen=True)
class Painted:
    """A photo (h, w, 3) and the classes of its pixels (h, w): given, VOID where void; predicted."""

    pixels: Pixels
    given: Labels
    predicted: Labels
    gone: bool
    """Whether the photo's file could not be read any more, or is of another size."""
    changed: bool = False
    """Whether the mask's file tells other labels than it did at ingest."""


@dataclass(frozen=True)
class Picture:
    """A photo (JPEG) and its labels (PNG: red = given class, green = predicted), in base64."""

    width: int
    height: int
    photo: str
    labels: str
    gone: bool
    changed: bool

    @classmethod
    def of(cls, one: Painted) -> Picture:
        labels = np.stack([one.given, one.predicted, np.zeros_like(one.given)], axis=2)
        h, w = one.given.shape
        packed = _jpeg(one.pixels), _png(labels.astype(np.uint8))
        return cls(w, h, *packed, one.gone, one.changed)


def thumbnail_side(n: int) -> int:
    """Longest side in pixels of each of n pictures, so that all fit into a page."""
    side = math.sqrt(PAGE_BYTES / (PIXEL_BYTES * 0.75 * max(n, 1)))
    return int(min(max(side, SMALLEST_SIDE), LARGEST_SIDE))


@dataclass(frozen=True)
class _Task:
    """All that one picture is made of."""

    photo: int
    image_path: str
    segments: Segments
    given: Index
    weight: Array
    predicted: Index
    height: int
    width: int


def pictures(
    dataset: xr.Dataset, predicted: Index, photos: Index, side: int
) -> Iterator[tuple[int, Picture]]:
    """(photo, picture) of some of a dataset's photos, in the dataset's order; threads work ahead.

    predicted : (N,) class numbers of the superpixels
    """
    return _made(dataset, predicted, photos, side, Picture.of)


def painted(
    dataset: xr.Dataset, predicted: Index, photos: Index, side: int
) -> Iterator[tuple[int, Painted]]:
    """The same as arrays."""
    return _made(dataset, predicted, photos, side, lambda one: one)


def _made(
    dataset: xr.Dataset,
    predicted: Index,
    photos: Index,
    side: int,
    finish: Callable[[Painted], Made],
) -> Iterator[tuple[int, Made]]:
    masks = _masks(dataset)
    silence_pillow()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for numbers, tasks in _blocks(dataset, predicted, photos):
            made = pool.map(lambda task: finish(_painted(task, masks, side)), tasks)
            yield from zip(numbers, made, strict=True)


def _masks(dataset: xr.Dataset) -> DatasetMasks | None:
    """The dataset's masks, None where the file that had them all is gone."""
    try:
        return DatasetMasks.from_dataset(dataset)
    except (OSError, ValueError):
        return None


def _blocks(
    dataset: xr.Dataset, predicted: Index, photos: Index
) -> Iterator[tuple[list[int], list[_Task]]]:
    """Tasks of the photos whose superpixel maps lie in one chunk: each is read once."""
    image, label = dataset["image"].values, dataset["label"].values.astype(np.intp)
    weight = dataset["weight"].values
    paths = text_values(dataset["image_path"])
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
                )
            )
        yield [photo for photo, _ in chunk], tasks


def _painted(task: _Task, masks: DatasetMasks | None, side: int) -> Painted:
    scale = min(side / max(task.height, task.width), 1.0)
    h, w = (max(round(n * scale), 1) for n in (task.height, task.width))
    given: Labels = paint(task.segments, task.given, h, w)
    try:
        photo = read_photo(task.image_path, side)
        pixels, gone = photo.pixels, photo.pixels.shape[:2] != (h, w)
        drawn = None if gone else _drawn(masks, task.photo, photo.orientation)
    except UnusableFileError:
        gone, drawn = True, None
    if gone:
        pixels = np.full((h, w, 3), GONE, dtype=np.uint8)
    changed = drawn is not None and _tells_otherwise(drawn, task)
    if drawn is not None:
        given = drawn[nearest_rows(h, drawn.shape[0])][:, nearest_rows(w, drawn.shape[1])]
    predicted = paint(task.segments, task.predicted, h, w)
    return Painted(pixels, given, predicted, gone, changed)


def _tells_otherwise(drawn: Codes, task: _Task) -> bool:
    """Whether a mask's majorities are not the labels that the superpixels have."""
    known = drawn[drawn != VOID]
    n_classes = int(max(task.given.max(), known.max(initial=0))) + 1
    counts = class_counts(task.segments, task.given.size, drawn, n_classes)
    votes, void = counts[:, :-1], counts[:, -1]
    weight = 2 * void < counts.sum(1)
    used = weight & (task.weight > 0)
    return bool(
        np.any(weight != (task.weight > 0)) or np.any(votes.argmax(1)[used] != task.given[used])
    )


def _drawn(masks: DatasetMasks | None, photo: int, orientation: Orientation) -> Codes | None:
    """The mask at the photo's own size, None where it cannot be had any more."""
    try:
        return None if masks is None else masks.codes(photo, orientation)
    except (UnusableFileError, OSError):
        return None


def _jpeg(pixels: Pixels) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=JPEG_QUALITY)
    return base64.b64encode(content.getbuffer()).decode()


def _png(labels: Pixels) -> str:
    content = io.BytesIO()
    Image.fromarray(labels).save(content, "PNG", optimize=True)
    return base64.b64encode(content.getbuffer()).decode()
