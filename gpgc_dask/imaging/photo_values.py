"""Which program reads a photo, and the values of those that Pillow would turn into 8 bits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.core.slices import is_medical, stored_file
from gpgc_dask.core.tiles import Tile, split_address
from gpgc_dask.imaging.deep import Values, full_scale
from gpgc_dask.imaging.image_files import (
    Orientation,
    decoding,
    image_orientation,
    is_tiff,
    open_image,
    stored_orientation,
    turn_array,
    turns_itself,
)
from gpgc_dask.imaging.medical import read_slice, read_slice_header
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.tiff import TIFF_ERRORS, TiffPage, Window, open_tiff

__all__ = ["Header", "read_header", "read_orientation", "read_values"]

PLAIN_MODES = frozenset(("1", "L", "P", "PA", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB"))
"""Modes of Pillow of 8 bits per value."""

CONVERTED_MODES = PLAIN_MODES - {"L", "LA", "RGB", "RGBA", "RGBX"}
"""Modes whose values are no bands: indices of a palette, inks, brightness and colour."""

STRIP_PIXELS = 1 << 20

SCENE_LOCK = Lock()
"""Threads of a worker decode a scene once."""

BITS, SAMPLES, PLANAR, SAMPLE_FORMAT = 258, 277, 284, 339
"""Tags of TIFF."""

CODEC_NEEDED = "imagecodecs"


class _CodecError(UnusableFileError):
    """tifffile cannot decompress a file without another package."""


@dataclass(frozen=True)
class Header:
    """What the header of a photo contains.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the values.
    bands : int
        Number of values per pixel, opacity not included.
    pages : int
        Number of pages of the file.
    """

    dtype: np.dtype[Any]
    bands: int = 3
    pages: int = 1

    @property
    def is_deep(self) -> bool:
        """Whether there are more than 8 bits per value."""
        return self.dtype.itemsize > 1


def read_header(path: str | PathLike[str]) -> Header:
    """Read the header of a photo."""
    path, _ = split_address(path)
    if is_medical(path):
        own = read_slice_header(path)
        return Header(own.dtype, own.bands)
    with _opened(path) as image:
        if image is None or (image.format == "TIFF" and image.mode not in CONVERTED_MODES):
            with _tiff(path) as page:
                return Header(page.dtype, page.bands, page.pages)
        is_grey = image.mode in ("L", "LA", "F") or image.mode.startswith("I")
        return Header(_dtype(image), 1 if is_grey else 3)


def read_orientation(path: str | PathLike[str]) -> Orientation:
    """Read size and orientation of a photo from its header; tiles of scenes are upright."""
    path, tile = split_address(path)
    if tile is not None:
        return Orientation(tile.height, tile.width, (tile.height, tile.width))
    if is_medical(path):
        own = read_slice_header(path)
        return stored_orientation(own.height, own.width, None)
    with _opened(path) as image:
        if image is None:
            with _tiff(path) as page:
                return _page_orientation(page)
        with decoding(path):
            return image_orientation(image)


def read_values(
    path: str | PathLike[str], photo_format: PhotoFormat
) -> tuple[Values, Orientation] | None:
    """Read a photo that is not one of 8 bits, and upright values.

    Parameters
    ----------
    path : path
        The photo.
    photo_format : PhotoFormat
        Which of its values are used.

    Returns
    -------
    (Values, Orientation) or None
        None if Pillow can convert the photo to RGB without a loss.
    """
    file, tile = split_address(path)
    if tile is not None:
        return _tile_values(file, tile, photo_format)
    if is_medical(file):
        return _slice_values(file, photo_format)
    with _opened(path) as image:
        chosen = bool(photo_format.bands) or photo_format.page > 1
        if image is not None and not chosen and _is_plain(image):
            return None
        if image is not None and (image.format != "TIFF" or image.mode in CONVERTED_MODES):
            _seek(image, photo_format.page)
            with decoding(path):
                return _pillow_values(image, photo_format.bands)
        try:
            return _tiff_values(path, photo_format)
        except _CodecError:
            # Pillow decompresses more; it keeps 8 bits of colours, and knows the first page.
            lossy = image is None or (image.mode in PLAIN_MODES and _dtype(image).itemsize > 1)
            if lossy or photo_format.page > 1:
                raise
            with decoding(path):
                if image.mode in PLAIN_MODES and not chosen:
                    return None
                return _pillow_values(image, photo_format.bands)


def _slice_values(path: str, photo_format: PhotoFormat) -> tuple[Values, Orientation]:
    """Values of a DICOM image, or of a slice of a volume."""
    array, inverted = read_slice(path)
    values = Values(_choose(array, photo_format.bands), full_scale(array.dtype), inverted=inverted)
    return values, stored_orientation(array.shape[0], array.shape[1], None)


def _tile_values(file: str, tile: Tile, photo_format: PhotoFormat) -> tuple[Values, Orientation]:
    """Values of a tile. Only the part of a TIFF that holds it is decoded, if tifffile can."""
    orientation = Orientation(tile.height, tile.width, (tile.height, tile.width))
    if not is_medical(file) and not _by_pillow(file):
        try:
            with _tiff(file, photo_format.page) as page:
                if page.orientation in (None, 1):
                    window = (tile.top, tile.left, tile.height, tile.width)
                    return _page_values(page, photo_format, window), orientation
        except _CodecError:
            pass
    with SCENE_LOCK:
        scene = _decode_scene(file, os.stat(stored_file(file)).st_mtime_ns, photo_format)
    alpha = None if scene.alpha is None else tile.crop(scene.alpha)
    return replace(scene, array=tile.crop(scene.array), alpha=alpha), orientation


def _by_pillow(file: str) -> bool:
    with _opened(file) as image:
        return image is not None and (image.format != "TIFF" or image.mode in CONVERTED_MODES)


@lru_cache(maxsize=1)
def _decode_scene(file: str, _changed: int, photo_format: PhotoFormat) -> Values:
    """Values of the scene that was decoded last: its tiles follow each other."""
    found = read_values(file, photo_format)
    if found is None:
        with open_image(file) as image, decoding(file):
            return _pillow_values(image, photo_format.bands)[0]
    return found[0]


@contextmanager
def _opened(path: str | PathLike[str]) -> Iterator[Any]:
    """The image as opened by Pillow; None if it is a TIFF that Pillow does not open."""
    try:
        image = open_image(path)
    except UnusableFileError:
        with decoding(path):
            known = not is_tiff(path)
        if known:
            raise
        yield None
        return
    with image:
        yield image


@contextmanager
def _tiff(path: str | PathLike[str], number: int = 1) -> Iterator[TiffPage]:
    with decoding(path):
        try:
            with open_tiff(path, number) as page:
                yield page
        except TIFF_ERRORS as error:
            raise UnusableFileError(f"corrupted: {type(error).__name__}: {error}") from None
        except ValueError as error:
            if CODEC_NEEDED not in str(error):
                raise
            raise _CodecError(
                "a TIFF whose compression needs another package: pip install gpgc_dask[tiff], or "
                "compress it by deflate"
            ) from None


def _seek(image: Any, number: int) -> None:
    """Go to a page of an image; frames of animations are no pages."""
    pages = image.n_frames if image.format == "TIFF" else 1
    if number > pages:
        raise UnusableFileError(
            f"has {pages if pages > 1 else 'one'} page{'s' * (pages > 1)}: there is no page "
            f"{number} (--page)"
        )
    if number > 1:
        image.seek(number - 1)


def _is_plain(image: Any) -> bool:
    """Whether Pillow decodes an image of 8 bits correctly."""
    if image.mode not in PLAIN_MODES or _is_deep_png(image):
        return False
    if image.format != "TIFF":
        return True
    tags = image.tag_v2
    return (
        max(_numbers(tags.get(BITS, 1))) <= 8
        and max(_numbers(tags.get(SAMPLE_FORMAT, 1))) == 1
        and tags.get(PLANAR, 1) == 1
        and tags.get(SAMPLES, 1) in (1, 2, 3, 4)
    )


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def _is_deep_png(image: Any) -> bool:
    return bool(image.format == "PNG" and image.tile and "16B" in str(image.tile[0][3]))


def _dtype(image: Any) -> np.dtype[Any]:
    """Type of the values of an image that Pillow has opened."""
    if image.format == "TIFF":
        bits = max(_numbers(image.tag_v2.get(BITS, 1)))
        kind = {2: "i", 3: "f"}.get(max(_numbers(image.tag_v2.get(SAMPLE_FORMAT, 1))), "u")
        size = next((size for size in (1, 2, 4, 8) if bits <= 8 * size), 8)
        return np.dtype(f"f{max(size, 2)}" if kind == "f" else f"{kind}{size}")
    if image.mode == "F":
        return np.dtype("f4")
    return np.dtype("u2" if image.mode.startswith("I") or _is_deep_png(image) else "u1")


def _pillow_values(image: Any, bands: Sequence[int]) -> tuple[Values, Orientation]:
    """Values of an image as Pillow reads them."""
    dtype = _dtype(image)
    array = _deep_png(image) if _is_deep_png(image) else _by_strips(image)
    # Only now: Pillow decodes a PNG to look for its EXIF data.
    orientation, turned = image_orientation(image), turns_itself(image)
    array = array if turned else turn_array(array, orientation)
    array = array.reshape(*array.shape[:2], -1)
    alpha = array[..., -1] if array.shape[2] in (2, 4) else None
    colour = array if alpha is None else array[..., :-1]
    return Values(_choose(colour, bands), full_scale(dtype), alpha), orientation


def _by_strips(image: Any) -> NDArray[Any]:
    """Values of an image of 8 bits, or of one deep band; a scene must not be copied as a whole."""
    image.load()
    convert = image.mode in CONVERTED_MODES
    width, height = image.size
    step = max(STRIP_PIXELS // width, 1)
    strips = (
        image.crop((0, top, width, min(top + step, height))) for top in range(0, height, step)
    )
    arrays = (np.asarray(strip.convert("RGB") if convert else strip) for strip in strips)
    first = next(arrays)
    result = np.empty((height, *first.shape[1:]), dtype=first.dtype)
    result[: len(first)] = first
    for number, array in enumerate(arrays, 1):
        result[number * step : number * step + len(array)] = array
    return result


def _choose(array: NDArray[Any], bands: Sequence[int]) -> NDArray[Any]:
    """Select bands, (h, w, 1 or 3): those that are named, else the first three, or the first."""
    present = array.shape[2]
    wrong = [number for number in bands if number > present]
    if wrong:
        raise UnusableFileError(
            f"has {present} band{'s' * (present > 1)}: there is no band {wrong[0]} (--bands)"
        )
    return array[..., [n - 1 for n in bands] or slice(3 if present >= 3 else 1)]


def _deep_png(image: Any) -> NDArray[Any]:
    """(h, w, bands) values of a PNG of 16 bits.

    Pillow keeps one byte of each value of colours. Which one depends on the byte order that it
    assumes, so that decoding twice gives both.
    """
    raw = image.tile[0][3]
    if raw.startswith("I"):
        return np.asarray(image)
    if raw.startswith("LA"):  # two values of 16 bits have the bytes of four of 8 bits
        both = _decode_as(image, "RGBA").astype(np.uint16)
        return both[..., ::2] << 8 | both[..., 1::2]
    with open_image(image.filename) as other:
        low = _decode_as(other, raw.replace("16B", "16L"))
    return _decode_as(image, raw).astype(np.uint16) << 8 | low


def _decode_as(image: Any, raw: str) -> NDArray[np.uint8]:
    image.tile = [(*image.tile[0][:3], raw)]
    image.load()
    return np.asarray(image)


def _tiff_values(
    path: str | PathLike[str], photo_format: PhotoFormat
) -> tuple[Values, Orientation]:
    with _tiff(path, photo_format.page) as page:
        return _page_values(page, photo_format), _page_orientation(page)


def _page_values(page: TiffPage, photo_format: PhotoFormat, window: Window | None = None) -> Values:
    orientation = _page_orientation(page)
    array, alpha = page.read(window)
    array = turn_array(_choose(array, photo_format.bands), orientation)
    alpha = None if alpha is None else turn_array(alpha, orientation)
    return Values(array, full_scale(page.dtype), alpha, page.missing, page.inverted)


def _page_orientation(page: TiffPage) -> Orientation:
    return stored_orientation(page.height, page.width, page.orientation)
