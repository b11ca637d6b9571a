"""The Dask client that work is sent to, and the resources of its cluster."""

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
    "is_in_process",
    "map_workers",
    "n_threads",
]


def active_client() -> Client | None:
    """The distributed client that computations are sent to, if any."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def is_in_process(client: Client) -> bool:
    """Whether the client's workers are threads of this process."""
    return str(client.scheduler.address).startswith("inproc")


def n_threads() -> int:
    """Number of threads on which the current scheduler runs tasks."""
    client = active_client()
    if client is not None:
        return max(sum(client.nthreads().values()), 1)
    return int(dask.config.get("num_workers", None) or dask.system.CPU_COUNT)


def cluster_resources() -> tuple[int, int, int | None, bool]:
    """Resources of the active client's cluster, or of this process if there is none.

    Returns
    -------
    tuple of (int, int, int or None, bool)
        Number of workers, threads per worker, bytes of memory of the smallest worker (None:
        unknown), and whether the workers are other processes.
    """
    client = active_client()
    if client is None:
        return 1, n_threads(), int(MEMORY_LIMIT), False
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not workers:
        return 1, 1, None, True
    limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
    threads = max(worker["nthreads"] for worker in workers)
    return len(workers), threads, min(limits) if limits else None, not is_in_process(client)


def map_workers(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Results of ``function(*arguments, threads)`` on every worker, or here if there are none."""
    client = active_client()
    if client is None or is_in_process(client):
        return [function(*arguments, None)]
    futures = [
        client.submit(function, *arguments, threads, workers=[worker], pure=False)
        for worker, threads in client.nthreads().items()
    ]
    return list(client.gather(futures))


@contextmanager
def any_client() -> Iterator[Client]:
    """The active client or, if there is none, a temporary one with threads of this process."""
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
