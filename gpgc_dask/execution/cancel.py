"""Cancelling work: none of its tasks keeps running, and the cluster can be used further."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from distributed import Client, Future, LocalCluster, WorkerPlugin
from distributed.comm import CommClosedError

from gpgc_dask.execution.private import ask_scheduler, run_on_workers
from gpgc_dask.execution.task_progress import ANSWER_SECONDS

__all__ = ["cancel_futures", "ignore_interrupts", "protect_workers"]

log = logging.getLogger("gpgc_dask")

STOP_SECONDS = 10.0
"""Seconds to wait for tasks that are running already; most of them end within one second."""

_protected: WeakSet[Client] = WeakSet()


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, also in processes that are started in this context."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _IgnoreInterrupts(WorkerPlugin):
    """Makes a worker ignore SIGINT, which the process that started it handles."""

    name = "gpgc-ignore-interrupts"
    idempotent = True

    def setup(self, worker: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def protect_workers(client: Client) -> None:
    """Let the workers of a LocalCluster survive Ctrl-C, or the interrupt of a notebook's kernel.

    Both reach all processes of the group. Dask's workers close when they receive them, and the
    cluster, with everything it holds, cannot be used any more.
    """
    if client in _protected:
        return
    _protected.add(client)
    if isinstance(client.cluster, LocalCluster) and client.cluster.processes:
        client.register_plugin(_IgnoreInterrupts())


def cancel_futures(client: Client, futures: Iterable[Future]) -> None:
    """Cancel futures, and wait until no worker works on tasks that the scheduler has dropped."""
    futures = list(futures)
    keys = [future.key for future in futures]
    if not keys:
        return
    try:
        # A task that is cancelled before the scheduler has read its graph is computed nevertheless.
        _until(lambda: None not in _states(client, keys))
    finally:
        client.cancel(futures)
    if not _until(lambda: {*_states(client, keys)} == {None} and not _has_leftovers(client)):
        log.warning("some tasks of the cancelled work are still running: they will end")


def _until(done: Callable[[], bool]) -> bool:
    """Whether it became true in time; also True if the cluster is gone."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            if done():
                return True
        except TimeoutError:
            continue  # a worker is busy, for example with an import
        except (OSError, CommClosedError):
            return True
        time.sleep(0.05)
    return False


def _states(client: Client, keys: list[Any]) -> list[str | None]:
    """State of each task at the scheduler; None if it does not know the task."""
    states = ask_scheduler(client, "get_task_status", ANSWER_SECONDS, keys=keys)
    return [states.get(key) for key in keys]


def _has_leftovers(client: Client) -> bool:
    """Whether a worker runs tasks that the scheduler does not know."""
    before = ask_scheduler(client, "processing", ANSWER_SECONDS, workers=None)
    running = run_on_workers(client, _executing, ANSWER_SECONDS)
    after = ask_scheduler(client, "processing", ANSWER_SECONDS, workers=None)
    return any(
        set(keys).difference(before.get(worker, ()), after.get(worker, ()))
        for worker, keys in running.items()
    )


def _executing(dask_worker: Any) -> list[Any]:
    """Keys of the tasks that a worker runs, including cancelled ones. Runs on the worker."""
    return [task.key for task in dask_worker.state.executing]
