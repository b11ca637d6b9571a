"""Reading photos: RGB, upright, no larger than needed."""

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
    "Pixels",
    "decoding",
    "open_image",
    "read_orientation",
    "read_photo",
    "reduce_photo",
    "silence_pillow",
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
"""{EXIF tag: transposition that makes the stored pixels upright}."""

TURNED_BY_PIL = ("TIFF",)
"""Formats that PIL makes upright, and whose upright size it reports."""

SIDEWAYS = (5, 6, 7, 8)
"""EXIF tags that swap height and width."""

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

REDUCED_SCALE = 2
"""JPEGs are decoded at a reduced size of at least this many times the requested one."""


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


def open_image(path: str | PathLike[str]) -> Any:
    """Open an image with PIL; only its header is decoded."""
    with decoding(path):
        return Image.open(path)


def silence_pillow() -> None:
    """Silence PIL's warnings of odd tags and of large photos; it rejects 179 megapixels or more."""
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


def read_photo(path: str | PathLike[str], side: int) -> Photo:
    """Decode a photo.

    Grey, palette, CMYK, 16-bit and transparent images become RGB (transparency on white), and the
    EXIF orientation is applied.

    Parameters
    ----------
    path : path
        The photo.
    side : int
        Longest side in pixels to which it is scaled down; it is never enlarged.

    Returns
    -------
    Photo

    Raises
    ------
    UnusableFileError
        If the file cannot be decoded.
    """
    with open_image(path) as image, decoding(path):
        turns_itself = image.format in TURNED_BY_PIL
        orientation = _orientation(image)
        scale = min(side / max(image.size), 1.0)
        size = tuple(max(round(n * scale), 1) for n in image.size)
        image.draft(None, (REDUCED_SCALE * size[0], REDUCED_SCALE * size[1]))
        image.load()
        image = _to_rgb(image) if image.mode in ("1", "P", "PA") else _to_eight_bits(image)
        if size != image.size:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        image = _to_rgb(image)
        if orientation.turn is not None and not turns_itself:
            image = image.transpose(orientation.turn)
        pixels = np.array(image)
    return Photo(pixels, orientation)


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


def read_orientation(path: str | PathLike[str]) -> Orientation:
    """Read size and orientation of a photo from its header."""
    with open_image(path) as image, decoding(path):
        return _orientation(image)


def _orientation(image: Any) -> Orientation:
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


def _to_eight_bits(image: Any) -> Any:
    """Scale 16- and 32-bit grey images to 8 bits; PIL would clip them at 255."""
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
    for row, line in enumerate(values):  # line by line: photos may be huge
        scaled[row] = (line - low) * (255.0 / max(high - low, 1e-12))
    return Image.fromarray(scaled)


def _to_rgb(image: Any) -> Any:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
