"""Which Dask cluster work goes to: the active client's, one by address, or one of our own."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from dask.base import get_scheduler
from distributed import Client, LocalCluster

__all__ = ["active_client", "any_client", "connected", "is_inside", "map_workers"]

CONNECT_SECONDS = 10
"""How long a scheduler may take to answer."""


def active_client() -> Client | None:
    """The distributed client that computations go to, if any."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def is_inside(client: Client) -> bool:
    """Whether the client's workers are threads of this process."""
    return str(client.scheduler.address).startswith("inproc")


def map_workers(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``function(*arguments, threads)`` on every worker at once, or here if there are none."""
    client = active_client()
    if client is None or is_inside(client):
        return [function(*arguments, None)]
    futures = [
        client.submit(function, *arguments, threads, workers=[worker], pure=False)
        for worker, threads in client.nthreads().items()
    ]
    return list(client.gather(futures))


@contextmanager
def any_client() -> Iterator[Client]:
    """The active client; where there is none, threads of this process for the time being."""
    client = active_client()
    if client is not None:
        yield client
        return
    with Client(
        processes=False,
        n_workers=1,
        threads_per_worker=dask.system.CPU_COUNT,
        dashboard_address=":0",
    ) as own:
        yield own


@contextmanager
def connected(scheduler: str | None = None, workers: int | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, or of ``workers`` processes on this machine.

    Without either, one process a core.
    """
    if scheduler is not None:
        with _remote(scheduler) as client:
            yield client
        return
    with _local(workers or dask.system.CPU_COUNT) as cluster, Client(cluster) as client:
        yield client


def _local(workers: int) -> LocalCluster:
    """Processes of one thread each, that leave Ctrl-C to this one and say no more than it does."""
    level = logging.getLogger("distributed").getEffectiveLevel()
    # A worker that holds a second task while others idle makes a sweep wait for it at the end.
    with _without_interrupts(), dask.config.set({"distributed.scheduler.worker-saturation": 1.0}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=max(level, logging.WARNING),
        )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, also in processes started meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _remote(scheduler: str) -> Client:
    try:
        return Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}): check the "
            "address, or leave --scheduler out to work on this machine"
        ) from error
