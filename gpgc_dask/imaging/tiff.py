"""TIFF files that Pillow cannot read: of more than 8 bits, more bands, planar and in tiles."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.errors import UnusableFileError

__all__ = ["MAX_PIXELS", "TIFF_ERRORS", "TiffPage", "Window", "open_tiff"]

Window = tuple[int, int, int, int]
"""Top, left, height and width in pixels."""

ORIENTATION = 274
NODATA = 42113
ALPHA = (1, 2)
"""Kinds of extra samples that are opacity."""

MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE = range(4)
SEPARATE = 2

MAX_PIXELS = 178_956_970
"""Larger photos are not decoded as a whole; the limit of Pillow."""

TIFF_ERRORS = (RuntimeError, AttributeError, AssertionError, MemoryError)
"""Errors of tifffile over a corrupted file, in addition to those of Pillow."""


@contextmanager
def open_tiff(path: str | PathLike[str], page: int = 1) -> Iterator[TiffPage]:
    """Open a page of a TIFF file; only headers are read.

    Parameters
    ----------
    path : path
        The file.
    page : int, default 1
        Number of the page, from 1; reduced copies and masks in the file do not count.
    """
    import tifffile  # only photos that need it

    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    try:
        with tifffile.TiffFile(path) as file:
            yield TiffPage.of(file, page)
    except tifffile.TiffFileError as error:
        raise ValueError(str(error)) from error  # earlier versions derive it from Exception


class TiffPage:
    """A page of an open TIFF file.

    Attributes
    ----------
    height, width : int
        Size as stored, in pixels.
    bands : int
        Number of values per pixel, opacity not included.
    dtype : numpy.dtype
        Type of the values.
    orientation : int
        Tag of the orientation, as in EXIF.
    missing : float or None
        The value that stands for "no data".
    inverted : bool
        Whether 0 is white.
    pages : int
        Number of pages of the file.
    palette : (256, 3) array of uint8, or None
        Colours of the values.
    is_picture : bool
        Whether the values are those of a grey, palette or colour picture of 8 bits, or grey of 16.
    """

    def __init__(self, page: Any, pages: int) -> None:
        if page.axes not in ("YX", "YXS", "SYX") or page.dtype is None:
            raise UnusableFileError(
                f"a TIFF of axes {page.axes or '?'}: photos must have rows, columns and bands"
            )
        self._page = page
        self.pages = pages
        self.height, self.width = int(page.imagelength), int(page.imagewidth)
        self.dtype = np.dtype(page.dtype)
        if self.dtype.kind not in "uifb":
            raise UnusableFileError(f"holds values of type {self.dtype}, which are no numbers")
        samples = int(page.samplesperpixel)
        extra = [int(kind) for kind in page.extrasamples]
        places = [samples - len(extra) + i for i, kind in enumerate(extra) if kind in ALPHA]
        self._alpha = places[0] if places and samples > 1 else None
        self._colour = [band for band in range(samples) if band != self._alpha]
        self.bands = len(self._colour)
        self.orientation = _tag(page, ORIENTATION)
        self.missing = _number(_tag(page, NODATA))
        self.inverted = int(page.photometric) == MIN_IS_WHITE
        self.palette = None if page.colormap is None else (page.colormap.T >> 8).astype(np.uint8)
        kinds = {MIN_IS_BLACK: (1,), RGB: (3,), PALETTE: (1,)}
        self.is_picture = (
            (self.dtype == np.uint8 or (self.dtype == np.uint16 and self.bands == 1))
            and self.bands in kinds.get(int(page.photometric), ())
            and self._alpha is None
            and self.orientation in (None, 1)
        )

    @classmethod
    def of(cls, file: Any, number: int) -> Self:
        """A page by its number, from 1."""
        pages = list(file.pages)
        whole = [page for page in pages if not (page.is_reduced or page.is_mask)] or pages
        if not whole:
            raise UnusableFileError("a TIFF without a picture")
        if not 1 <= number <= len(whole):
            raise UnusableFileError(f"has {len(whole)} pages: there is no page {number} (--page)")
        return cls(whole[number - 1], len(whole))

    def read(self, window: Window | None = None) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Read the page, or the part of it in a window, as stored.

        Parameters
        ----------
        window : tuple of int, optional
            Top, left, height and width in stored pixels. Only the strips or tiles of the file that
            it touches are decoded.

        Returns
        -------
        values : (h, w, bands) array
        alpha : (h, w) array or None
            Opacity.
        """
        if window is None:
            if self.height * self.width > MAX_PIXELS:
                raise UnusableFileError(
                    f"too large to decode as a whole ({self.width}×{self.height} pixels): cut it "
                    "into tiles (--tile 1024)"
                )
            array = self._page.asarray(maxworkers=1)
            array = np.moveaxis(array, 0, -1) if self._page.axes == "SYX" else array
            array = array.reshape(self.height, self.width, -1)
        else:
            array = self._read_window(*window)
        alpha = None if self._alpha is None else array[..., self._alpha]
        return array[..., self._colour], alpha

    def _read_window(self, top: int, left: int, height: int, width: int) -> NDArray[Any]:
        """(height, width, samples) values of a window."""
        page = self._page
        samples = int(page.samplesperpixel)
        if page.is_memmappable:
            array = page.asarray(out="memmap")
            array = np.moveaxis(array, 0, -1) if page.axes == "SYX" else array
            array = array.reshape(self.height, self.width, samples)
            return np.array(array[top : top + height, left : left + width])
        tall = int(page.tilelength if page.is_tiled else page.rowsperstrip)
        wide = int(page.tilewidth if page.is_tiled else page.imagewidth)
        down, across = -(-self.height // tall), -(-self.width // wide)
        planes = samples if int(page.planarconfig) == SEPARATE else 1
        result = np.full((height, width, samples), page.nodata, dtype=self.dtype)
        for plane, row, column in product(
            range(planes),
            range(top // tall, -(-(top + height) // tall)),
            range(left // wide, -(-(left + width) // wide)),
        ):
            piece = self._decode((plane * down + row) * across + column)
            if piece is None:  # a hole of a sparse file
                continue
            y, x = row * tall, column * wide
            rows = slice(max(top, y), min(top + height, y + piece.shape[0]))
            columns = slice(max(left, x), min(left + width, x + piece.shape[1]))
            bands = slice(plane, plane + 1) if planes > 1 else slice(None)
            result[_shift(rows, top), _shift(columns, left), bands] = piece[
                _shift(rows, y), _shift(columns, x)
            ]
        return result

    def _decode(self, number: int) -> NDArray[Any] | None:
        """One strip or tile, (rows, columns, samples); None if it is not stored."""
        page = self._page
        count = page.databytecounts[number]
        if not count:
            return None
        handle = page.parent.filehandle
        handle.seek(page.dataoffsets[number])
        content = handle.read(count)
        tables = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader}
        piece, _, _ = page.decode(content, number, **tables)
        return None if piece is None else piece[0]


def _shift(own: slice, start: int) -> slice:
    return slice(own.start - start, own.stop - start)


def _tag(page: Any, code: int) -> Any:
    tag = page.tags.get(code)
    return None if tag is None else tag.value


def _number(text: Any) -> float | None:
    """The number in the tag of GDAL; None if there is none, or NaN, which is missing anyway."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
