"""Photos as people see them: RGB, upright, no larger than needed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from gpgc_dask.imaging.errors import InputError

__all__ = ["Orientation", "Photo", "decode", "open_image", "read_photo"]

Pixels = NDArray[np.uint8]

ORIENTATION_TAG = 0x0112
ENLARGED = 2
"""JPEGs are decoded at a reduced size still this many times the one asked for."""


@dataclass(frozen=True)
class Orientation:
    """How a photo's file lies against the photo: its size upright and as stored, and the turn."""

    height: int
    width: int
    stored: tuple[int, int]
    transpose: Any
    """PIL's name of the turn that makes the stored pixels upright, or None."""


@dataclass(frozen=True)
class Photo:
    """(h, w, 3) pixels at working size, and the photo's own size and orientation."""

    pixels: Pixels
    orientation: Orientation


def open_image(path: str | PathLike[str]) -> Any:
    """A PIL image, decoded no further than its header."""
    try:
        with warnings.catch_warnings():
            # PIL warns at 89 megapixels and refuses at twice that.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(path)
    except UnidentifiedImageError:
        empty = Path(path).stat().st_size == 0
        raise InputError(
            "the file is empty" if empty else "not an image, or damaged from the first byte"
        ) from None
    except Image.DecompressionBombError as error:
        raise InputError(f"too large to decode safely ({error}); scale it down first") from None
    except OSError as error:
        if error.errno is None:
            raise InputError(f"damaged or cut off: {error}") from None
        raise InputError(f"cannot be opened: {error.strerror}") from None


def read_photo(path: str | PathLike[str], side: int) -> Photo:
    """The photo at ``path``, its longest side at most ``side`` pixels; never enlarged.

    Grey, palette, CMYK, 16-bit and transparent images become RGB (transparency on white), and the
    EXIF orientation is applied.
    """
    with open_image(path) as image:
        orientation = _orientation(image)
        scale = min(side / max(image.size), 1.0)
        size = tuple(max(round(n * scale), 1) for n in image.size)
        image.draft(None, (ENLARGED * size[0], ENLARGED * size[1]))
        decode(image)
        image = _rgb(image) if image.mode in ("1", "P", "PA") else _eight_bits(image)
        if size != image.size:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        image = _rgb(image)
        if orientation.transpose is not None:
            image = image.transpose(orientation.transpose)
    return Photo(np.asarray(image), orientation)


def decode(image: Any) -> None:
    """Decode all pixels; what a cut-off or damaged file does is an InputError."""
    try:
        image.load()
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        raise InputError(f"damaged or cut off: {error}") from None


def _orientation(image: Any) -> Orientation:
    width, height = image.size
    try:
        tag = image.getexif().get(ORIENTATION_TAG)
    except (SyntaxError, ValueError, OSError, KeyError):  # broken EXIF is no reason to refuse
        tag = None
    transpose = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(tag)
    upright = (width, height) if tag in (5, 6, 7, 8) else (height, width)
    return Orientation(*upright, (height, width), transpose)


def _eight_bits(image: Any) -> Any:
    """16- and 32-bit grey images scaled to 8 bits; PIL would cut them off at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image, dtype=np.float64)
    low = min(float(values.min()), 0.0)
    full = 65535.0 if image.mode.startswith("I") else 1.0
    high = max(float(values.max()), full) if low == 0.0 else float(values.max())
    return Image.fromarray(((values - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8))


def _rgb(image: Any) -> Any:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
