"""Pictures made of photos on a Dask cluster: whatever is made of each, some at a time."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Protocol

import dask

from gpgc_dask.core.errors import (
    InputError,
    PipelineError,
    Problem,
    UnusableFileError,
    list_problems,
)
from gpgc_dask.core.progress import Listener, Meter, work_listener
from gpgc_dask.core.threads import keep_freed_memory, one_blas_thread
from gpgc_dask.execution.batches import client_context, completed_batches, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker, is_in_process
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.photos import hush
from gpgc_dask.pipelines.ingest.work import (
    IMAGES_A_TASK,
    BatchResult,
    OnError,
    complaint,
    deadly,
    tasks_ahead,
)
from gpgc_dask.pipelines.outputs import Job, check_absent, clear

__all__ = ["Maker", "check_manner", "make_batch", "make_pictures"]


class Maker(Protocol):
    """What makes pictures of photos. It travels to each worker once."""

    def run(self, job: Any) -> None:
        """Write the pictures of a job, each whole or not at all."""


def _itself(maker: Maker) -> Maker:
    return maker


def make_batch(jobs: Sequence[Job], maker: Maker) -> BatchResult:
    """Do some photos. Runs on a worker."""
    keep_freed_memory()
    hush()
    problems = []
    for job in jobs:
        try:
            maker.run(job)
        except UnusableFileError as error:
            problems.append(Problem(printable(job.name), str(error)))
        except Exception as error:
            error.add_note(f"while working on {printable(job.photo)}")
            raise
    return BatchResult(len(jobs) - len(problems), problems, {})


# -- on the driver -----------------------------------------------------------------------------


def check_manner(*, resume: bool, overwrite: bool, on_error: OnError) -> None:
    """Complain of choices that :func:`make_pictures` cannot follow."""
    if resume and overwrite:
        raise InputError("resume goes on with what is there and overwrite discards it: choose one")
    if on_error not in ("raise", "skip"):
        raise InputError(f'on_error must be "raise" or "skip", got {on_error!r}')


def make_pictures(
    maker: Maker,
    jobs: Sequence[Job],
    *,
    name: str,
    resume: bool,
    overwrite: bool,
    on_error: OnError,
    progress: bool | Listener | None,
    client: Client | AbstractContextManager[Client] | None,
) -> tuple[list[Problem], int]:
    """Do the jobs on a cluster, as ``predict_masks`` says; (unusable photos, jobs done before).

    ``name`` is what Dask's dashboard calls the tasks.
    """
    todo = [job for job in jobs if not job.is_done] if resume else [*jobs]
    if not (resume or overwrite):
        check_absent(jobs)
    problems: list[Problem] = []
    if todo:
        with client_context(client) as cluster, work_listener(progress) as listener:
            clear(todo, finished=overwrite)
            problems = _run(cluster, name, maker, todo, len(jobs), on_error, listener)
    if len(problems) == len(jobs):
        raise PipelineError(
            "none of the images could be used:\n" + list_problems(problems), problems
        )
    return problems, len(jobs) - len(todo)


def _run(
    client: Client,
    name: str,
    maker: Maker,
    todo: list[Job],
    total: int,
    on_error: OnError,
    progress: Listener | None,
) -> list[Problem]:
    """Do the jobs; photos that could not be used."""
    done = total - len(todo)
    meter = Meter(progress, "images", total, done)
    problems: list[Problem] = []
    limited = one_blas_thread() if is_in_process(client) else nullcontext()
    with limited, closing(_results(client, name, maker, todo)) as results:
        for batch, result in results:
            done += result.images
            problems += result.problems
            if result.problems and on_error == "raise":
                raise PipelineError(complaint(result.problems, done), result.problems)
            meter(len(batch), len(problems))
    return problems


def _results(
    client: Client, name: str, maker: Maker, todo: list[Job]
) -> Generator[tuple[list[Job], BatchResult]]:
    batches = [todo[i : i + IMAGES_A_TASK] for i in range(0, len(todo), IMAGES_A_TASK)]
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        # A task and not scattered: it is done again where the only worker that held it has died.
        key = (f"{name}-recipe", uuid.uuid4().hex[:12])
        sent = client.submit(_itself, maker, key=key, pure=False)
    ahead = tasks_ahead(client)
    for batch, future in completed_batches(name, client, make_batch, batches, (sent,), ahead):
        with translate_failures(batch[0].pictures["mask"].parent, batch[0].name):
            try:
                result = future.result()
            except KilledWorker:
                result = deadly(printable(batch[0].name))
        yield batch, result
