"""The new state of a dataset: its images in order, and the chunks that differ from the present."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import Problem
from gpgc_dask.data.schema import MAPS
from gpgc_dask.data.writing import chunk_shape, create_array
from gpgc_dask.imaging.image_info import PhotoInfo
from gpgc_dask.pipelines.ingest.assemble import ChunkTask, Piece, fill_piece, small_arrays
from gpgc_dask.pipelines.ingest.staging import StagedImage, check_layers, read_array
from gpgc_dask.pipelines.update.changes import StoredImages
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import VerifiedArray

__all__ = ["Entry", "NewState", "UpdateTask", "in_order"]

PRESENT = ""
"""In place of the name of a part: entries of the dataset's array."""

STAMPS = ("photo_stamp", "mask_stamp")
"""Arrays that may differ although nothing has changed."""


@dataclass(frozen=True)
class Entry:
    """An image of the new state.

    Attributes
    ----------
    image : StagedImage
        Its labels and objects, and the part that has the arrays which the dataset does not have.
    number : int or None
        Number of the image of the dataset that has its features and superpixels.
    mask_number : int or None
        Number of the image of the dataset that has its mask.
    """

    image: StagedImage
    number: int | None
    mask_number: int | None


@dataclass(frozen=True)
class UpdateTask(ChunkTask):
    """One chunk that differs from the present one."""

    def write(self, parts: Location, target: Location, present: VerifiedArray) -> None:
        """Write the chunk, completely or not at all, from parts and the dataset's array."""
        array = target.group("r+")[self.kind]
        shape = (self.last - self.first, *array.shape[1:])
        chunk = np.full(shape, MAPS.get(self.kind, 0), dtype=array.dtype)
        for part in sorted(self.parts):
            values = None if part == PRESENT else read_array(parts, part, self.kind)
            for piece in self.pieces:
                if piece.part == part and values is None:
                    _copy(chunk, piece, present)
                elif piece.part == part and values is not None:
                    fill_piece(chunk, piece, values)
        array[self.first : self.last] = chunk


def _copy(chunk: Labels, piece: Piece, present: VerifiedArray) -> None:
    values = present[piece.start : piece.stop]
    # Pixels outside a photo are alike in all maps: they may be cut off, or may be missing.
    used = tuple(slice(min(a, b)) for a, b in zip(values.shape[1:], chunk.shape[1:], strict=True))
    chunk[(slice(piece.place, piece.place + len(values)), *used)] = values[(slice(None), *used)]


def in_order(
    names: Sequence[str], info: Mapping[str, PhotoInfo], numbers: Mapping[str, int]
) -> list[str]:
    """Names of images in the order of the new state.

    Images of a group are adjacent. Groups that the dataset has are where they were, new ones at the
    end: chunks before the first change stay as they are.
    """
    first: dict[str, int] = {}
    for name in names:
        if name in numbers:
            group = info[name].group
            first[group] = min(first.get(group, numbers[name]), numbers[name])

    def place(name: str) -> tuple[bool, int, str, str]:
        group = info[name].group
        return group not in first, first.get(group, 0), group, name

    return sorted(names, key=place)


class NewState:
    """The new state of a dataset, and the tasks that write what differs.

    Parameters
    ----------
    entries : list of Entry
        The images, in order.
    stored : StoredImages
        The images of the present state.
    info : mapping of str to PhotoInfo
        Group, annotator and date of each image.
    problems : list of Problem
        Files that could not be used.
    """

    def __init__(
        self,
        entries: list[Entry],
        stored: StoredImages,
        info: Mapping[str, PhotoInfo],
        problems: list[Problem],
    ) -> None:
        self.entries, self.stored = entries, stored
        records = [entry.image.record for entry in entries]
        check_layers(records)
        self.arrays = small_arrays([entry.image for entry in entries], info, problems)
        n_rows = sum(record.superpixels for record in records)
        tall = max(record.segment_height for record in records)
        wide = max(record.segment_width for record in records)
        self.shapes: dict[str, tuple[int, ...]] = {
            "features": (n_rows, sum(records[0].layers.values())),
            **dict.fromkeys(MAPS, (len(records), tall, wide)),
        }
        self.dtype = stored.dataset["features"].dtype
        self.tasks = [task for kind in self.shapes for task in self._changed(kind)]

    def labels(self, names: Collection[str]) -> dict[str, Labels]:
        """{name: labels of its superpixels} of some images, if it has them."""
        return {
            entry.image.record.name: entry.image.label
            for entry in self.entries
            if entry.image.record.name in names
        }

    def is_present(self) -> bool:
        """Whether it is the present state, apart from times of files."""
        return not self.tasks and all(
            _equal(values, self.stored.dataset[name])
            for name, values in self.arrays.items()
            if name not in STAMPS
        )

    def digest(self, present: str) -> str:
        """Digest of the chunks that differ; ``present`` is that of the present state."""
        known = [
            (entry.image.record.name, entry.image.part, entry.number, entry.mask_number)
            for entry in self.entries
        ]
        return hashlib.sha256(json.dumps([present, known]).encode()).hexdigest()[:24]

    def begin(self, target: Location) -> list[UpdateTask]:
        """Create the large arrays unless they exist; tasks of the chunks that are missing."""
        group = target.group("a")
        for kind, shape in self.shapes.items():
            if not target.exists(f"{kind}/zarr.json"):
                create_array(group, kind, shape, self.dtype)
        written = {f"{kind}/{name}" for kind in self.shapes for name in target.files(kind)}
        return [task for task in self.tasks if task.key not in written]

    def _changed(self, kind: str) -> Iterator[UpdateTask]:
        """Tasks of the chunks that differ from those of the dataset."""
        shape, present = self.shapes[kind], self.stored.dataset[kind].data
        size = chunk_shape(kind, shape, self.dtype)
        same_grid = (size, shape[1:]) == (present.chunksize, present.shape[1:])
        pieces = list(self._pieces(kind))
        places = np.array([piece.place for piece in pieces], dtype=np.int64)
        for number, first in enumerate(range(0, shape[0], size[0])):
            last = min(first + size[0], shape[0])
            low = int(np.searchsorted(places, first, side="right")) - 1
            high = int(np.searchsorted(places, last, side="left"))
            own = tuple(_cut(pieces[low:high], first, last))
            same = len(own) == 1 and own[0] == Piece(PRESENT, first, last, 0)
            ends_alike = last == min(first + size[0], present.shape[0])
            if not (same and same_grid and ends_alike):
                yield UpdateTask(kind, number, first, last, own)

    def _pieces(self, kind: str) -> Iterator[Piece]:
        """Where the entries of an array come from; neighbours in the dataset are one piece."""
        run: Piece | None = None
        place = 0
        for entry in self.entries:
            piece = self._piece(kind, entry, place)
            length = piece.stop - piece.start if kind == "features" else 1
            place += length
            if run is not None and piece.part == PRESENT and run.stop == piece.start:
                run = Piece(PRESENT, run.start, piece.stop, run.place)
                continue
            if run is not None:
                yield run
            run = piece if piece.part == PRESENT else None
            if run is None:
                yield piece
        if run is not None:
            yield run

    def _piece(self, kind: str, entry: Entry, place: int) -> Piece:
        image, record = entry.image, entry.image.record
        number = entry.mask_number if kind == "mask" else entry.number
        if kind == "features":
            if number is not None:
                start, stop = self.stored.starts[number : number + 2].tolist()
                return Piece(PRESENT, start, stop, place)
            return Piece(image.part, image.row, image.row + record.superpixels, place)
        if number is not None:
            return Piece(PRESENT, number, number + 1, place)
        size = (record.segment_height, record.segment_width)
        return Piece(image.part, image.pixel, image.pixel + size[0] * size[1], place, size)


def _cut(pieces: list[Piece], first: int, last: int) -> Iterator[Piece]:
    """Pieces of the entries [first, last), with places in their chunk."""
    for piece in pieces:
        is_map = piece.shape != (0, 0)
        length = 1 if is_map else piece.stop - piece.start
        low, high = max(first, piece.place), min(last, piece.place + length)
        if is_map:
            yield Piece(piece.part, piece.start, piece.stop, low - first, piece.shape)
        else:
            start = piece.start + low - piece.place
            yield Piece(piece.part, start, start + high - low, low - first)


def _equal(values: Labels, stored: xr.DataArray) -> bool:
    if values.shape != stored.shape:
        return False
    return bool(np.array_equal(values, stored.values))
