"""From values of superpixels to pictures at the photos' own size."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image

from gpgc_dask.core.arrays import Features, Index, Labels, nearest_rows
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.core.paths import relative_path
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.maps import map_chunks
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.imaging.slic import Segments
from gpgc_dask.storage.location import write_whole

__all__ = [
    "encode_picture",
    "mask_values",
    "paint",
    "paint_image",
    "rows_of",
    "segment_chunks",
    "target_paths",
    "write_masks",
]

IMAGES_PER_TASK = 32


def paint(segments: Segments, values: Labels, height: int, width: int) -> Labels:
    """Give each pixel the value of its superpixel.

    Parameters
    ----------
    segments : (h, w) array
        Number of each pixel's superpixel, at working size.
    values : (n,) array
        Value of each superpixel.
    height, width : int
        Size of the picture in pixels.

    Returns
    -------
    (height, width) array
    """
    rows, columns = nearest_rows(height, segments.shape[0]), nearest_rows(width, segments.shape[1])
    try:
        painted = np.asarray(values)[segments]
    except IndexError:
        raise CorruptedError(
            f"a map names superpixel {segments.max()} of an image that has {len(values)}: the "
            "dataset is corrupted; make it again with gpgc ingest"
        ) from None
    return painted[rows][:, columns]


def paint_image(dataset: xr.Dataset, values: Any, photo: int) -> Labels:
    """Paint the values of a dataset's rows for one image.

    Parameters
    ----------
    dataset : xarray.Dataset
        The whole dataset.
    values : (N,) array
        Value of each superpixel.
    photo : int
        Number of the image.

    Returns
    -------
    (height, width) array
    """
    rows = rows_of(dataset["image"].values, photo)
    return _Image.of(dataset, photo).paint(np.asarray(values[rows]))


def write_masks(dataset: xr.Dataset, labels: Any, folder: str | PathLike[str]) -> list[Path]:
    """Write one mask per image as a PNG named after it, in parallel.

    Parameters
    ----------
    dataset : xarray.Dataset
        The whole dataset.
    labels : (N,) array
        Class codes of the superpixels, as ``predict`` returns them for the dataset; NumPy or dask.
    folder : path
        Folder of the masks.

    Returns
    -------
    list of Path
        The masks, with the values of the dataset's own masks: 0 and 255, or those of the classes.

    Examples
    --------
    >>> from gpgc_dask import load, open_dataset, write_masks
    >>> dataset, model = open_dataset("horses.zarr"), load("model.zarr")
    >>> [path.name for path in write_masks(dataset, model.predict(dataset), "predicted")][:2]
    ['photo_000.png', 'photo_001.png']
    """
    target = Path(folder).expanduser().absolute()
    targets = target_paths(text_values(dataset["image_name"]).tolist(), target)
    codes = np.asarray(labels)
    if codes.shape != (dataset.sizes["superpixel"],):
        raise InputError(
            f"labels have shape {codes.shape} but the dataset has "
            f"{dataset.sizes['superpixel']} superpixels: pass one class code per superpixel"
        )
    values = mask_values(dataset.attrs["class_values"])
    if not np.isin(codes, np.arange(values.size)).all():
        raise InputError(f"labels must be class codes 0 … {values.size - 1}")
    _check_whole(dataset)
    painted = values[codes.astype(np.intp)]
    compute(*lazy_calls("paint", _write, _tasks(dataset, painted, targets)))
    return targets


def _check_whole(dataset: xr.Dataset) -> None:
    """Raise an InputError unless all superpixels are present, as they are numbered per image."""
    image = dataset["image"].values
    whole = dataset["pixels"].values.sum() == (dataset["height"] * dataset["width"]).values.sum()
    if not whole or np.any(np.diff(image) < 0) or image[-1] != dataset.sizes["photo"] - 1:
        raise InputError("some superpixels or images are missing: pass the whole dataset")


@dataclass(frozen=True)
class _Image:
    """Superpixel map and size of one image."""

    segments: Segments
    height: int
    width: int

    @classmethod
    def of(cls, dataset: xr.Dataset, photo: int) -> _Image:
        one = dataset[["segments", "segment_height", "segment_width", "height", "width"]]
        one = one.isel(photo=photo).load(scheduler="sync")
        h, w = int(one["segment_height"]), int(one["segment_width"])
        return cls(one["segments"].values[:h, :w], int(one["height"]), int(one["width"]))

    def paint(self, values: Features) -> Labels:
        return paint(self.segments, values, self.height, self.width)


def rows_of(image: Any, photo: int) -> slice:
    """Slice of the rows of an image, which are adjacent; images are in order."""
    first, last = np.searchsorted(image, [photo, photo + 1])
    return slice(int(first), int(last))


def segment_chunks(
    dataset: xr.Dataset, photos: Index | None = None
) -> Iterator[list[tuple[int, Segments]]]:
    """Read superpixel maps of some photos, or of all, chunk by chunk.

    Each chunk of the maps is read once.

    Yields
    ------
    list of (int, (h, w) array)
        Number and superpixel map, at working size, of the photos in one chunk.
    """
    for chunk in map_chunks(dataset, ("segments",), photos):
        yield [(photo, segments) for photo, segments in chunk]


def mask_values(class_values: Sequence[int]) -> Labels:
    """Mask value of each class, (classes,), in the smallest type that holds them."""
    return np.array(class_values, dtype=np.uint8 if max(class_values) < 256 else np.uint16)


def target_paths(names: Iterable[str], folder: Path, suffix: str = ".png") -> list[Path]:
    """Path of the picture of each image; subfolders as in the images' names."""
    targets = [folder / relative_path(name).with_suffix(suffix) for name in names]
    doubled = [str(path) for path, count in Counter(targets).items() if count > 1]
    if doubled:
        raise InputError(f"several images would be written to {', '.join(doubled)}: rename one")
    return targets


def _tasks(dataset: xr.Dataset, values: Labels, targets: list[Path]) -> Iterator[tuple[Any, ...]]:
    image = dataset["image"].values
    sizes = dataset[["segments", "segment_height", "segment_width", "height", "width"]]
    for first in range(0, len(targets), IMAGES_PER_TASK):
        last = min(first + IMAGES_PER_TASK, len(targets))
        parts = [values[rows_of(image, photo)] for photo in range(first, last)]
        yield sizes.isel(photo=slice(first, last)), parts, targets[first:last]


def _write(images: xr.Dataset, values: list[Labels], targets: list[Path]) -> None:
    for photo, (own, target) in enumerate(zip(values, targets, strict=True)):
        write_whole(target, encode_picture(_Image.of(images, photo).paint(own)))


def encode_picture(values: Labels) -> memoryview:
    """Encode a picture (height, width): a grey PNG of 8 or 16 bits, or a TIFF of float32."""
    content = io.BytesIO()
    if values.dtype == np.float32:
        Image.fromarray(values).save(content, "TIFF", compression="tiff_adobe_deflate")
    else:
        Image.fromarray(values).save(content, "PNG")
    return content.getbuffer()
