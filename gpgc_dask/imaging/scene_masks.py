"""Masks of scenes that are cut into tiles as their photos are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.core.slices import stored_file
from gpgc_dask.core.tiles import (
    Tile,
    cut_scene,
    join_address,
    scene_name,
    split_address,
    tile_name,
)
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.files import Pair
from gpgc_dask.imaging.image_info import PhotoInfo
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, Item, Mask, MaskSource
from gpgc_dask.imaging.mask_sources.folder import MaskFile
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photos import Orientation, image_size, read_orientation

__all__ = ["TileMask", "check_are_files", "cut_source", "restore_masks"]


class _LastScene:
    """The mask of the scene that was read last: tiles of one scene follow each other."""

    def __init__(self) -> None:
        self._lock, self._mask, self._codes = Lock(), None, None

    def read(self, mask: Any, scene: str) -> Any:
        with self._lock:
            if self._codes is None or mask != self._mask:
                self._mask = self._codes = None  # two scenes do not fit into memory
                self._codes = mask.read(read_orientation(scene))
                self._mask = mask
            return self._codes


LAST = _LastScene()


@dataclass(frozen=True)
class TileMask:
    """The mask of a tile.

    Attributes
    ----------
    mask : Mask
        The mask of the scene.
    tile : Tile
    scene : str
        File of the scene.
    """

    mask: Mask
    tile: Tile
    scene: str

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes, (height, width); pixels that belong to other tiles are void."""
        codes = self._read(orientation).copy()
        codes[self.tile.outside_core()] = VOID
        return codes

    def _read(self, orientation: Orientation) -> Codes:
        if isinstance(self.mask, MaskFile) and _has_scene_size(self.mask.path, self.scene):
            path = join_address(self.mask.path, self.tile)
            return replace(self.mask, path=path).read(orientation)
        return self.tile.crop(LAST.read(self.mask, self.scene))


@lru_cache(maxsize=64)
def _has_scene_size(mask: str, scene: str) -> bool:
    """Whether a mask is drawn on the upright scene, pixel by pixel."""
    size = read_orientation(scene)
    return image_size(mask) == (size.height, size.width)


def cut_source(source: MaskSource, photo_format: PhotoFormat, scenes: Collection[str] = ()) -> None:
    """Replace photos that are larger than a tile by their tiles; changes the source's items.

    ``scenes`` are names of images that are too large to be decoded as a whole.
    """
    if not photo_format.tile:
        source.items = [item for item in source.items if item.pair.name not in scenes]
        reason = "too large to decode as a whole: cut it into tiles (--tile 1024)"
        source.problems += [Problem(name, reason) for name in sorted(scenes)]
        return
    items: list[Item] = []
    for item in source.items:
        try:
            items += _cut_item(item, photo_format)
        except UnusableFileError as error:
            source.problems.append(Problem(item.pair.name, str(error)))
    source.items = _apart(items)
    source.problems.sort(key=lambda problem: problem.name)


def _apart(items: list[Item]) -> list[Item]:
    """The items; tiles of a single scene are on their own, as nothing else could judge them."""
    groups = {item.pair.name if item.info is None else item.info.group for item in items}
    if len(groups) > 1:
        return items
    return [
        item if item.info is None else replace(item, info=replace(item.info, group=item.pair.name))
        for item in items
    ]


def _cut_item(item: Item, photo_format: PhotoFormat) -> list[Item]:
    scene = read_orientation(item.pair.image)
    size, overlap = photo_format.tile, photo_format.overlap
    tiles = list(cut_scene(scene.height, scene.width, size, overlap))
    if len(tiles) == 1:
        return [item]
    known = item.info or PhotoInfo(item.pair.name, item.pair.name)
    cut = []
    for row, column, tile in tiles:
        name = tile_name(item.pair.name, row, column)
        pair = Pair(name, join_address(item.pair.image, tile), join_address(item.pair.mask, tile))
        info = replace(known, photo=tile_name(known.photo, row, column))
        cut.append(Item(pair, item.identity, TileMask(item.mask, tile, item.pair.image), info))
    return cut


def restore_masks(
    source: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
) -> list[Mask | None]:
    """Find masks of a dataset again, those of tiles too.

    Parameters
    ----------
    source : mapping
        Provenance of the masks.
    names, paths : sequence of str
        Name of each image, and the path or address of its mask.
    """
    places = [split_address(path) for path in paths]
    whole = [
        name if tile is None else scene_name(name)
        for name, (_, tile) in zip(names, places, strict=True)
    ]
    kind = MASK_SOURCES[source["format"]]
    masks: list[Mask | None] = kind.restore(source, whole, [path for path, _ in places])
    return [
        mask
        if tile is None or mask is None
        else TileMask(mask, tile, str(Path(source["images"]) / name))
        for mask, name, (_, tile) in zip(masks, whole, places, strict=True)
    ]


def check_are_files(paths: Iterable[str]) -> None:
    """Raise an InputError if photos are tiles or slices, which are no files."""
    if any(stored_file(path) != path for path in paths):
        raise InputError(
            "tiles of scenes and slices of volumes are no files that can be copied or opened by "
            "other tools: write a list of their names (-o keep.txt)"
        )
