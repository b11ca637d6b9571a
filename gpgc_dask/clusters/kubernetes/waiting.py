"""Wait until a scheduler answers and its workers are there.

``python -m gpgc_dask.clusters.kubernetes.waiting tls://gpgc-scheduler.gpgc.svc:8786 20`` is the
first command of the driver's pod. Certificates come from Dask's configuration.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from distributed import Client, TimeoutError

from gpgc_dask.core.errors import SchedulerNotFoundError

__all__ = ["wait_for_scheduler", "wait_for_workers"]

ANSWER_SECONDS = 600
"""Seconds within which the scheduler must answer: image pulls and new nodes take time."""

WORKER_SECONDS = 600
"""Seconds for which a fit waits for all of its workers; then it continues with those there are."""


def wait_for_scheduler(
    address: str,
    workers: int = 1,
    *,
    answer_seconds: float = ANSWER_SECONDS,
    worker_seconds: float = WORKER_SECONDS,
) -> int:
    """Wait, and return the number of workers: all or, after some time, at least one."""
    try:
        client = Client(address, timeout=answer_seconds)
    except (OSError, TimeoutError) as error:
        raise SchedulerNotFoundError(
            f"no Dask scheduler answers at {address} after {answer_seconds:.0f} s: check whether "
            "its pod runs and what it logs (kubectl get pods, kubectl logs)"
        ) from error
    with client:
        return wait_for_workers(client, workers, worker_seconds)


def wait_for_workers(client: Client, workers: int, seconds: float = WORKER_SECONDS) -> int:
    """Wait for workers and return their number. A fit divides its work among those there are."""
    with suppress(TimeoutError):
        client.wait_for_workers(workers, timeout=seconds)
    found = len(client.scheduler_info(n_workers=-1)["workers"])
    if not found:
        raise SchedulerNotFoundError(
            f"the scheduler at {client.scheduler.address} has no worker after {seconds:.0f} s: "
            "find out why their pods wait (kubectl describe pod); often no node has as many "
            "cores as they request"
        )
    return found


def _main() -> None:
    address, workers = sys.argv[1], int(sys.argv[2])
    try:
        found = wait_for_scheduler(address, workers)
    except ConnectionError as error:
        sys.exit(f"gpgc: {error}")
    print(f"{address} answers with {found} of {workers} workers", file=sys.stderr)


if __name__ == "__main__":
    _main()
