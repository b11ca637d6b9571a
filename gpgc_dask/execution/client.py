"""Which Dask cluster work goes to: the active client's, one by address, or one of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from dask.base import get_scheduler
from distributed import Client, KilledWorker
from distributed.system import MEMORY_LIMIT

__all__ = [
    "MEMORY_LIMIT",
    "Client",
    "KilledWorker",
    "active_client",
    "any_client",
    "cluster_resources",
    "is_inside",
    "map_workers",
    "n_threads",
]


def active_client() -> Client | None:
    """The distributed client that computations go to, if any."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def is_inside(client: Client) -> bool:
    """Whether the client's workers are threads of this process."""
    return str(client.scheduler.address).startswith("inproc")


def n_threads() -> int:
    """Threads that the current scheduler will run tasks on."""
    client = active_client()
    if client is not None:
        return max(sum(client.nthreads().values()), 1)
    return int(dask.config.get("num_workers", None) or dask.system.CPU_COUNT)


def cluster_resources() -> tuple[int, int, int | None, bool]:
    """(workers, threads of each, bytes of memory of each or None, are they other processes).

    Of the active client's cluster, the smallest worker counting; else of this process.
    """
    client = active_client()
    if client is None:
        return 1, n_threads(), int(MEMORY_LIMIT), False
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not workers:
        return 1, 1, None, True
    limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
    threads = max(worker["nthreads"] for worker in workers)
    return len(workers), threads, min(limits) if limits else None, not is_inside(client)


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
        dashboard_address="127.0.0.1:0",
    ) as own:
        yield own
