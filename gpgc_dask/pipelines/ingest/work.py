"""The work of an ingest on a Dask cluster: images to parts, parts to chunks of the dataset.

What is done depends on the list of images alone, never on the number of workers, so that a dataset
made in ten attempts equals one made at a stroke.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpgc_dask.core.errors import PipelineError, Problem, UnusableFileError, list_problems
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.core.threads import keep_freed_memory
from gpgc_dask.data.schema import UNFINISHED_FOLDER
from gpgc_dask.execution.batches import completed_batches, completed_pieces, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker
from gpgc_dask.imaging.coco import draw_mask
from gpgc_dask.imaging.features import PHASES, Recipe, Stopwatch, describe, label
from gpgc_dask.imaging.mask_sources import Item, Source
from gpgc_dask.imaging.masks import MaskFormat, read_mask
from gpgc_dask.imaging.photos import hush
from gpgc_dask.pipelines.ingest.assemble import LEDGER, Assembly, ChunkTask
from gpgc_dask.pipelines.ingest.staging import (
    FinishedImage,
    Kept,
    forget,
    has_arrays,
    read_index,
    write_part,
)
from gpgc_dask.storage.location import Location

__all__ = [
    "IMAGES_A_TASK",
    "BatchResult",
    "OnError",
    "Run",
    "complaint",
    "deadly",
    "tasks_ahead",
    "without_place",
]

IMAGES_A_TASK = 8
"""Some seconds of work: little lost at a kill, little to schedule."""

TASKS_A_THREAD, LEAST_TASKS = 4, 64
"""Tasks submitted ahead: enough that workers never wait and an adaptive cluster sees its queue."""

OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class BatchResult:
    """What became of a task's images."""

    images: int
    problems: list[Problem]
    seconds: dict[str, float]


def process_batch(
    items: Sequence[Item], recipe: Recipe, fmt: MaskFormat, location: Location
) -> BatchResult:
    """Describe some images and keep them as a part. Runs on a worker."""
    keep_freed_memory()
    hush()
    watch = Stopwatch()
    done, problems = [], []
    for item in items:
        try:
            described = describe(item.pair.image, recipe, watch)
            with watch("decode"):
                if item.coco is not None:
                    codes = draw_mask(item.coco, described.orientation)
                else:
                    codes = read_mask(item.pair.mask, fmt, described.orientation)
            with watch("pooling"):
                labelled = label(described, codes, len(fmt.names), fmt.background)
        except UnusableFileError as error:
            problems.append(Problem(item.pair.name, str(error)))
            continue
        except Exception as error:
            error.add_note(f"while working on {item.pair.image}")
            raise
        image = FinishedImage.of(item.pair, item.identity, described, labelled)
        done.append((image, described, labelled))
    if done:
        with watch("write"):
            write_part(location, done)
    return BatchResult(len(done), problems, watch.seconds)


class Run:
    """One attempt at an ingest."""

    def __init__(
        self,
        client: Client,
        source: Source,
        location: Location,
        recipe: Recipe,
        on_error: OnError,
        listener: Listener | None,
        parameters: dict[str, Any],
    ) -> None:
        """``parameters``: all that the result depends on but the files; kept as attributes."""
        self.client = client
        self.source = source
        self.location = location
        self.recipe = recipe
        self.parameters = parameters
        digest = hashlib.sha256(json.dumps(without_place(parameters)).encode()).hexdigest()[:16]
        # An image done in another way is another one.
        self.items = [replace(item, identity=f"{item.identity} {digest}") for item in source.items]
        self.claim = Claim(location)
        self.on_error = on_error
        self.listener = listener
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.problems: list[Problem] = []
        self.resumed = 0

    def run(self) -> None:
        """Describe what is not yet described, then put the dataset together."""
        self.claim.take()
        kept = self._kept()
        self.resumed = len(kept)
        assembly = self._described(kept)
        if assembly.is_begun_otherwise():
            # Images changed after chunks had been written, and what those chunks were made of may
            # be gone: images whose numbers are not at hand are done again.
            self._forget_assembly()
            assembly = self._described(self._kept())
        self._write(assembly)
        problems = sorted([*self.source.problems, *self.problems], key=lambda p: p.name)
        self.claim.check()
        with translate_failures(self.location, "the last arrays"):
            assembly.finish(problems, self.parameters | {"files_digest": self.source.digest()})

    def _kept(self) -> dict[str, Kept]:
        """Images of the source that are done, as they are now, by name."""
        wanted = {item.pair.name: item.identity for item in self.items}
        return {
            one.image.name: one
            for one in read_index(self.location)
            if wanted.get(one.image.name) == one.image.identity
        }

    def _forget_assembly(self) -> None:
        whole = has_arrays(self.location)
        gone = {one.part for one in read_index(self.location)} - whole
        forget(self.location, gone)
        for key in ("features", "segments", LEDGER):
            self.location.remove(key)

    def _described(self, kept: dict[str, Kept]) -> Assembly:
        """All images done, those that are not yet among them."""
        todo = [item for item in self.items if item.pair.name not in kept]
        self.problems = []
        self._describe(todo, len(kept))
        found = self._kept() if todo else kept
        if not found:
            raise PipelineError(
                "none of the images could be used:\n" + list_problems(self.problems), self.problems
            )
        missing = len(self.items) - len(found) - len(self.problems)
        if missing:
            raise PipelineError(
                f"{missing} images that were done are gone from {self.location}: is something else "
                "at work there? Go on with resume=True (--resume)"
            )
        return Assembly(self.location, list(found.values()), self.recipe.dtype)

    def _describe(self, todo: list[Item], done: int) -> None:
        batches = [todo[i : i + IMAGES_A_TASK] for i in range(0, len(todo), IMAGES_A_TASK)]
        meter = Meter(self.listener, "images", len(self.items), done)
        arguments = (self.recipe, self.source.format, self.location)
        with closing(self._results(batches, arguments)) as results:
            for batch, result in results:
                done += result.images
                self.problems += result.problems
                for phase, seconds in result.seconds.items():
                    self.seconds[phase] += seconds
                if result.problems and self.on_error == "raise":
                    raise PipelineError(complaint(result.problems, done), result.problems)
                meter(len(batch), len(self.problems))

    def _write(self, assembly: Assembly) -> None:
        with translate_failures(self.location, "the arrays"):
            tasks = assembly.begin()
        meter = Meter(self.listener, "writing", len(tasks))
        written = assembly.remover(tasks)
        ahead = tasks_ahead(self.client)
        with closing(
            completed_pieces("write", self.client, run_chunk, tasks, (self.location,), ahead)
        ) as results:
            for task, future in results:
                self.claim.check()
                with translate_failures(self.location, f"chunk {task.key}"):
                    future.result()
                written(task)
                meter(1, len(self.problems))

    def _results(
        self, batches: list[list[Item]], arguments: tuple[Any, ...]
    ) -> Generator[tuple[list[Item], BatchResult]]:
        """(batch, what became of it) as they come."""
        ahead = tasks_ahead(self.client)
        for batch, future in completed_batches(
            "ingest", self.client, process_batch, batches, arguments, ahead
        ):
            self.claim.check()
            with translate_failures(self.location, f"{batch[0].pair.name} … {batch[-1].pair.name}"):
                try:
                    result = future.result()
                except KilledWorker:
                    result = deadly(batch[0].pair.name)
            yield batch, result


def tasks_ahead(client: Client) -> int:
    """How many tasks to submit before the first is done."""
    return max(TASKS_A_THREAD * max(sum(client.nthreads().values()), 1), LEAST_TASKS)


def deadly(name: str) -> BatchResult:
    """What becomes of an image over which workers die."""
    reason = (
        "workers died over it again and again: it needs more memory than they have, or crashes them"
    )
    return BatchResult(0, [Problem(name, reason)], {})


def without_place(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters less where the network's file lies: it may move between two attempts."""
    backbone = dict(parameters.get("backbone", {}))
    if "weights_sha256" in backbone:
        backbone.pop("path", None)
    return parameters | {"backbone": backbone}


class Claim:
    """Who works at a location: the last to come. Whoever was there before notices and stops."""

    KEY = f"{UNFINISHED_FOLDER}/owner"

    def __init__(self, location: Location) -> None:
        self.location = location
        self.token = uuid.uuid4().hex.encode()

    def take(self) -> None:
        self.location.write(self.KEY, self.token)

    def check(self) -> None:
        """Complain where the claim is lost."""
        try:
            mine = self.location.read(self.KEY) == self.token
        except FileNotFoundError:
            mine = False
        if not mine:
            raise PipelineError(
                f"another ingest has taken over {self.location}, so this one stops: let one finish"
            )


def run_chunk(task: ChunkTask, location: Location) -> None:
    task.run(location)


def complaint(problems: Sequence[Problem], kept: int | None) -> str:
    """The error about unusable files; ``kept``: images done before, None before the start."""
    held = "" if kept is None else f" {kept} images are done and kept."
    again = "" if kept is None else " and go on with resume=True (--resume)"
    return (
        f"{list_problems(problems)}\nFix or remove these files{again}, or leave them out with "
        f'on_error="skip" (--on-error skip).{held}'
    )
