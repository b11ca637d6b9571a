"""What pictures are drawn with: boxes, noise, light, paint.

Lengths are pixels, colours RGB in 0 … 1. Shapes are signed distances to their outline, negative
inside, and heights above the picture's plane: the ones give smooth edges, the others light.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

__all__ = ["Box", "Canvas", "Colour", "Field", "edge", "float32", "mix"]

Field: TypeAlias = NDArray[Any]
"""(h, w) float32 numbers of the pixels of a box, or (h, w, 3) their colours."""
Colour: TypeAlias = tuple[float, float, float]
Box: TypeAlias = tuple[slice, slice]

TEXTURE = 256
"""Rows and columns of the periodic noise that all surfaces are made of."""


class Canvas:
    """A picture (h, w, 3) to draw on, with its light and noise.

    Attributes
    ----------
    unit : float
        Height of the picture, or 3/4 of its width if that is smaller.
    sun : float
        Side of the sun, −1 or 1.
    fine, coarse : (TEXTURE, TEXTURE) array
        Noise.
    """

    def __init__(self, rng: np.random.Generator, height: int, width: int) -> None:
        self.rng, self.height, self.width = rng, height, width
        self.unit = min(height, 0.75 * width)
        self.pixels: Field = np.zeros((height, width, 3), dtype=np.float32)
        self.sun = float(rng.choice([-1, 1]))
        self.fine, self.coarse = _fractals(rng, 0.7, 1.7)

    def box(self, top: float, bottom: float, left: float, right: float) -> Box:
        """The pixels of the picture within bounds; at least one."""
        rows = np.clip([top - 2, bottom + 2], (0, 1), (self.height - 1, self.height)).astype(int)
        columns = np.clip([left - 2, right + 2], (0, 1), (self.width - 1, self.width)).astype(int)
        return slice(*rows.tolist()), slice(*columns.tolist())

    def grid(self, box: Box) -> tuple[Field, Field]:
        """Rows (h, 1) and columns (1, w) of a box."""
        y, x = (np.arange(span.start, span.stop, dtype=np.float32) for span in box)
        return y[:, None], x[None, :]

    def noise(self, texture: Field, y: Any, x: Any, cell: float) -> Field:
        """Noise with standard deviation 1 at places in pixels; a texel has ``cell`` pixels."""
        down, right = self.rng.uniform(0, TEXTURE, 2).astype(np.float32)
        rows, columns = y / cell + down, x / cell + right
        if rows.shape[1] == 1 and columns.shape[0] == 1:  # a grid, one axis after the other
            return _between(_between(texture, rows[:, 0]).T, columns[0]).T
        at = np.broadcast_arrays(rows, columns)
        return ndimage.map_coordinates(texture, at, order=1, mode="grid-wrap")

    def tinted(self, colour: Colour, spread: float = 0.12) -> Field:
        """(3,) a colour, slightly changed at random."""
        return float32(colour * (self.rng.normal(1, spread) + self.rng.normal(0, spread / 4, 3)))

    def blend(self, box: Box, alpha: Field, colour: Any) -> None:
        """Blend a colour (3,) or (h, w, 3) into a box, with opacity ``alpha`` (h, w) in 0 … 1."""
        pixels = self.pixels[box]
        pixels += float32(alpha)[..., None] * (float32(colour) - pixels)

    def solid(self, box: Box, distance: Field, height: Field, colour: Any) -> Field:
        """Paint a lit thing and return (h, w) the share of each pixel that it covers."""
        cover = np.zeros((self.height, self.width), dtype=np.float32)
        cover[box] = edge(distance)
        self.blend(box, cover[box], colour * self.lit(height)[..., None])
        return cover

    def lit(self, height: Field, soft: float = 1.0) -> Field:
        """(h, w) brightness of a surface of height (h, w), lit from one side above."""
        down, right = np.gradient(ndimage.gaussian_filter(float32(height), soft))
        facing = 0.66 - 0.45 * self.sun * right + 0.6 * down
        return 0.55 + 0.7 * np.maximum(facing, 0) / np.sqrt(1 + down**2 + right**2)

    def darken(self, box: Box, shadow: Field) -> None:
        """Draw a slightly blue shadow (h, w) in 0 … 1."""
        self.pixels[box] *= 1 - float32(shadow)[..., None] * float32((0.62, 0.58, 0.5))

    def blur(self, sigma: float) -> None:
        self.pixels = ndimage.gaussian_filter(self.pixels, (sigma, sigma, 0), truncate=3)

    def develop(self) -> NDArray[np.uint8]:
        """The picture as a camera records it: soft, with dark corners, a colour cast and grain."""
        self.blur(0.0019 * self.unit)
        y, x = np.ogrid[-1 : 1 : self.height * 1j, -1 : 1 : self.width * 1j]
        exposure = self.rng.uniform(0.98, 1.1) * (1 - 0.09 * (y**2 + x**2))
        cast = float32(1 + self.rng.normal(0, 0.02, 3))
        grain = self.rng.standard_normal(self.pixels.shape, dtype=np.float32)
        light = self.pixels * float32(exposure)[..., None]
        light *= 255 * cast
        light += 3.3 * grain
        return np.clip(light, 0, 255, out=light).astype(np.uint8)


def float32(values: Any) -> Field:
    """Numbers as an array of float32."""
    return np.asarray(values, dtype=np.float32)


def _between(texture: Field, places: Field) -> Field:
    """(n, columns) rows of a periodic texture, interpolated between whole ones."""
    first = np.floor(places)
    share = float32(places - first)[:, None]
    row = first.astype(np.intp)
    before, after = (texture.take(row + step, axis=0, mode="wrap") for step in (0, 1))
    return before + share * (after - before)


def _fractals(rng: np.random.Generator, *powers: float) -> Iterator[Field]:
    """(TEXTURE, TEXTURE) periodic noise with standard deviation 1 and amplitude 1/f^power."""
    frequency = np.hypot(np.fft.fftfreq(TEXTURE)[:, None], np.fft.rfftfreq(TEXTURE))
    frequency[0, 0] = np.inf
    white = np.fft.rfft2(rng.standard_normal((TEXTURE, TEXTURE), dtype=np.float32))
    for power in powers:
        noise = np.fft.irfft2(white / float32(frequency**power))
        yield float32(noise / noise.std())


def edge(distance: Field) -> Field:
    """(h, w) share of each pixel that is inside an outline."""
    return np.clip(0.5 - distance, 0, 1)


def mix(first: Any, second: Any, share: Any) -> Field:
    """Colours between two, ``share`` (h, w) of the second."""
    first, second = float32(first), float32(second)
    return first + float32(share)[..., None] * (second - first)
