"""Computations on a cluster that outlive what happens to it.

A sweep is one graph whose partial sums are counted once each: Dask computes those of a lost worker
again by itself. What Dask gives up on (the scheduler went away, a piece of work died with several
workers) is begun anew from the graph, so that a result is complete or there is none.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import dask
from dask.base import get_scheduler
from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker, wait
from distributed.comm import CommClosedError

from gpgc_dask.core import config
from gpgc_dask.core.errors import ClusterError
from gpgc_dask.core.threads import one_blas_thread
from gpgc_dask.execution.cancel import leave_interrupts, stop
from gpgc_dask.execution.client import active_client, is_inside
from gpgc_dask.execution.task_progress import Watch

__all__ = ["LOST", "Sealed", "compute", "compute_on", "lazy_calls", "token"]

log = logging.getLogger("gpgc_dask")

LOST = (CancelledError, CommClosedError, KilledWorker)
"""What a cluster answers where the work is not to blame, or may not be."""

REPEATS = 5
"""Times that a computation is begun anew before the cluster is given up."""

LOOK_SECONDS = 5.0
"""Between two looks at whether the cluster has workers at all."""

WATCH_SECONDS = 1.0
"""Between two looks at how far it is, where somebody watches."""


def compute_on(
    client: Client, collections: Sequence[Any], watch: Watch | None = None
) -> tuple[Any, ...]:
    """The collections' values, computed on the client's cluster, again where that was in vain.

    Whoever is interrupted leaves no task of it running.
    """
    leave_interrupts(client)
    for attempt in count(1):
        futures: list[Future] = []
        others = set(client.futures)
        try:
            futures = client.compute(list(collections))
            _wait(client, futures, watch)
            return tuple(client.gather(futures))
        except LOST as error:
            if attempt > REPEATS:
                raise ClusterError(_told(error)) from error
            log.warning("%s: this read of the data is begun anew", _what(error))
        except Exception:
            raise
        except BaseException:
            # Perhaps before anybody was told which futures these are.
            begun = [Future(key, client) for key in set(client.futures) - others]
            stop(client, futures or begun)
            raise
        finally:
            for future in futures:
                future.release()
        _wait_for_scheduler(client)
    raise AssertionError  # count() does not end


def _wait(client: Client, futures: list[Future], watch: Watch | None) -> None:
    """Until all is done; a cluster that has had no worker for long is an error, not a wait."""
    patience = config.seconds("cluster.no-workers-timeout")
    alone_since: float | None = None
    while True:
        try:
            wait(futures, timeout=LOOK_SECONDS if watch is None else WATCH_SECONDS)
            return
        except TimeoutError:
            pass
        if watch is not None and client.status == "running":
            watch.ask(client)
        if client.status == "running" and not client.nthreads():
            now = time.monotonic()
            if alone_since is None:
                alone_since = now
                log.warning("the cluster has no worker left: waiting for one")
            if now - alone_since > patience:
                raise ClusterError(
                    f"the cluster has had no worker for {patience:.0f} s: start some, and go on "
                    "where this stopped (the same checkpoint, or --resume)"
                )
        else:
            alone_since = None


def _wait_for_scheduler(client: Client) -> None:
    """Until the client, which tries by itself, has found the scheduler again or given up."""
    _until(lambda: client.status != "connecting")
    if client.status != "running":
        raise ClusterError(
            "the scheduler went away and has not come back: start one and its workers, and go on "
            "where this stopped (the same checkpoint, or --resume)"
        )


def _until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.1)


def _what(error: BaseException) -> str:
    if isinstance(error, KilledWorker):
        return "a piece of work has died with several workers"
    return "the connection to the scheduler was lost"


def _told(error: BaseException) -> str:
    if isinstance(error, KilledWorker):
        return (
            "workers died again and again over one piece of work, most often for want of memory "
            "(gpgc plan says what they need): give them more, or fewer threads, and go on where "
            "this stopped (the same checkpoint, or --resume)"
        )
    return (
        "the connection to the scheduler was lost again and again: go on where this stopped (the "
        "same checkpoint, or --resume) once it is stable"
    )


class Sealed:
    """An argument that Dask passes on as it is, without looking inside."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def token() -> str:
    """What tells keys of the same name apart."""
    return uuid.uuid4().hex[:12]


def lazy_calls(
    name: str, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
) -> list[Delayed]:
    """A lazy call for each tuple of arguments."""
    own = token()
    call = dask.delayed(function, pure=False, name=False)
    return [call(*each, dask_key_name=(name, own, number)) for number, each in enumerate(arguments)]


def compute(*collections: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Compute with one BLAS thread a task where the tasks run in this process."""
    client = active_client()
    with _blas_limit(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        if client is not None:
            return compute_on(client, collections, watch)
        with nullcontext() if watch is None else watch.on_threads():
            return tuple(dask.compute(*collections))


def _blas_limit() -> AbstractContextManager[Any]:
    """Workers of their own set one BLAS thread; threads of this process share what it has."""
    client = active_client()
    if client is not None:
        inside = is_inside(client)
    else:
        scheduler = get_scheduler()
        inside = scheduler is None or "thread" in scheduler.__module__
    return one_blas_thread() if inside else nullcontext()
