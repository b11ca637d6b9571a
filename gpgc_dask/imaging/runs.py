"""Regions of other tools as pixels: run lengths of Label Studio and CVAT, and polygons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpgc_dask.core.arrays import Labels, Mask
from gpgc_dask.core.errors import InputError, UnusableFileError

__all__ = [
    "MAX_COORDINATE",
    "check_brush",
    "check_runs",
    "draw_polygons",
    "fill_boxed_runs",
    "read_brush",
]

MAX_COORDINATE = 1e6
"""Coordinates in pixels beyond this make pycocotools fail or crash."""

CHANNELS = 4
"""Label Studio's masks are pictures of red, green, blue and alpha."""

OPAQUE = 128
"""Alpha from which on a pixel is inside: the edges of a brush are smooth."""


def read_brush(content: Sequence[int], height: int, width: int) -> Mask:
    """Decode a brush of Label Studio: rle-pack of an RGBA picture, inside where it is opaque.

    Parameters
    ----------
    content : sequence of int
        The bytes of the encoding; see :func:`gpgc_dask.results.export.runs.brush_bytes`.
    height, width : int
        Size of the photo.

    Returns
    -------
    (height, width) array of bool

    Raises
    ------
    UnusableFileError
        If the bytes are not those of a picture of this size.
    """
    try:
        values = _unpack(bytes(content), CHANNELS * height * width)
    except (TypeError, ValueError, IndexError) as error:
        raise UnusableFileError(f"a brush cannot be decoded: {error}") from None
    return values.reshape(height, width, CHANNELS)[..., CHANNELS - 1] >= OPAQUE


def check_brush(content: bytes, height: int, width: int) -> None:
    """Raise an UnusableFileError if a brush announces another size than that of its photo."""
    announced, expected = int.from_bytes(content[:4], "big"), CHANNELS * height * width
    if announced != expected:
        raise UnusableFileError(
            f"a brush cannot be decoded: it has {announced:,} values, and the photo {expected:,}"
        )


class _Bits:
    """Reads numbers from a stream of bits."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def read(self, size: int) -> int:
        first, last = self.place, self.place + size
        if last > 8 * len(self.data):
            raise InputError("it ends too early")
        number = int.from_bytes(self.data[first // 8 : (last + 7) // 8], "big")
        self.place = last
        return (number >> (-last % 8)) & ((1 << size) - 1)


def _unpack(data: bytes, expected: int) -> Labels:
    """(n,) values of rle-pack."""
    bits = _Bits(data)
    n, word = bits.read(32), bits.read(5) + 1
    if n != expected:
        raise InputError(f"it has {n:,} values, and the photo {expected:,}")
    sizes = [bits.read(4) + 1 for _ in range(4)]
    values = np.empty(n, dtype=np.uint32)
    place = 0
    while place < n:
        repeated = bits.read(1)
        stop = place + bits.read(sizes[bits.read(2)]) + 1
        if stop > n:
            raise InputError("it has more values than it announces")
        if repeated:
            values[place:stop] = bits.read(word)
        else:
            values[place:stop] = [bits.read(word) for _ in range(stop - place)]
        place = stop
    return values


def fill_boxed_runs(
    lengths: Sequence[int], box: tuple[int, int, int, int], height: int, width: int
) -> Mask:
    """Decode run lengths within a box, as CVAT stores masks.

    Parameters
    ----------
    lengths : sequence of int
        Run lengths within the box, row by row, outside first.
    box : tuple of int
        Left, top, width and height of the box.
    height, width : int
        Size of the photo.

    Returns
    -------
    (height, width) array of bool

    Raises
    ------
    UnusableFileError
        If the lengths do not fill the box, or the box is not within the photo.
    """
    runs = check_runs(lengths, box, height, width)
    left, top, box_width, box_height = box
    inside = np.zeros((height, width), dtype=bool)
    values = np.repeat(np.arange(runs.size) % 2 == 1, runs)
    inside[top : top + box_height, left : left + box_width] = values.reshape(box_height, box_width)
    return inside


def check_runs(
    lengths: Sequence[int], box: tuple[int, int, int, int], height: float, width: float
) -> Labels:
    """The run lengths as an array; an UnusableFileError if they do not fill a box in the photo."""
    left, top, box_width, box_height = box
    within = left >= 0 and top >= 0 and left + box_width <= width and top + box_height <= height
    if not within or box_width < 1 or box_height < 1:
        raise UnusableFileError(f"a mask at {box} is not within the photo of {width}×{height}")
    area = box_width * box_height
    if not lengths or min(lengths) < 0 or max(lengths) > area or sum(lengths) != area:
        raise UnusableFileError(f"the run lengths of a mask do not fill its box {box}")
    return np.asarray(lengths, dtype=np.int64)


def draw_polygons(polygons: Sequence[Sequence[float]], height: int, width: int) -> Mask:
    """Pixels of polygons, drawn as those of a COCO file at ingest.

    Parameters
    ----------
    polygons : sequence of sequence of float
        Coordinates x, y, x, y, … in pixels.
    height, width : int
        Size of the photo.

    Returns
    -------
    (height, width) array of bool

    Raises
    ------
    UnusableFileError
        If a polygon has fewer than three points, or coordinates that are not finite.
    """
    from pycocotools import mask as rle

    for polygon in polygons:
        if len(polygon) < 6 or len(polygon) % 2:
            raise UnusableFileError(
                f"a polygon has {len(polygon)} numbers, and needs at least 3 points (x, y)"
            )
        if any(not abs(number) < MAX_COORDINATE for number in polygon):
            raise UnusableFileError(f"a coordinate is not within ±{MAX_COORDINATE:g}")
    encoded = rle.frPyObjects([list(map(float, one)) for one in polygons], height, width)
    return np.asarray(rle.decode(rle.merge(encoded))).astype(bool)
