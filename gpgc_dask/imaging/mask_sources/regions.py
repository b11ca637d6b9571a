"""Outlines of annotated shapes, as tools store them, and their pixels."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from gpgc_dask.core.arrays import Mask as Pixels
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.mask_sources.documents import to_number
from gpgc_dask.imaging.photos import decoding
from gpgc_dask.imaging.runs import (
    check_brush,
    check_runs,
    draw_polygons,
    fill_boxed_runs,
    read_brush,
)

__all__ = ["BoxedRuns", "Brush", "Ellipse", "Picture", "Polygon", "Region"]

Size = tuple[int, int]

TOLERANCE = 0.02
"""Shares of a photo by which a relative coordinate may be outside of it, as tools round."""

NEEDED_POINTS = 3


class Region(Protocol):
    """An outline. Small, and drawn by the worker that needs it."""

    def check(self, size: Size | None) -> None:
        """Raise an UnusableFileError if it cannot be drawn on a photo of this size, if known."""

    def draw(self, height: int, width: int) -> Pixels:
        """Pixels (height, width) inside."""


@dataclass(frozen=True)
class Polygon:
    """A polygon.

    Attributes
    ----------
    points : tuple of float
        Coordinates x, y, x, y, …
    full : float
        What stands for the photo's full width and height: 1 or 100. 0 means pixels.
    """

    points: tuple[float, ...]
    full: float = 0

    @classmethod
    def read(cls, points: Any, full: float = 0) -> Polygon:
        """A polygon of a list of [x, y]."""
        if not isinstance(points, list) or not all(
            isinstance(one, list) and len(one) == 2 for one in points
        ):
            raise UnusableFileError("a polygon has no list of points [x, y]")
        numbers = (to_number(number, "a coordinate") for one in points for number in one)
        return cls(tuple(numbers), full)

    def area(self) -> float:
        """Area in its own unit."""
        x, y = np.asarray(self.points[::2]), np.asarray(self.points[1::2])
        return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)

    def check(self, size: Size | None) -> None:
        if len(self.points) < 2 * NEEDED_POINTS:
            points = len(self.points) // 2
            raise UnusableFileError(
                f"a polygon has {points} {'point' if points == 1 else 'points'} and needs at least "
                f"{NEEDED_POINTS}: complete or remove it"
            )
        if self.full:
            far = [n for n in self.points if not -TOLERANCE <= n / self.full <= 1 + TOLERANCE]
            if far:
                raise UnusableFileError(
                    f"a coordinate is {far[0]:g}, outside of 0 … {self.full:g}: coordinates are "
                    "relative to the photo's size in this format, not pixels"
                )
        elif size is not None:
            for numbers, side in ((self.points[::2], size[1]), (self.points[1::2], size[0])):
                if max(numbers) < 0 or min(numbers) > side:
                    raise UnusableFileError(
                        f"a polygon is completely outside of the photo of {size[1]}×{size[0]} "
                        f"pixels, at x {self.points[0]:g}, y {self.points[1]:g}: correct or remove "
                        "it"
                    )

    def draw(self, height: int, width: int) -> Pixels:
        points = np.asarray(self.points, dtype=np.float64)
        if self.full:
            points = points * np.tile([width, height], points.size // 2) / self.full
        return draw_polygons([points.tolist()], height, width)


@dataclass(frozen=True)
class Ellipse:
    """An ellipse, with its centre, half axes and rotation in degrees.

    ``full`` is as in :class:`Polygon`.
    """

    x: float
    y: float
    half_width: float
    half_height: float
    degrees: float = 0
    full: float = 0

    def check(self, size: Size | None) -> None:
        if self.half_width <= 0 or self.half_height <= 0:
            raise UnusableFileError("an ellipse or circle has no area: correct or remove it")

    def draw(self, height: int, width: int) -> Pixels:
        scale = (width / self.full, height / self.full) if self.full else (1.0, 1.0)
        y, x = np.ogrid[0.5:height, 0.5:width]
        x, y = x - self.x * scale[0], y - self.y * scale[1]
        cos, sin = np.cos(np.radians(self.degrees)), np.sin(np.radians(self.degrees))
        along = (x * cos + y * sin) / (self.half_width * scale[0])
        across = (y * cos - x * sin) / (self.half_height * scale[1])
        return np.asarray(along**2 + across**2 <= 1)


@dataclass(frozen=True)
class BoxedRuns:
    """Run lengths within a box (left, top, width, height), as CVAT stores masks."""

    lengths: str
    box: tuple[int, int, int, int]

    def _numbers(self) -> Sequence[int]:
        try:
            return [int(number) for number in self.lengths.split(",")]
        except ValueError:
            raise UnusableFileError("a mask has run lengths that are no numbers") from None

    def check(self, size: Size | None) -> None:
        check_runs(self._numbers(), self.box, *(size or (np.inf, np.inf)))

    def draw(self, height: int, width: int) -> Pixels:
        return fill_boxed_runs(self._numbers(), self.box, height, width)


@dataclass(frozen=True)
class Brush:
    """A brush of Label Studio, the bytes of its encoding."""

    content: bytes

    def check(self, size: Size | None) -> None:
        if size is not None:
            check_brush(self.content, *size)

    def draw(self, height: int, width: int) -> Pixels:
        return read_brush(self.content, height, width)


@contextmanager
def _embedded() -> Iterator[None]:
    """Turn errors over a picture that is part of a text into an UnusableFileError."""
    try:
        with decoding("."):  # has no file of its own
            yield
    except UnusableFileError as error:
        text = str(error)
        reason = text if text.startswith("a mask") else f"a mask is no picture in base64: {text}"
        raise UnusableFileError(reason) from None


@dataclass(frozen=True)
class Picture:
    """A PNG in base64 whose top left corner is at a place, as LabelMe stores masks.

    Attributes
    ----------
    content : str
        The PNG; pixels that are not 0 are inside.
    left, top : int
        Place of its first pixel.
    size : tuple of int
        Its height and width.
    """

    content: str
    left: int
    top: int
    size: Size

    def _open(self) -> Any:
        with _embedded():
            image = Image.open(io.BytesIO(base64.b64decode(self.content, validate=True)))
        if image.size != self.size[::-1]:
            raise UnusableFileError(
                f"a mask is {image.size[0]}×{image.size[1]} pixels, and its points enclose "
                f"{self.size[1]}×{self.size[0]}: correct or remove it"
            )
        return image

    def check(self, size: Size | None) -> None:
        self._open()
        height, width = size or (np.inf, np.inf)
        within = self.left + self.size[1] <= width and self.top + self.size[0] <= height
        if self.left < 0 or self.top < 0 or not within:
            raise UnusableFileError(
                f"a mask at x {self.left}, y {self.top} is not within the photo: correct or remove "
                "it"
            )

    def draw(self, height: int, width: int) -> Pixels:
        self.check((height, width))
        with _embedded():
            values = np.asarray(self._open().convert("L")) > 0
        inside = np.zeros((height, width), dtype=bool)
        inside[self.top : self.top + self.size[0], self.left : self.left + self.size[1]] = values
        return inside
