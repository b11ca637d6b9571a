"""Pictures made of photos on a Dask cluster, some photos at a time."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from typing import Any, Protocol

import dask

from gpgc_dask.core.errors import PipelineError, Problem, UnusableFileError, list_problems
from gpgc_dask.core.progress import Listener, Meter, work_listener
from gpgc_dask.core.threads import keep_freed_memory, one_blas_thread
from gpgc_dask.execution.batches import client_context, completed_batches, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker, is_in_process
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.pipelines.batches import (
    IMAGES_PER_TASK,
    BatchResult,
    killed_result,
    problem_error,
    tasks_ahead,
)
from gpgc_dask.pipelines.options import OnError, RunOptions
from gpgc_dask.pipelines.outputs import Job, check_absent, remove_pictures

__all__ = ["PictureMaker", "make_batch", "make_pictures"]


class PictureMaker(Protocol):
    """Makes pictures of photos. It is sent to each worker once."""

    def run(self, job: Any) -> None:
        """Write the pictures of a job, each completely or not at all."""


def make_batch(jobs: Sequence[Job], maker: PictureMaker) -> BatchResult:
    """Make the pictures of some photos. Runs on a worker."""
    keep_freed_memory()
    silence_pillow()
    problems = []
    for job in jobs:
        try:
            maker.run(job)
        except UnusableFileError as error:
            problems.append(Problem(printable(job.name), str(error)))
        except Exception as error:
            error.add_note(f"while working on {printable(job.photo)}")
            raise
    return BatchResult(len(jobs) - len(problems), problems)


def make_pictures(
    maker: PictureMaker, jobs: Sequence[Job], run: RunOptions, *, name: str
) -> tuple[list[Problem], int]:
    """Make the pictures of many photos on a cluster.

    Parameters
    ----------
    maker : PictureMaker
        Makes the pictures of one photo.
    jobs : sequence of Job
        The photos and the paths of their pictures.
    run : RunOptions
        Resuming, unusable photos, progress and cluster.
    name : str
        Name of the tasks in Dask's dashboard.

    Returns
    -------
    problems : list of Problem
        Photos that could not be used.
    resumed : int
        Number of jobs that an earlier run had finished.
    """
    todo = [job for job in jobs if not job.is_done] if run.resume else [*jobs]
    if not (run.resume or run.overwrite):
        check_absent(jobs)
    problems: list[Problem] = []
    if todo:
        with client_context(run.client) as client, work_listener(run.progress) as listener:
            remove_pictures(todo, finished=run.overwrite)
            problems = _run(client, name, maker, todo, len(jobs), run.on_error, listener)
    if len(problems) == len(jobs):
        raise PipelineError(
            "none of the images could be used:\n" + list_problems(problems), problems
        )
    return problems, len(jobs) - len(todo)


def _run(
    client: Client,
    name: str,
    maker: PictureMaker,
    todo: list[Job],
    total: int,
    on_error: OnError,
    listener: Listener | None,
) -> list[Problem]:
    """Run the jobs; photos that could not be used."""
    done = total - len(todo)
    meter = Meter(listener, "images", total, done)
    problems: list[Problem] = []
    limited = one_blas_thread() if is_in_process(client) else nullcontext()
    with limited, closing(_results(client, name, maker, todo)) as results:
        for batch, result in results:
            done += result.images
            problems += result.problems
            if result.problems and on_error == "raise":
                raise problem_error(result.problems, done)
            meter(len(batch), len(problems))
    return problems


def _results(
    client: Client, name: str, maker: PictureMaker, todo: list[Job]
) -> Generator[tuple[list[Job], BatchResult]]:
    """(batch, its result) as they are finished."""
    batches = [todo[i : i + IMAGES_PER_TASK] for i in range(0, len(todo), IMAGES_PER_TASK)]
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        # A task and not scattered: it runs again if the only worker that held its result has died.
        key = (f"{name}-recipe", uuid.uuid4().hex[:12])
        shared = client.submit(_identity, maker, key=key, pure=False)
    ahead = tasks_ahead(client)
    for batch, future in completed_batches(name, client, make_batch, batches, (shared,), ahead):
        with translate_failures(batch[0].pictures["mask"].parent, batch[0].name):
            try:
                result = future.result()
            except KilledWorker:
                result = killed_result(printable(batch[0].name))
        yield batch, result


def _identity(maker: PictureMaker) -> PictureMaker:
    return maker
