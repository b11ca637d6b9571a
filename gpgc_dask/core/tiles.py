"""Tiles of large scenes: where they are, and how they are named.

A tile is read with a margin that it shares with its neighbours, and stands for its core, the cores
of a scene being a partition of it. The address of a tile is that of its file with a fragment,
``scene.tif#xywh=LEFT,TOP,WIDTH,HEIGHT&core=LEFT,TOP,WIDTH,HEIGHT`` in pixels of the upright scene.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tile", "cut_scene", "join_address", "scene_name", "split_address", "tile_name"]

ADDRESS = re.compile(r"#xywh=(\d+),(\d+),(\d+),(\d+)&core=(\d+),(\d+),(\d+),(\d+)$")


@dataclass(frozen=True)
class Tile:
    """A part of a scene, in pixels of the upright scene.

    Attributes
    ----------
    top, left, height, width : int
        What is read.
    core : tuple of int
        Top, left, height and width of the part that no other tile stands for.
    """

    top: int
    left: int
    height: int
    width: int
    core: tuple[int, int, int, int]

    @property
    def area(self) -> int:
        """Pixels of the core."""
        return self.core[2] * self.core[3]

    @property
    def core_slices(self) -> tuple[slice, slice]:
        """Rows and columns of the core in the scene."""
        top, left, height, width = self.core
        return slice(top, top + height), slice(left, left + width)

    def crop(self, scene: NDArray[Any]) -> NDArray[Any]:
        """The tile of an upright scene (H, W, …)."""
        rows, columns = slice(self.top, self.top + self.height), self.left
        return scene[rows, columns : columns + self.width]

    def crop_picture(self, scene: Any) -> Any:
        """The tile of an upright scene that is an image of Pillow."""
        return scene.crop((self.left, self.top, self.left + self.width, self.top + self.height))

    def crop_core(self, values: NDArray[Any]) -> NDArray[Any]:
        """The core of the values (height, width, …) of the tile."""
        top, left, height, width = self.core
        y, x = top - self.top, left - self.left
        return values[y : y + height, x : x + width]

    def outside_core(self) -> NDArray[np.bool_]:
        """(height, width) whether each pixel belongs to another tile."""
        outside = np.ones((self.height, self.width), dtype=np.bool_)
        self.crop_core(outside)[:] = False
        return outside


def cut_scene(height: int, width: int, size: int, overlap: int) -> Iterator[tuple[int, int, Tile]]:
    """Cut a scene into tiles.

    Parameters
    ----------
    height, width : int
        Size of the scene in pixels.
    size : int
        Longest side of a tile, margins included.
    overlap : int
        Pixels that neighbours share.

    Yields
    ------
    row, column : int
        Place of the tile.
    tile : Tile
    """
    columns = _cut_side(width, size, overlap)
    for row, (top, tall, y, h) in enumerate(_cut_side(height, size, overlap)):
        for column, (left, wide, x, w) in enumerate(columns):
            yield row, column, Tile(top, left, tall, wide, (y, x, h, w))


def _cut_side(length: int, size: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """(start, length) of what is read and of the core, of each tile along a side.

    Tiles are of equal length, up to a pixel: a narrow last one would have few superpixels.
    """
    if length <= size:
        return [(0, length, 0, length)]
    number = -(-length // (size - overlap))
    edges = np.linspace(0, length, number + 1).round().astype(int).tolist()
    before, after = overlap // 2, overlap - overlap // 2
    sides = []
    for low, high in pairwise(edges):
        start, stop = max(low - before, 0), min(high + after, length)
        sides.append((start, stop - start, low, high - low))
    return sides


def join_address(path: str | PathLike[str], tile: Tile) -> str:
    """Address of a tile of a file."""
    y, x, h, w = tile.core
    place = f"{tile.left},{tile.top},{tile.width},{tile.height}"
    return f"{fspath(path)}#xywh={place}&core={x},{y},{w},{h}"


def split_address(address: str | PathLike[str]) -> tuple[str, Tile | None]:
    """File and tile of an address; a tile of None is the whole file."""
    text = fspath(address)
    match = ADDRESS.search(text)
    if match is None:
        return text, None
    left, top, width, height, x, y, w, h = map(int, match.groups())
    return text[: match.start()], Tile(top, left, height, width, (y, x, h, w))


def tile_name(scene: str, row: int, column: int) -> str:
    """Name of a tile among the images of a dataset."""
    return f"{scene}/{row:03d}-{column:03d}"


def scene_name(name: str) -> str:
    """Name of the scene of a tile, by :func:`tile_name`."""
    return name.rpartition("/")[0]
