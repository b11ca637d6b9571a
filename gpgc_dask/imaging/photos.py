"""Photos as people see them: RGB, upright, no larger than needed."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from gpgc_dask.core.errors import UnusableFileError

__all__ = [
    "Orientation",
    "Photo",
    "hush",
    "open_image",
    "read_orientation",
    "read_photo",
    "reading",
]

Pixels = NDArray[np.uint8]

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
"""What makes stored pixels upright, by EXIF tag."""

TURNED_BY_PIL = ("TIFF",)
"""Formats that PIL makes upright by itself, and of which it says the upright size."""

SIDEWAYS = (5, 6, 7, 8)
"""EXIF tags that swap height and width."""

DAMAGED = (
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
"""What PIL may raise over a file that is not as it should be."""

ENLARGED = 2
"""JPEGs are decoded at a reduced size still this many times the one asked for."""


@dataclass(frozen=True)
class Orientation:
    """How a photo's file lies against the photo: its size upright and as stored, and the turn."""

    height: int
    width: int
    stored: tuple[int, int]
    turn: Any = None
    """PIL's name of the turn that makes the stored pixels upright, or None."""


@dataclass(frozen=True)
class Photo:
    """(h, w, 3) pixels at working size, and the photo's own size and orientation."""

    pixels: Pixels
    orientation: Orientation


def open_image(path: str | PathLike[str]) -> Any:
    """A PIL image, decoded no further than its header."""
    with reading(path):
        return Image.open(path)


def hush() -> None:
    """No warnings of odd tags, nor at 89 megapixels: PIL refuses at twice that."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[None]:
    """What a damaged file makes PIL do, of whatever kind, is an UnusableFileError that says so."""
    try:
        yield
    except UnusableFileError:
        raise
    except UnidentifiedImageError:
        empty = Path(path).stat().st_size == 0
        raise UnusableFileError(
            "the file is empty" if empty else "not an image, or damaged from the first byte"
        ) from None
    except Image.DecompressionBombError as error:
        raise UnusableFileError(
            f"too large to decode safely ({error}); scale it down first"
        ) from None
    except OSError as error:
        if error.errno is None:
            raise UnusableFileError(f"damaged or cut off: {error}") from None
        raise UnusableFileError(f"cannot be opened: {error.strerror}") from None
    except DAMAGED as error:
        raise UnusableFileError(f"damaged: {type(error).__name__}: {error}") from None


def read_photo(path: str | PathLike[str], side: int) -> Photo:
    """The photo at ``path``, its longest side at most ``side`` pixels; never enlarged.

    Grey, palette, CMYK, 16-bit and transparent images become RGB (transparency on white), and the
    EXIF orientation is applied.
    """
    with open_image(path) as image, reading(path):
        turns_itself = image.format in TURNED_BY_PIL
        orientation = _orientation(image)
        scale = min(side / max(image.size), 1.0)
        size = tuple(max(round(n * scale), 1) for n in image.size)
        image.draft(None, (ENLARGED * size[0], ENLARGED * size[1]))
        image.load()
        image = _rgb(image) if image.mode in ("1", "P", "PA") else _eight_bits(image)
        if size != image.size:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        image = _rgb(image)
        if orientation.turn is not None and not turns_itself:
            image = image.transpose(orientation.turn)
        pixels = np.array(image)
    return Photo(pixels, orientation)


def read_orientation(path: str | PathLike[str]) -> Orientation:
    """How the photo at ``path`` lies, from its header alone."""
    with open_image(path) as image, reading(path):
        return _orientation(image)


def _orientation(image: Any) -> Orientation:
    width, height = image.size
    try:
        tag = image.getexif().get(ORIENTATION_TAG)
    except DAMAGED:  # broken EXIF is no reason to refuse
        tag = None
    turn, sideways = TURNS.get(tag), tag in SIDEWAYS
    swapped, given = (width, height), (height, width)
    if image.format in TURNED_BY_PIL:
        return Orientation(*given, swapped if sideways else given, turn)
    return Orientation(*(swapped if sideways else given), given, turn)


def _eight_bits(image: Any) -> Any:
    """16- and 32-bit grey images scaled to 8 bits; PIL would cut them off at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if values.dtype == np.uint16:
        return Image.fromarray((values // 257).astype(np.uint8))
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(low + high):
        raise UnusableFileError("holds NaN or infinite values")
    low, full = min(low, 0.0), 65535.0 if image.mode.startswith("I") else 1.0
    high = max(high, full) if low == 0.0 else high
    scaled = np.empty(values.shape, dtype=np.uint8)
    for row, line in enumerate(values):  # a line at a time: photos may be huge
        scaled[row] = (line - low) * (255.0 / max(high - low, 1e-12))
    return Image.fromarray(scaled)


def _rgb(image: Any) -> Any:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
