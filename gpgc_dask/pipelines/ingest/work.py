"""The work of an ingest on a Dask cluster: images to parts, parts to chunks of the dataset.

The tasks depend on the list of images alone, never on the number of workers, so that a dataset
made in ten attempts equals one made in a single attempt.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpgc_dask.core.errors import (
    PipelineError,
    Problem,
    StoppedError,
    UnusableFileError,
    list_problems,
)
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.core.slices import stored_file
from gpgc_dask.core.threads import keep_freed_memory
from gpgc_dask.data.schema import FORMAT_VERSION, UNFINISHED_FOLDER
from gpgc_dask.execution.batches import completed_batches, completed_pieces, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker
from gpgc_dask.imaging.features import PHASES, Recipe, Stopwatch, describe, label
from gpgc_dask.imaging.image_info import PhotoInfo
from gpgc_dask.imaging.mask_sources import Item, MaskSource, ObjectMask, file_digest
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.pipelines.batches import (
    IMAGES_PER_TASK,
    BatchResult,
    killed_result,
    problem_error,
    tasks_ahead,
)
from gpgc_dask.pipelines.ingest.assemble import LEDGER, Assembly, ChunkTask
from gpgc_dask.pipelines.ingest.staging import (
    ARRAYS,
    ImageRecord,
    StagedImage,
    complete_parts,
    read_index,
    remove_parts,
    write_part,
)
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.storage.location import Location

__all__ = ["IngestRun", "WriterMark", "cut_batches", "process_batch", "without_path"]


def process_batch(
    items: Sequence[Item], recipe: Recipe, mask_format: MaskFormat, location: Location
) -> BatchResult:
    """Compute the rows of some images and stage them as one part. Runs on a worker."""
    keep_freed_memory()
    silence_pillow()
    watch = Stopwatch()
    finished, problems = [], []
    photo, digest, described = "", "", None
    for item in items:
        try:
            if described is None or item.pair.image != photo:
                photo, described = item.pair.image, None
                described = describe(photo, recipe, watch)
                digest = _scene_digest(stored_file(photo), item.photo_stamp)
            with watch("decode"):
                codes = item.mask.read(described.orientation)
            with watch("pooling"):
                labelled = label(described, codes, len(mask_format.names), mask_format.background)
                if isinstance(item.mask, ObjectMask):
                    objects = item.mask.read_objects(described.orientation, *labelled.mask.shape)
                    labelled = replace(labelled, objects=tuple(objects))
        except UnusableFileError as error:
            problems.append(Problem(item.pair.name, str(error)))
            continue
        except Exception as error:
            error.add_note(f"while working on {item.pair.image}")
            raise
        record = ImageRecord.of(item, digest, described, labelled)
        finished.append((record, described, labelled))
    if finished:
        with watch("write"):
            write_part(location, finished)
    return BatchResult(len(finished), problems, watch.seconds)


@lru_cache(maxsize=1)
def _scene_digest(path: str, _stamp: str) -> str:
    """Digest of a photo's file; tiles of a scene follow each other, as slices of a volume do."""
    return file_digest(path)


def write_chunk(task: ChunkTask, location: Location) -> None:
    """Write one chunk of the dataset. Runs on a worker."""
    task.run(location)


class IngestRun:
    """One attempt at an ingest.

    Parameters
    ----------
    client : Client
        The Dask cluster.
    source : MaskSource
        The images and their masks.
    location : Location
        The dataset.
    recipe : Recipe
        How images become rows.
    options : RunOptions
        What to do with unusable files.
    listener : callable or None
        Called with the progress.
    parameters : dict
        All that the result depends on except the files; becomes the dataset's attributes.
    info : mapping of str to PhotoInfo
        Group, annotator and date of each image.
    rules : dict
        Where these come from, see :meth:`ImageInfo.to_json`.
    """

    def __init__(
        self,
        client: Client,
        source: MaskSource,
        location: Location,
        recipe: Recipe,
        options: RunOptions,
        listener: Listener | None,
        parameters: dict[str, Any],
        info: Mapping[str, PhotoInfo],
        rules: dict[str, str],
    ) -> None:
        self.client = client
        self.source = source
        self.location = location
        self.recipe = recipe
        self.parameters = parameters
        self.info, self.rules = info, rules
        made_with = json.dumps([FORMAT_VERSION, without_path(parameters)])
        digest = hashlib.sha256(made_with.encode()).hexdigest()[:16]
        # An image processed with other settings, or in another format, is another image.
        self.items = [replace(item, identity=f"{item.identity} {digest}") for item in source.items]
        self.mark = WriterMark(location)
        self.on_error = options.on_error
        self.listener = listener
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.problems: list[Problem] = []
        self.resumed = 0

    def run(self) -> None:
        """Stage the images that are not staged yet, then assemble the dataset."""
        self.mark.set()
        staged = self._read_staged()
        self.resumed = len(staged)
        assembly = self._stage_all(staged)
        if assembly.differs_from_ledger():
            # Images changed after chunks had been written, and the parts of those chunks may be
            # gone: their images are staged again.
            self._discard_chunks()
            assembly = self._stage_all(self._read_staged())
        self._write_chunks(assembly)
        problems = sorted([*self.source.problems, *self.problems], key=lambda p: p.name)
        self.mark.check()
        with translate_failures(self.location, "the last arrays"):
            assembly.finish(
                problems,
                self.parameters
                | {"files_digest": self.source.digest(self.info), "image_info": self.rules},
            )

    def remove_if_empty(self) -> None:
        """Remove what was prepared if no image is finished, so that nothing has to be resumed."""
        if self.mark.is_own() and not any(True for _ in read_index(self.location)):
            self.location.clear()

    def _read_staged(self) -> dict[str, StagedImage]:
        """Staged images that are up to date, by name."""
        wanted = {item.pair.name: item.identity for item in self.items}
        return {
            staged.record.name: staged
            for staged in read_index(self.location)
            if wanted.get(staged.record.name) == staged.record.identity
        }

    def _discard_chunks(self) -> None:
        """Remove the chunks written so far, and the parts that have lost their arrays."""
        parts = {staged.part for staged in read_index(self.location)}
        remove_parts(self.location, parts - complete_parts(self.location))
        for key in (*ARRAYS, LEDGER):
            self.location.remove(key)

    def _stage_all(self, staged: dict[str, StagedImage]) -> Assembly:
        """Stage all images that are not in ``staged``."""
        todo = [item for item in self.items if item.pair.name not in staged]
        self.problems = []
        self._stage(todo, len(staged))
        if todo:
            staged = self._read_staged()
        if not staged:
            raise PipelineError(
                "none of the images could be used:\n" + list_problems(self.problems), self.problems
            )
        missing = len(self.items) - len(staged) - len(self.problems)
        if missing:
            raise StoppedError(
                f"{missing} finished images are gone from {self.location}: is another program "
                "working there? Continue with resume=True (--resume)"
            )
        return Assembly(self.location, list(staged.values()), self.recipe.dtype, self.info)

    def _stage(self, todo: list[Item], done: int) -> None:
        batches = cut_batches(todo)
        meter = Meter(self.listener, "images", len(self.items), done)
        with closing(self._results(batches)) as results:
            for batch, result in results:
                done += result.images
                self.problems += result.problems
                for phase, seconds in result.seconds.items():
                    self.seconds[phase] += seconds
                if result.problems and self.on_error == "raise":
                    raise problem_error(result.problems, done or None)
                meter(len(batch), len(self.problems))

    def _results(self, batches: list[list[Item]]) -> Generator[tuple[list[Item], BatchResult]]:
        """(batch, its result) as they are finished."""
        arguments = (self.recipe, self.source.mask_format, self.location)
        ahead = tasks_ahead(self.client)
        for batch, future in completed_batches(
            "ingest", self.client, process_batch, batches, arguments, ahead
        ):
            self.mark.check()
            with translate_failures(self.location, f"{batch[0].pair.name} … {batch[-1].pair.name}"):
                try:
                    result = future.result()
                except KilledWorker:
                    result = killed_result(batch[0].pair.name)
            yield batch, result

    def _write_chunks(self, assembly: Assembly) -> None:
        with translate_failures(self.location, "the arrays"):
            tasks = assembly.begin()
        meter = Meter(self.listener, "writing", len(tasks))
        remove_unneeded = assembly.remover(tasks)
        ahead = tasks_ahead(self.client)
        with closing(
            completed_pieces("write", self.client, write_chunk, tasks, (self.location,), ahead)
        ) as results:
            for task, future in results:
                self.mark.check()
                with translate_failures(self.location, f"chunk {task.key}"):
                    future.result()
                remove_unneeded(task)
                meter(1, len(self.problems))


def cut_batches(items: list[Item]) -> list[list[Item]]:
    """Items of about IMAGES_PER_TASK images each; answers of a photo are in one batch."""
    batches: list[list[Item]] = []
    for item in items:
        last = batches[-1] if batches else []
        if not last or (len(last) >= IMAGES_PER_TASK and last[-1].pair.image != item.pair.image):
            batches.append([])
        batches[-1].append(item)
    return batches


def without_path(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters without the path of the network's file, which may move between attempts."""
    backbone = dict(parameters.get("backbone", {}))
    if {"weights_sha256", "source_sha256"} & backbone.keys():
        backbone.pop("path", None)
    return parameters | {"backbone": backbone}


class WriterMark:
    """Marks who writes to a location: the last writer. Earlier writers notice it and stop."""

    KEY = f"{UNFINISHED_FOLDER}/owner"

    def __init__(self, location: Location) -> None:
        self.location = location
        self.token = uuid.uuid4().hex.encode()

    def set(self) -> None:
        """Become the writer of the location."""
        self.location.write(self.KEY, self.token)

    def is_own(self) -> bool:
        """Whether this is still the last writer."""
        try:
            return self.location.read(self.KEY) == self.token
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Raise a StoppedError if another writer has set its mark."""
        if not self.is_own():
            raise StoppedError(
                f"another ingest writes to {self.location} now, so this one stops: let one finish"
            )
