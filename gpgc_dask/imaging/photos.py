"""Reading photos: RGB, upright, no larger than needed."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.core.tiles import split_address
from gpgc_dask.imaging.deep import has_data, to_rgb
from gpgc_dask.imaging.image_files import (
    Orientation,
    decoding,
    image_orientation,
    image_size,
    open_image,
    silence_pillow,
    turns_itself,
)
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photo_values import read_orientation, read_values

__all__ = [
    "Orientation",
    "Photo",
    "Pixels",
    "decoding",
    "image_size",
    "open_image",
    "read_orientation",
    "read_photo",
    "reduce_photo",
    "silence_pillow",
]

Pixels = NDArray[np.uint8]

REDUCED_SCALE = 2
"""JPEGs are decoded at a reduced size of at least this many times the requested one."""


@dataclass(frozen=True)
class Photo:
    """A decoded photo.

    Attributes
    ----------
    pixels : (h, w, 3) uint8 array
        Upright RGB pixels at working size.
    orientation : Orientation
        The photo's own size and orientation.
    """

    pixels: Pixels
    orientation: Orientation


def read_photo(
    path: str | PathLike[str], side: int, photo_format: PhotoFormat | None = None
) -> Photo:
    """Decode a photo.

    Grey, palette, CMYK, deep and transparent images become RGB of 8 bits (transparency on white),
    and the EXIF orientation is applied.

    Parameters
    ----------
    path : path
        The photo.
    side : int
        Longest side in pixels to which it is scaled down; it is never enlarged.
    photo_format : PhotoFormat, optional
        How photos of more than 8 bits are stretched.

    Returns
    -------
    Photo

    Raises
    ------
    UnusableFileError
        If the file cannot be decoded.
    """
    photo_format = photo_format or PhotoFormat()
    found = read_values(path, photo_format)
    if found is None:
        return _read_plain(path, side)
    values, orientation = found
    if split_address(path)[1] is None and not has_data(values):  # scenes may have empty tiles
        raise UnusableFileError("holds no data: all of its values are missing, NaN or infinite")
    image = Image.fromarray(to_rgb(values, photo_format))
    return Photo(np.array(_scale_down(image, _scaled_size(image, side))), orientation)


def _read_plain(path: str | PathLike[str], side: int) -> Photo:
    """Decode a photo of 8 bits by Pillow."""
    with open_image(path) as image, decoding(path):
        orientation, turned = image_orientation(image), turns_itself(image)
        size = _scaled_size(image, side)
        image.draft(None, (REDUCED_SCALE * size[0], REDUCED_SCALE * size[1]))
        image.load()
        image = _to_rgb(image) if image.mode in ("1", "P", "PA") else image
        image = _to_rgb(_scale_down(image, size))
        if orientation.turn is not None and not turned:
            image = image.transpose(orientation.turn)
        pixels = np.array(image)
    return Photo(pixels, orientation)


def _scaled_size(image: Any, side: int) -> tuple[int, int]:
    scale = min(side / max(image.size), 1.0)
    width, height = (max(round(n * scale), 1) for n in image.size)
    return width, height


def _scale_down(image: Any, size: tuple[int, int]) -> Any:
    if size == image.size:
        return image
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def reduce_photo(pixels: Pixels, side: int) -> Pixels:
    """Reduce a photo to a longest side of ``side`` pixels by averages; no change if it is smaller.

    Parameters
    ----------
    pixels : (h, w, 3) uint8 array
        The photo.
    side : int
        Longest side in pixels.

    Returns
    -------
    (h', w', 3) uint8 array
        No side is reduced below two pixels.
    """
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return pixels
    size = tuple(max(round(n * scale), min(n, 2)) for n in (width, height))
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


def _to_rgb(image: Any) -> Any:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
