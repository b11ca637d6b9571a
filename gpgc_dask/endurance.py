"""Computations on a cluster that outlive what happens to it.

A sweep is one graph whose partial sums are counted once each: Dask computes those of a lost worker
again by itself. What Dask gives up on (the scheduler went away, a piece of work died with several
workers) is begun anew from the graph, so that a result is complete or there is none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from itertools import count
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, wait
from distributed.comm import CommClosedError

from gpgc_dask.interrupts import leave_interrupts, stop
from gpgc_dask.watching import Watch

__all__ = ["LOST", "ClusterError", "compute_on"]

log = logging.getLogger("gpgc_dask")

LOST = (CancelledError, CommClosedError, KilledWorker)
"""What a cluster answers where the work is not to blame, or may not be."""

REPEATS = 5
"""Times that a computation is begun anew before the cluster is given up."""

LOOK_SECONDS = 5.0
"""Between two looks at whether the cluster has workers at all."""

WATCH_SECONDS = 1.0
"""Between two looks at how far it is, where somebody watches."""


class ClusterError(RuntimeError):
    """The cluster is gone, or kills the work: nothing wrong was computed, nothing is lost."""


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


def setting(name: str, default: str) -> float:
    """Seconds of Dask's configuration key gpgc.cluster.NAME, or of DASK_GPGC__CLUSTER__NAME."""
    return float(dask.utils.parse_timedelta(dask.config.get(f"gpgc.cluster.{name}", default)))


def _wait(client: Client, futures: list[Future], watch: Watch | None) -> None:
    """Until all is done; a cluster that has had no worker for long is an error, not a wait."""
    patience = setting("no-workers-timeout", "10 minutes")
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
