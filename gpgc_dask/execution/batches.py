"""Much work on a Dask cluster, a bounded number of pieces at a time, and what may befall it."""

from __future__ import annotations

import errno
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count, repeat
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed

from gpgc_dask.core.errors import PipelineError
from gpgc_dask.execution.cancel import leave_interrupts, stop
from gpgc_dask.execution.client import any_client
from gpgc_dask.execution.compute import LOST

__all__ = ["Guard", "completed", "completed_batches", "entered"]


def entered(client: Any) -> AbstractContextManager[Client]:
    """The context of a client; one that somebody has opened stays open."""
    if client is None:
        return any_client()
    return nullcontext(client) if isinstance(client, Client) else client


def completed(
    name: str,
    client: Client,
    function: Callable[..., Any],
    pieces: Sequence[Any],
    arguments: tuple[Any, ...],
    ahead: int,
) -> Generator[tuple[Any, Future]]:
    """(piece, its finished future) as they come, of ``function(piece, *arguments)`` on workers.

    At most ``ahead`` are under way, the next submitted before a finished one is handed out.
    Whoever stops early, and closes this, has what is under way cancelled. ``name`` is what Dask's
    dashboard calls the tasks.
    """
    leave_interrupts(client)
    waiting = deque(pieces)
    under_way: dict[Any, tuple[Any, Future]] = {}
    keys = zip(repeat(name), repeat(uuid.uuid4().hex[:12]), count())

    def submit(piece: Any) -> Future:
        future = client.submit(function, piece, *arguments, key=next(keys), pure=False)
        under_way[future.key] = piece, future
        return future

    try:
        queue = as_completed([submit(waiting.popleft()) for _ in range(min(ahead, len(waiting)))])
        for future in queue:
            piece, _ = under_way.pop(future.key)
            if waiting:
                queue.add(submit(waiting.popleft()))
            yield piece, future
    finally:
        stop(client, [future for _, future in under_way.values()])


def completed_batches(
    name: str,
    client: Client,
    function: Callable[..., Any],
    batches: Sequence[list[Any]],
    arguments: tuple[Any, ...],
    ahead: int,
) -> Iterator[tuple[list[Any], Future]]:
    """As :func:`completed`, for lists of items; a future that says KilledWorker is of one item.

    Workers die over some batches, at times innocent ones that lay beside the culprit: with nothing
    else under way each item of these then answers for itself.
    """
    suspects: list[Any] = []
    for batch, future in completed(name, client, function, batches, arguments, ahead):
        if future.status == "error" and isinstance(future.exception(), KilledWorker):
            suspects += batch
        else:
            yield batch, future
    alone = [[item] for item in suspects]
    yield from completed(name, client, function, alone, arguments, ahead=1)


class Guard:
    """Turns what the machine does to the work into an error that says how to go on.

    where : what is written to;  what : the piece of work
    """

    def __init__(self, where: object, what: str) -> None:
        self.where, self.what = where, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, KilledWorker):
            raise PipelineError(
                f"workers died again and again over {self.what}: give them more memory, or a "
                "smaller side (--side), and go on with resume=True (--resume)"
            ) from error
        if isinstance(error, LOST):
            raise PipelineError(
                f"the connection to the cluster was lost over {self.what}: what is done is kept; "
                "go on with resume=True (--resume) once it is back"
            ) from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PipelineError(
                f"no space is left at {self.where}: what is done is kept; make room and go on "
                "with resume=True (--resume)"
            ) from error
