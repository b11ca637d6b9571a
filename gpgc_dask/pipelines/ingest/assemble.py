"""Assembling: which rows of which part make up each chunk of the dataset, and the small arrays.

Chunks are written whole, and parts are removed as soon as no chunk needs them, so that the disk
holds the features once, and a few chunks, at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import Problem
from gpgc_dask.data.schema import MAPS, UNFINISHED_FOLDER
from gpgc_dask.data.writing import create_array, finish, write_array
from gpgc_dask.imaging.image_info import PhotoInfo
from gpgc_dask.pipelines.ingest.staging import (
    StagedImage,
    check_layers,
    read_array,
    remove_arrays,
)
from gpgc_dask.storage.location import Location

__all__ = ["Assembly", "ChunkTask", "Piece", "fill_piece", "small_arrays"]

LEDGER = f"{UNFINISHED_FOLDER}/assembly"
"""Digest of the images that the chunks written so far are made of."""

RECORDED_TEXTS = ("image_path", "mask_path", "flags", "photo_stamp", "photo_digest", "mask_stamp")
"""Arrays of texts that are attributes of :class:`ImageRecord`."""


@dataclass(frozen=True)
class Piece:
    """Rows, or one image's pixels, of a part: their position there and in the chunk."""

    part: str
    start: int
    stop: int
    place: int
    shape: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ChunkTask:
    """One chunk of ``features``, ``segments`` or ``mask``: entries [first, last) of the array."""

    kind: str
    number: int
    first: int
    last: int
    pieces: tuple[Piece, ...]

    @property
    def key(self) -> str:
        """The chunk's name in the store."""
        return f"{self.kind}/c/{self.number}/0" + ("/0" if self.kind in MAPS else "")

    @property
    def parts(self) -> set[str]:
        return {piece.part for piece in self.pieces}

    def run(self, location: Location) -> None:
        """Write the chunk, completely or not at all."""
        array = location.group("r+")[self.kind]
        shape = (self.last - self.first, *array.shape[1:])
        chunk = np.full(shape, MAPS.get(self.kind, 0), dtype=array.dtype)
        for part in sorted(self.parts):
            values = read_array(location, part, self.kind)
            for piece in self.pieces:
                if piece.part == part:
                    fill_piece(chunk, piece, values)
        array[self.first : self.last] = chunk


def fill_piece(chunk: Labels, piece: Piece, values: Labels) -> None:
    """Copy rows, or one image's pixels, of a part's array to their place in a chunk."""
    rows = values[piece.start : piece.stop]
    if chunk.ndim == 2:
        chunk[piece.place : piece.place + len(rows)] = rows
    else:
        height, width = piece.shape
        chunk[piece.place, :height, :width] = rows.reshape(height, width)


class Assembly:
    """The staged images in the order of the dataset, and the tasks that assemble it."""

    def __init__(
        self,
        location: Location,
        staged: list[StagedImage],
        dtype: str,
        info: Mapping[str, PhotoInfo],
    ) -> None:
        self.location = location
        self.info = info
        self.staged = sorted(staged, key=lambda one: (info[one.record.name].group, one.record.name))
        self.dtype = dtype
        self.records = [one.record for one in self.staged]
        self.counts = np.array([image.superpixels for image in self.records], dtype=np.int64)
        self.layers = self.records[0].layers
        check_layers(self.records)

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    def digest(self) -> bytes:
        """Digest of the images and their contents."""
        known = [(image.name, image.identity, image.superpixels) for image in self.records]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest().encode()

    def begin(self) -> list[ChunkTask]:
        """Create the large arrays unless they exist; tasks of the chunks that are missing."""
        tall = max(image.segment_height for image in self.records)
        wide = max(image.segment_width for image in self.records)
        shapes = {
            "features": (self.n_rows, sum(self.layers.values())),
            **dict.fromkeys(MAPS, (len(self.records), tall, wide)),
        }
        group = self.location.group("a")
        written: set[str] = set()
        if self.location.exists(LEDGER):
            written = {f"{kind}/{name}" for kind in shapes for name in self.location.files(kind)}
        else:
            for kind, shape in shapes.items():
                self.location.remove(kind)
                create_array(group, kind, shape, self.dtype)
            self.location.write(LEDGER, self.digest())
        tasks = [
            ChunkTask(kind, number, first, last, tuple(pieces))
            for kind in shapes
            for number, (first, last, pieces) in enumerate(self._pieces(kind, group))
        ]
        return [task for task in tasks if task.key not in written]

    def differs_from_ledger(self) -> bool:
        """Whether the chunks written so far are made of other images."""
        return self.location.exists(LEDGER) and self.location.read(LEDGER) != self.digest()

    def _pieces(self, kind: str, group: zarr.Group) -> Iterator[tuple[int, int, list[Piece]]]:
        """(first entry, last entry, pieces) of each chunk of an array."""
        cut = self._image_pieces if kind in MAPS else self._row_pieces
        return cut(group[kind].chunks[0])

    def _row_pieces(self, size: int) -> Iterator[tuple[int, int, list[Piece]]]:
        """(first row, last row, pieces) of each chunk of ``size`` rows."""
        ends = np.cumsum(self.counts)
        for first in range(0, self.n_rows, size):
            last = min(first + size, self.n_rows)
            pieces = []
            for number in range(
                int(np.searchsorted(ends, first, side="right")),
                int(np.searchsorted(ends, last, side="left")) + 1,
            ):
                begin = int(ends[number] - self.counts[number])
                low, high = max(first, begin), min(last, int(ends[number]))
                one = self.staged[number]
                start = one.row + low - begin
                pieces.append(Piece(one.part, start, start + high - low, low - first))
            yield first, last, pieces

    def _image_pieces(self, size: int) -> Iterator[tuple[int, int, list[Piece]]]:
        for first in range(0, len(self.staged), size):
            chunk = self.staged[first : first + size]
            pieces = []
            for place, one in enumerate(chunk):
                shape = (one.record.segment_height, one.record.segment_width)
                stop = one.pixel + shape[0] * shape[1]
                pieces.append(Piece(one.part, one.pixel, stop, place, shape))
            yield first, first + len(chunk), pieces

    def remover(self, tasks: list[ChunkTask]) -> Callable[[ChunkTask], None]:
        """A function to call after each chunk: it removes parts that are no longer needed."""
        needed: Counter[tuple[str, str]] = Counter()
        for task in tasks:
            needed.update((part, task.kind) for part in task.parts)

        def remove_unneeded(task: ChunkTask) -> None:
            for part in task.parts:
                needed[part, task.kind] -= 1
                if not needed[part, task.kind]:
                    remove_arrays(self.location, part, task.kind)

        return remove_unneeded

    def finish(self, problems: list[Problem], attributes: Mapping[str, Any]) -> None:
        """Write the small arrays, mark the dataset as finished, and remove the staged data."""
        group = self.location.group("a")
        for name, values in small_arrays(self.staged, self.info, problems).items():
            self.location.remove(name)
            write_array(group, name, values)
        finish(self.location, attributes)
        self.location.remove(UNFINISHED_FOLDER)


def small_arrays(
    staged: Sequence[StagedImage], info: Mapping[str, PhotoInfo], problems: Sequence[Problem]
) -> dict[str, Labels]:
    """All arrays of a dataset but the large ones, {name: values}.

    Parameters
    ----------
    staged : sequence of StagedImage
        The images, in the order of the dataset.
    info : mapping of str to PhotoInfo
        Group, annotator and date of each image.
    problems : sequence of Problem
        Files that could not be used.
    """
    records = [image.record for image in staged]
    layers = records[0].layers
    counts = [image.superpixels for image in records]
    arrays: dict[str, Labels] = {
        "image": np.repeat(np.arange(len(records), dtype=np.int32), counts),
        "feature_group": np.repeat(_text(list(layers)), list(layers.values())),
    }
    for name in ("label", "weight", "pixels"):
        arrays[name] = np.concatenate([getattr(one, name) for one in staged])
    for name in ("height", "width", "segment_height", "segment_width"):
        arrays[name] = np.array([getattr(image, name) for image in records], dtype=np.int32)
    for name in RECORDED_TEXTS:
        arrays[name] = _text([getattr(image, name) for image in records])
    arrays["image_name"] = _text([image.name for image in records])
    about = [info[image.name] for image in records]
    arrays["photo_name"] = _text([own.photo for own in about])
    for name in ("group", "annotator", "annotated"):
        arrays[name] = _text([getattr(own, name) for own in about])
    arrays |= _object_arrays(staged)
    arrays["skipped_name"] = _text([problem.name for problem in problems])
    arrays["skipped_reason"] = _text([problem.reason for problem in problems])
    return arrays


def _object_arrays(staged: Sequence[StagedImage]) -> dict[str, Labels]:
    """Arrays of the annotated objects, in the order of their images."""
    objects = [one for image in staged for one in image.objects]
    counts = [len(image.objects) for image in staged]
    boxes = np.array([one.box for one in objects], dtype=np.float32).reshape(-1, 4)
    return {
        "object_image": np.repeat(np.arange(len(staged), dtype=np.int32), counts),
        "object_id": _text([one.id for one in objects]),
        "object_class": np.array([one.code for one in objects], dtype=np.uint8),
        "object_crowd": np.array([one.crowd for one in objects], dtype=np.uint8),
        "object_area": np.array([one.area for one in objects], dtype=np.float32),
        "object_box": boxes,
        "object_region": _text([one.counts for one in objects]),
    }


def _text(values: list[str]) -> Labels:
    return np.array(values, dtype=object)
