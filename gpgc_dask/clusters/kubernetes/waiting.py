"""Wait until a scheduler answers and its workers are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from distributed import Client, TimeoutError

from gpgc_dask.clusters.kubernetes.settings import REPLACE
from gpgc_dask.clusters.versions import check_versions, without_dasks_table
from gpgc_dask.core.errors import SchedulerNotFoundError

__all__ = ["wait_for_scheduler", "wait_for_workers"]

ANSWER_SECONDS = 600
"""Seconds within which the scheduler must answer: image pulls and new nodes take time."""

REPORT_SECONDS = 2.0
"""Seconds between two looks at what pods wait for."""

FIND_OUT = (
    "find out why their pods wait (kubectl describe pod); often no node has as many cores as they "
    "request"
)

WORKER_SECONDS = 600
"""Seconds for which a fit waits for all of its workers; then it continues with those there are."""


def wait_for_scheduler(
    address: str,
    workers: int = 1,
    *,
    answer_seconds: float = ANSWER_SECONDS,
    worker_seconds: float = WORKER_SECONDS,
) -> int:
    """Wait, and return the number of workers: all or, after some time, at least one.

    Raises a VersionError if they run another image than this process.
    """
    try:
        with without_dasks_table():
            client = Client(address, timeout=answer_seconds)
    except (OSError, TimeoutError) as error:
        raise SchedulerNotFoundError(
            f"no Dask scheduler answers at {address} after {answer_seconds:.0f} s: check whether "
            "its pod runs and what it logs (kubectl get pods, kubectl logs)"
        ) from error
    with client:
        check_versions(client, REPLACE)  # of a running cluster, before it is waited for
        found = wait_for_workers(client, workers, worker_seconds)
        check_versions(client, REPLACE)
        return found


def wait_for_workers(
    client: Client,
    workers: int,
    seconds: float = WORKER_SECONDS,
    report: Callable[[], str] = lambda: FIND_OUT,
) -> int:
    """Wait for workers and return their number. A fit divides its work among those there are.

    Parameters
    ----------
    client : distributed.Client
        Connection to the scheduler.
    workers : int
        Number of workers to wait for.
    seconds : float
        Seconds after which those that are there are enough.
    report : callable
        Called every few seconds; returns why there are not more.
    """
    until = time.monotonic() + seconds
    found, reason = _count(client), ""
    while found < workers and time.monotonic() < until:
        reason = report()
        with suppress(TimeoutError):
            pause = min(REPORT_SECONDS, max(until - time.monotonic(), 0.01))
            client.wait_for_workers(workers, timeout=pause)
        found = _count(client)
    if not found:
        raise SchedulerNotFoundError(
            f"the scheduler at {client.scheduler.address} has no worker after {seconds:.0f} s: "
            f"{reason or FIND_OUT}"
        )
    return found


def _count(client: Client) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])
