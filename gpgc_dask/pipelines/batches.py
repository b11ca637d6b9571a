"""Batches of photos: their size, their results, and the errors about unusable files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpgc_dask.core.errors import PipelineError, Problem, list_problems
from gpgc_dask.execution.client import Client

__all__ = [
    "IMAGES_PER_TASK",
    "BatchResult",
    "killed_result",
    "problem_error",
    "tasks_ahead",
]

IMAGES_PER_TASK = 8
"""Some seconds of work: little is lost when a worker is killed, little is to be scheduled."""

TASKS_PER_THREAD, MIN_TASKS = 4, 64
"""Tasks submitted ahead: enough that workers never wait and an adaptive cluster sees its queue."""


@dataclass(frozen=True)
class BatchResult:
    """The result of one batch.

    Attributes
    ----------
    images : int
        Number of images that are finished.
    problems : list of Problem
        Images that cannot be used.
    seconds : dict
        Seconds of work by phase.
    """

    images: int
    problems: list[Problem]
    seconds: dict[str, float] = field(default_factory=dict)


def tasks_ahead(client: Client) -> int:
    """Number of tasks to submit before the first is finished."""
    return max(TASKS_PER_THREAD * max(sum(client.nthreads().values()), 1), MIN_TASKS)


def killed_result(name: str) -> BatchResult:
    """The result of an image that kills its workers."""
    reason = "workers died repeatedly: the image needs more memory than they have, or crashes them"
    return BatchResult(0, [Problem(name, reason)])


def problem_error(
    problems: Sequence[Problem], done: int | None = None, advice: str = ""
) -> PipelineError:
    """The error about unusable files.

    Parameters
    ----------
    problems : sequence of Problem
        The files.
    done : int, optional
        Number of images finished so far; None if there is nothing to continue.
    advice : str, default ""
        Lines about what was found and which options may help.
    """
    kept = "" if not done else f" {done} images are finished and kept."
    resume = "" if done is None else " and continue with resume=True (--resume)"
    return PipelineError(
        f"{list_problems(problems)}\n{advice}Fix or remove these files{resume}, or skip them with "
        f'on_error="skip" (--on-error skip).{kept}',
        problems,
    )
