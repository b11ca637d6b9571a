"""Computations on a cluster that survive failures of the cluster.

A sweep is one graph in which each partial sum is counted once: Dask recomputes those of a lost
worker. Computations that Dask gives up (the scheduler went away, a task died with several workers)
are started again from the graph, so that a result is complete or there is none.
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
from distributed.protocol import pickle

from gpgc_dask.core import config
from gpgc_dask.core.errors import ClusterError
from gpgc_dask.core.threads import one_blas_thread
from gpgc_dask.execution.cancel import cancel_futures, protect_workers
from gpgc_dask.execution.client import active_client, is_in_process
from gpgc_dask.execution.task_progress import Watch

__all__ = ["CLUSTER_ERRORS", "Opaque", "Sealed", "compute", "compute_on", "lazy_calls", "token"]

log = logging.getLogger("gpgc_dask")

CLUSTER_ERRORS = (CancelledError, CommClosedError, KilledWorker)
"""Errors of a cluster that the work itself need not have caused."""

MAX_RESTARTS = 5
"""Number of times that a computation is restarted before the cluster is given up."""

LOOK_SECONDS = 5.0
"""Seconds between two checks whether the cluster has workers."""

WATCH_SECONDS = 1.0
"""Seconds between two checks of the progress, if it is displayed."""


def compute_on(
    client: Client, collections: Sequence[Any], watch: Watch | None = None
) -> tuple[Any, ...]:
    """Compute collections on the client's cluster, again after failures of the cluster.

    An interrupt cancels all tasks.
    """
    protect_workers(client)
    for attempt in count(1):
        futures: list[Future] = []
        others = set(client.futures)
        try:
            futures = client.compute(list(collections))
            _wait(client, futures, watch)
            return tuple(client.gather(futures))
        except CLUSTER_ERRORS as error:
            if attempt > MAX_RESTARTS:
                raise ClusterError(_message(error)) from error
            log.warning("%s: this read of the data is restarted", _summary(error))
        except Exception:
            raise
        except BaseException:
            # The interrupt may have come before client.compute returned the futures.
            submitted = [Future(key, client) for key in set(client.futures) - others]
            cancel_futures(client, futures or submitted)
            raise
        finally:
            for future in futures:
                future.release()
        _wait_for_scheduler(client)
    raise AssertionError  # count() does not end


def _wait(client: Client, futures: list[Future], watch: Watch | None) -> None:
    """Wait until all is done; raise a ClusterError if there has been no worker for long."""
    patience = config.seconds("cluster.no-workers-timeout")
    alone_since: float | None = None
    while True:
        try:
            wait(futures, timeout=LOOK_SECONDS if watch is None else WATCH_SECONDS)
            return
        except TimeoutError:
            pass
        if watch is not None and client.status == "running":
            watch.poll(client)
        if client.status == "running" and not client.nthreads():
            now = time.monotonic()
            if alone_since is None:
                alone_since = now
                log.warning("the cluster has no worker left: waiting for one")
            if now - alone_since > patience:
                raise ClusterError(
                    f"the cluster has had no worker for {patience:.0f} s: start some, and resume "
                    "(the same checkpoint, or --resume)"
                )
        else:
            alone_since = None


def _wait_for_scheduler(client: Client) -> None:
    """Wait until the client, which reconnects automatically, is connected or has given up."""
    _until(lambda: client.status != "connecting")
    if client.status != "running":
        raise ClusterError(
            "the scheduler went away and has not come back: start one and its workers, and resume "
            "(the same checkpoint, or --resume)"
        )


def _until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.1)


def _summary(error: BaseException) -> str:
    if isinstance(error, KilledWorker):
        return "a task has died with several workers"
    return "the connection to the scheduler was lost"


def _message(error: BaseException) -> str:
    if isinstance(error, KilledWorker):
        return (
            "workers died repeatedly over one task, usually because there was not enough memory "
            "(gpgc plan shows what they need): give them more, or fewer threads, and resume (the "
            "same checkpoint, or --resume)"
        )
    return (
        "the connection to the scheduler was lost repeatedly: resume (the same checkpoint, or "
        "--resume) once it is stable"
    )


class Opaque:
    """An argument that Dask passes on unchanged, without searching it for tasks."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Sealed(Opaque):
    """An opaque argument that is pickled once, however often it is sent, and unpickled on use.

    A scheduler, which reads and writes all arguments, passes on its bytes.
    """

    __slots__ = ("_content",)

    def __init__(self, value: Any) -> None:
        self._content: bytes | None = None
        super().__init__(value)

    def __getattr__(self, name: str) -> Any:
        # Only of an attribute that is not set: the value after unpickling.
        if name != "value" or self._content is None:
            raise AttributeError(name)
        self.value = pickle.loads(self._content)
        return self.value

    def __getstate__(self) -> bytes:
        if self._content is None:
            self._content = pickle.dumps(self.value)
        return self._content

    def __setstate__(self, content: bytes) -> None:
        self._content = content


def token() -> str:
    """Random text that makes keys of the same name unique."""
    return uuid.uuid4().hex[:12]


def lazy_calls(
    name: str, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
) -> list[Delayed]:
    """One lazy call per tuple of arguments."""
    unique = token()
    call = dask.delayed(function, pure=False, name=False)
    return [
        call(*each, dask_key_name=(name, unique, number)) for number, each in enumerate(arguments)
    ]


def compute(*collections: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Compute collections, with one BLAS thread per task if the tasks run in this process."""
    client = active_client()
    with _blas_limit(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        if client is not None:
            return compute_on(client, collections, watch)
        with nullcontext() if watch is None else watch.on_threads():
            return tuple(dask.compute(*collections))


def _blas_limit() -> AbstractContextManager[Any]:
    """One BLAS thread if tasks are threads of this process; worker processes set their own."""
    client = active_client()
    if client is not None:
        inside = is_in_process(client)
    else:
        scheduler = get_scheduler()
        inside = scheduler is None or "thread" in scheduler.__module__
    return one_blas_thread() if inside else nullcontext()
