"""The work of an update on a Dask cluster: photos and masks to parts, parts to chunks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpgc_dask.core.errors import Problem, StoppedError, UnusableFileError
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.core.threads import keep_freed_memory
from gpgc_dask.data.schema import FORMAT_VERSION, UPDATE_FOLDER
from gpgc_dask.execution.batches import completed_batches, completed_pieces, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker
from gpgc_dask.imaging.features import PHASES, PhotoFeatures, Recipe, Stopwatch, label
from gpgc_dask.imaging.image_info import PhotoInfo
from gpgc_dask.imaging.mask_sources import Item, MaskSource, ObjectMask
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import read_orientation, silence_pillow
from gpgc_dask.pipelines.batches import BatchResult, killed_result, problem_error, tasks_ahead
from gpgc_dask.pipelines.ingest.staging import (
    ImageRecord,
    StagedImage,
    read_array,
    read_index,
    write_part,
)
from gpgc_dask.pipelines.ingest.work import cut_batches, process_batch, without_path
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.update.assemble import Entry, UpdateTask, in_order
from gpgc_dask.pipelines.update.changes import Changes, StoredImages
from gpgc_dask.pipelines.update.lock import UpdateLock
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import VerifiedArray

__all__ = ["AGAIN", "Labelling", "Staging", "label_batch", "write_chunks"]

AGAIN = "run the same update again"

MASKS_PER_TASK = 32


@dataclass(frozen=True)
class Labelling:
    """A mask to be read on superpixels that the dataset has.

    Attributes
    ----------
    item : Item
        The photo and its mask.
    number : int
        Number of the image whose superpixels these are.
    size : tuple of int
        Number of superpixels, height and width of their map.
    digest : str
        Digest of the photo's file.
    """

    item: Item
    number: int
    size: tuple[int, int, int]
    digest: str

    @property
    def pair(self) -> Any:
        """The photo and its mask, as of an item."""
        return self.item.pair


def label_batch(
    jobs: Sequence[Labelling],
    layers: dict[str, int],
    mask_format: MaskFormat,
    segments: VerifiedArray,
    location: Location,
) -> BatchResult:
    """Read some masks and stage them as one part without features. Runs on a worker."""
    keep_freed_memory()
    silence_pillow()
    watch = Stopwatch()
    finished, problems = [], []
    first, last = jobs[0].number, max(job.number for job in jobs) + 1
    maps = segments[first:last]
    for job in jobs:
        n, height, width = job.size
        own = np.ascontiguousarray(maps[job.number - first, :height, :width])
        try:
            with watch("decode"):
                orientation = read_orientation(job.pair.image)
                codes = job.item.mask.read(orientation)
            with watch("pooling"):
                described = PhotoFeatures(np.empty((n, 0)), own, layers, orientation)
                labelled = label(described, codes, len(mask_format.names), mask_format.background)
                if isinstance(job.item.mask, ObjectMask):
                    objects = job.item.mask.read_objects(orientation, height, width)
                    labelled = replace(labelled, objects=tuple(objects))
        except UnusableFileError as error:
            problems.append(Problem(job.pair.name, str(error)))
            continue
        except Exception as error:
            error.add_note(f"while working on {job.pair.mask}")
            raise
        record = ImageRecord.of(job.item, job.digest, described, labelled)
        finished.append((record, described, labelled))
    if finished:
        with watch("write"):
            write_part(location, finished)
    return BatchResult(len(finished), problems, watch.seconds)


def write_chunk(
    task: UpdateTask, parts: Location, target: Location, present: dict[str, VerifiedArray]
) -> None:
    """Write one chunk of the new state. Runs on a worker."""
    task.write(parts, target, present[task.kind])


class Staging:
    """Images of the new state that are not in the dataset: their parts, and problems with them.

    Parameters
    ----------
    location : Location
        The dataset.
    source : MaskSource
        The images and their masks.
    stored : StoredImages
        The images of the dataset.
    changes : Changes
        What has to be done.
    parameters : mapping
        All that features depend on except the files.
    present : str
        Digest of the dataset's state.
    """

    def __init__(
        self,
        location: Location,
        source: MaskSource,
        stored: StoredImages,
        changes: Changes,
        parameters: Mapping[str, Any],
        present: str,
    ) -> None:
        self.parts = Location(f"{location.url}/{UPDATE_FOLDER}", location.options)
        self.source, self.mask_format = source, source.mask_format
        self.stored = stored
        self.kept = {item.pair.name: item for item in changes.kept}
        made_with = _digest([FORMAT_VERSION, without_path(dict(parameters))])
        labelled_with = _digest(["labels", made_with, present])
        self.described = [_identified(item, made_with) for item in changes.described]
        sizes = np.stack(
            [
                np.diff(stored.starts),
                *(stored.dataset[f"segment_{name}"].values for name in ("height", "width")),
            ],
            axis=1,
        ).tolist()
        self.labelled = [
            Labelling(
                _identified(item, labelled_with),
                number,
                tuple(sizes[number]),
                stored.photo_digests[number],
            )
            for item, number in changes.labelled
        ]
        self.problems: list[Problem] = []
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.images: dict[str, StagedImage] = {}

    def read(self) -> None:
        """Find the images that an earlier attempt has staged."""
        items = [*self.described, *(job.item for job in self.labelled)]
        wanted = {item.pair.name: item.identity for item in items}
        for image in read_index(self.parts):
            if wanted.get(image.record.name) == image.record.identity:
                self.images[image.record.name] = image

    def run(
        self,
        client: Client,
        recipe: Recipe | None,
        segments: VerifiedArray,
        options: RunOptions,
        listener: Listener | None,
        lock: UpdateLock,
    ) -> None:
        """Stage what is not staged yet; problems raise an error, or are collected."""
        self.read()
        total = len(self.described) + len(self.labelled)
        meter = Meter(listener, "images", total, len(self.images))
        masks = sorted(self._missing(self.labelled), key=lambda job: job.number)
        photos = self._missing(self.described)
        size = max(int(segments.chunks[0]), 1)
        shared = (self.stored.layers, self.mask_format, segments, self.parts)
        self._stage(client, label_batch, _by_chunk(masks, size), shared, options, meter, lock)
        if recipe is not None:
            own = (recipe, self.mask_format, self.parts)
            self._stage(client, process_batch, cut_batches(photos), own, options, meter, lock)
        self.read()
        missing = total - len(self.images) - len(self.problems)
        if missing:
            raise StoppedError(f"{missing} finished images are gone from {self.parts}: {AGAIN}")

    def _missing(self, jobs: Iterable[Any]) -> list[Any]:
        return [job for job in jobs if job.pair.name not in self.images]

    def _stage(
        self,
        client: Client,
        function: Callable[..., BatchResult],
        batches: Sequence[list[Any]],
        arguments: tuple[Any, ...],
        options: RunOptions,
        meter: Meter,
        lock: UpdateLock,
    ) -> None:
        """Run ``function(batch, *arguments)`` for all batches, on workers."""
        with closing(self._results(client, function, batches, arguments)) as results:
            for batch, result in results:
                lock.check()
                self.problems += result.problems
                for phase, seconds in result.seconds.items():
                    self.seconds[phase] += seconds
                if result.problems and options.on_error == "raise":
                    raise problem_error(result.problems)
                meter(len(batch), len(self.problems))

    def _results(
        self,
        client: Client,
        function: Callable[..., BatchResult],
        batches: Sequence[list[Any]],
        arguments: tuple[Any, ...],
    ) -> Generator[tuple[list[Any], BatchResult]]:
        """(batch, its result) as they are finished."""
        ahead = tasks_ahead(client)
        for batch, future in completed_batches(
            "update", client, function, batches, arguments, ahead
        ):
            what = f"{batch[0].pair.name} … {batch[-1].pair.name}"
            with translate_failures(self.parts, what, AGAIN):
                try:
                    result = future.result()
                except KilledWorker:
                    result = killed_result(batch[0].pair.name)
            yield batch, result

    def entries(
        self, info: Mapping[str, PhotoInfo], masks: VerifiedArray | None
    ) -> tuple[list[Entry], set[str]]:
        """The images of ``info``, in order, and the names of those with other labels than before.

        Images that are not staged stay as they are: their files are the same, or are gone.
        """
        earlier, numbers = self.stored.load(), self.stored.numbers
        bases = {job.pair.name: job.number for job in self.labelled}
        entries, relabelled = [], set()
        for name in in_order(list(info), info, numbers):
            image, number = self.images.get(name), numbers.get(name)
            if masks is not None and image is not None and name in bases and number is not None:
                if self._is_same(image, earlier[number], masks):
                    entries.append(
                        Entry(replace(earlier[number], record=image.record), number, number)
                    )
                    continue
                relabelled.add(name)
            if image is not None:
                entries.append(Entry(image, bases.get(name), None))
            elif number is not None:
                own = earlier[number]
                record = _with_files(own.record, self.kept.get(name), self.source, self.stored)
                entries.append(Entry(replace(own, record=record), number, number))
        return entries, relabelled

    def _is_same(self, image: StagedImage, stored: StagedImage, masks: VerifiedArray) -> bool:
        """Whether a mask that was read again is the stored one."""
        if _labels(image) != _labels(stored):
            return False
        height, width = image.record.segment_height, image.record.segment_width
        pixels = masks[stored.pixel : stored.pixel + 1][0, :height, :width]
        staged = read_array(self.parts, image.part, "mask")
        own = staged[image.pixel : image.pixel + height * width]
        return bool(np.array_equal(own, pixels.ravel()))


def _labels(image: StagedImage) -> tuple[Any, ...]:
    """Everything but pixels that follows from a mask; numbers as a dataset stores them."""
    objects = [
        (one.id, one.code, one.crowd, one.counts, *map(np.float32, (one.area, *one.box)))
        for one in image.objects
    ]
    labels = (np.asarray(values).tobytes() for values in (image.label, image.weight, image.pixels))
    return image.record.flags, *labels, objects


def _with_files(
    record: ImageRecord, item: Item | None, source: MaskSource, stored: StoredImages
) -> ImageRecord:
    """The record with the present paths; and stamps, if its files are as they were."""
    if item is not None:
        return replace(
            record,
            image_path=item.pair.image,
            mask_path=item.pair.mask,
            photo_stamp=item.photo_stamp,
            mask_stamp=item.mask_stamp,
        )
    within = os.path.relpath(record.mask_path, stored.masks)
    photo = os.path.relpath(record.image_path, stored.images)
    return replace(
        record,
        image_path=os.path.normpath(os.path.join(source.images, photo)),
        mask_path=os.path.normpath(os.path.join(source.masks, within)),
    )


def write_chunks(
    client: Client,
    tasks: list[UpdateTask],
    parts: Location,
    target: Location,
    present: dict[str, VerifiedArray],
    listener: Listener | None,
    lock: UpdateLock,
) -> None:
    """Write the chunks of the new state that are missing at ``target``."""
    meter = Meter(listener, "writing", len(tasks))
    arguments, ahead = (parts, target, present), tasks_ahead(client)
    with closing(
        completed_pieces("write", client, write_chunk, tasks, arguments, ahead)
    ) as results:
        for task, future in results:
            lock.check()
            with translate_failures(target, f"chunk {task.key}", AGAIN):
                future.result()
            meter(1, 0)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _identified(item: Item, made_with: str) -> Item:
    """The item; one that is processed with other settings is another one."""
    return replace(item, identity=f"{item.identity} {made_with}")


def _by_chunk(jobs: Sequence[Labelling], size: int) -> list[list[Labelling]]:
    """Batches of masks whose superpixels are in one chunk of ``size`` images."""
    batches: list[list[Labelling]] = []
    for job in jobs:
        last = batches[-1] if batches else []
        other = not last or last[0].number // size != job.number // size
        if other or len(last) >= MASKS_PER_TASK:
            batches.append([])
        batches[-1].append(job)
    return batches
