"""Many pieces of work on a Dask cluster, a bounded number at a time, and their failures."""

from __future__ import annotations

import errno
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count, repeat
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed

from gpgc_dask.core.errors import StoppedError
from gpgc_dask.execution.cancel import cancel_futures, protect_workers
from gpgc_dask.execution.client import any_client
from gpgc_dask.execution.compute import CLUSTER_ERRORS

__all__ = ["client_context", "completed_batches", "completed_pieces", "translate_failures"]


def client_context(client: Any) -> AbstractContextManager[Client]:
    """A context with a client: the given context, or one that leaves an open client open."""
    if client is None:
        return any_client()
    return nullcontext(client) if isinstance(client, Client) else client


def completed_pieces(
    name: str,
    client: Client,
    function: Callable[..., Any],
    pieces: Sequence[Any],
    arguments: tuple[Any, ...],
    ahead: int,
) -> Generator[tuple[Any, Future]]:
    """Run ``function(piece, *arguments)`` on workers; yield (piece, future) as they finish.

    Closing the generator cancels the tasks that are running.

    Parameters
    ----------
    name : str
        Name of the tasks in Dask's dashboard.
    client : distributed.Client
        Client of the cluster.
    function : callable
        Function that runs on the workers.
    pieces : sequence
        First arguments of the function, one per task.
    arguments : tuple
        Further arguments of the function.
    ahead : int
        Number of tasks at a time. The next is submitted before a finished one is yielded.

    Yields
    ------
    tuple of (piece, distributed.Future)
    """
    protect_workers(client)
    waiting = deque(pieces)
    running: dict[Any, tuple[Any, Future]] = {}
    keys = zip(repeat(name), repeat(uuid.uuid4().hex[:12]), count())

    def submit(piece: Any) -> Future:
        future = client.submit(function, piece, *arguments, key=next(keys), pure=False)
        running[future.key] = piece, future
        return future

    try:
        queue = as_completed([submit(waiting.popleft()) for _ in range(min(ahead, len(waiting)))])
        for future in queue:
            piece, _ = running.pop(future.key)
            if waiting:
                queue.add(submit(waiting.popleft()))
            yield piece, future
    finally:
        cancel_futures(client, [future for _, future in running.values()])


def completed_batches(
    name: str,
    client: Client,
    function: Callable[..., Any],
    batches: Sequence[list[Any]],
    arguments: tuple[Any, ...],
    ahead: int,
) -> Iterator[tuple[list[Any], Future]]:
    """Like :func:`completed_pieces` for lists of items; only single items raise KilledWorker.

    A batch whose workers died may be innocent, if it ran next to the culprit. The items of such
    batches are run again one by one, with nothing else running.
    """
    suspects: list[Any] = []
    for batch, future in completed_pieces(name, client, function, batches, arguments, ahead):
        if future.status == "error" and isinstance(future.exception(), KilledWorker):
            suspects += batch
        else:
            yield batch, future
    alone = [[item] for item in suspects]
    yield from completed_pieces(name, client, function, alone, arguments, ahead=1)


@contextmanager
def translate_failures(
    where: object, what: str, again: str = "continue with resume=True (--resume)"
) -> Iterator[None]:
    """Turn failures of the machine or the cluster into errors with a way out.

    Parameters
    ----------
    where : object
        What is written to, for messages.
    what : str
        The piece of work, for messages.
    again : str
        How the work is continued, for messages.

    Raises
    ------
    StoppedError
        If workers died, the cluster was lost, or the disk is full.
    """
    try:
        yield
    except KilledWorker as error:
        raise StoppedError(
            f"workers died repeatedly over {what}: give them more memory, or a smaller side "
            f"(--side), and {again}"
        ) from error
    except CLUSTER_ERRORS as error:
        raise StoppedError(
            f"the connection to the cluster was lost over {what}: finished work is kept; {again} "
            "once the cluster is back"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoppedError(
            f"no space is left at {where}: finished work is kept; free some space and {again}"
        ) from error
