"""Image files: opened with errors that name the cause, and how they have to be rotated."""

from __future__ import annotations

import logging
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.core.slices import is_medical
from gpgc_dask.core.tiles import Tile, split_address
from gpgc_dask.imaging.medical import open_slice
from gpgc_dask.imaging.tiff import TIFF_ERRORS, open_tiff

__all__ = [
    "Orientation",
    "decoding",
    "image_orientation",
    "image_size",
    "is_tiff",
    "open_image",
    "silence_pillow",
    "stored_orientation",
    "turn_array",
    "turns_itself",
]

ORIENTATION_TAG = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""{EXIF tag: transposition that makes the stored pixels upright}."""

TURNED_BY_PIL = ("TIFF",)
"""Formats that PIL makes upright, and whose upright size it reports."""

SIDEWAYS = (5, 6, 7, 8)
"""EXIF tags that swap height and width."""

TIFF_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

DECODING_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ZeroDivisionError,
    struct.error,
    zlib.error,
)
"""Errors that PIL may raise for a corrupted file."""


@dataclass(frozen=True)
class Orientation:
    """Size and orientation of a photo.

    Attributes
    ----------
    height, width : int
        Size of the upright photo in pixels.
    stored : tuple of int
        (height, width) of the stored pixels.
    turn : PIL.Image.Transpose or None
        Transposition that makes the stored pixels upright.
    """

    height: int
    width: int
    stored: tuple[int, int]
    turn: Any = None


def open_image(path: str | PathLike[str]) -> Any:
    """Open an image with PIL; only its header is decoded, unless it is a tile of a scene."""
    file, tile = split_address(path)
    if is_medical(file):
        return open_slice(file) if tile is None else tile.crop_picture(open_slice(file))
    with decoding(file):
        return Image.open(file) if tile is None else _open_tile(file, tile)


def image_size(path: str | PathLike[str]) -> tuple[int, int]:
    """Height and width of an image as stored."""
    try:
        with open_image(path) as image:
            return int(image.size[1]), int(image.size[0])
    except UnusableFileError:
        with decoding(path):
            if not is_tiff(path):
                raise
            with open_tiff(path) as page:  # Pillow opens no scenes
                return page.height, page.width


def _open_tile(file: str, tile: Tile) -> Any:
    """A tile as an image of PIL. Of a TIFF, only the part of the file that holds it is read."""
    if is_tiff(file):
        with open_tiff(file) as page:
            if page.is_picture:
                try:
                    values, _ = page.read((tile.top, tile.left, tile.height, tile.width))
                except (ValueError, *TIFF_ERRORS):  # a compression that only Pillow knows
                    pass
                else:
                    image = Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
                    if page.palette is not None:
                        image.putpalette(page.palette.tobytes())
                    return image
    return tile.crop_picture(_decode_scene(file, os.stat(file).st_mtime_ns))


@lru_cache(maxsize=1)
def _decode_scene(file: str, _changed: int) -> Any:
    """The scene that was decoded last: its tiles follow each other."""
    image = Image.open(file)
    image.load()
    return image


def silence_pillow() -> None:
    """Silence PIL's warnings of odd tags and of large photos; it rejects 179 megapixels or more."""
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"PIL\.")


@contextmanager
def decoding(path: str | PathLike[str]) -> Iterator[None]:
    """Turn errors of PIL over a corrupted file into an UnusableFileError."""
    try:
        yield
    except UnusableFileError:
        raise
    except UnidentifiedImageError:
        empty = Path(path).stat().st_size == 0
        raise UnusableFileError(
            "the file is empty" if empty else "not an image, or corrupted from the first byte"
        ) from None
    except Image.DecompressionBombError as error:
        raise UnusableFileError(
            f"too large to decode safely ({error}); scale it down first"
        ) from None
    except OSError as error:
        if error.errno is None:
            raise UnusableFileError(f"corrupted or truncated: {error}") from None
        raise UnusableFileError(f"cannot be opened: {error.strerror}") from None
    except DECODING_ERRORS as error:
        raise UnusableFileError(f"corrupted: {type(error).__name__}: {error}") from None


def image_orientation(image: Any) -> Orientation:
    """Size and orientation of an image that Pillow has opened."""
    width, height = image.size
    try:
        tag = image.getexif().get(ORIENTATION_TAG)
    except DECODING_ERRORS:  # broken EXIF data is ignored
        tag = None
    turn, sideways = TURNS.get(tag), tag in SIDEWAYS
    swapped, stored = (width, height), (height, width)
    if image.format in TURNED_BY_PIL:
        return Orientation(*stored, swapped if sideways else stored, turn)
    return Orientation(*(swapped if sideways else stored), stored, turn)


def turns_itself(image: Any) -> bool:
    """Whether Pillow makes the pixels upright when it decodes them."""
    return image.format in TURNED_BY_PIL


def stored_orientation(height: int, width: int, tag: int | None) -> Orientation:
    """Size and orientation of stored pixels of (height, width) with the EXIF tag ``tag``."""
    upright = (width, height) if tag in SIDEWAYS else (height, width)
    return Orientation(*upright, (height, width), None if tag is None else TURNS.get(tag))


def turn_array(array: NDArray[Any], orientation: Orientation) -> NDArray[Any]:
    """Make stored pixels, (h, w, …), upright."""
    turns: dict[Any, Callable[[NDArray[Any]], NDArray[Any]]] = {
        Image.Transpose.FLIP_LEFT_RIGHT: lambda a: a[:, ::-1],
        Image.Transpose.ROTATE_180: lambda a: a[::-1, ::-1],
        Image.Transpose.FLIP_TOP_BOTTOM: lambda a: a[::-1],
        Image.Transpose.TRANSPOSE: lambda a: a.swapaxes(0, 1),
        Image.Transpose.ROTATE_270: lambda a: np.rot90(a, 3),
        Image.Transpose.TRANSVERSE: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        Image.Transpose.ROTATE_90: np.rot90,
    }
    return array if orientation.turn is None else turns[orientation.turn](array)


def is_tiff(path: str | PathLike[str]) -> bool:
    """Whether a file begins as a TIFF does."""
    with open(path, "rb") as file:
        return file.read(4) in TIFF_BEGINNINGS
