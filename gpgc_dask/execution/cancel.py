"""Work that is stopped by hand: nothing of it runs on, and the cluster lives on."""

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

__all__ = ["leave_interrupts", "stop", "without_interrupts"]

log = logging.getLogger("gpgc_dask")

STOP_SECONDS = 10.0
"""How long to wait for tasks that run already: they end by themselves, most within a second."""

_known: WeakSet[Client] = WeakSet()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, also in processes started meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Deaf(WorkerPlugin):
    """A worker that leaves SIGINT to the process which started it."""

    name = "gpgc-deaf-to-interrupts"
    idempotent = True

    def setup(self, worker: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave_interrupts(client: Client) -> None:
    """Let the workers of a LocalCluster survive Ctrl-C, or the interrupt of a notebook's kernel.

    Both reach all processes of the group. Dask's workers close for good when they see them, and
    the cluster, with all that it holds, is of no use any more.
    """
    if client in _known:
        return
    _known.add(client)
    if isinstance(client.cluster, LocalCluster) and client.cluster.processes:
        client.register_plugin(_Deaf())


def stop(client: Client, futures: Iterable[Future]) -> None:
    """Cancel the futures, and wait until no worker works on what the scheduler has given up."""
    futures = list(futures)
    keys = [future.key for future in futures]
    if not keys:
        return
    try:
        # What is cancelled before the scheduler has unpacked its graph is computed all the same.
        _until(lambda: None not in _states(client, keys))
    finally:
        client.cancel(futures)
    if not _until(lambda: {*_states(client, keys)} == {None} and not _has_leftovers(client)):
        log.warning("some tasks of what was stopped still run: they end by themselves")


def _until(done: Callable[[], bool]) -> bool:
    """Whether it came true in time; also where the cluster, being gone, cannot tell."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            if done():
                return True
        except TimeoutError:
            continue  # a worker is busy, with an import perhaps
        except (OSError, CommClosedError):
            return True
        time.sleep(0.05)
    return False


def _states(client: Client, keys: list[Any]) -> list[str | None]:
    """What the scheduler knows of each: None where it has not heard of it, or has forgotten it."""
    known = ask_scheduler(client, "get_task_status", ANSWER_SECONDS, keys=keys)
    return [known.get(key) for key in keys]


def _has_leftovers(client: Client) -> bool:
    """Whether a worker is at tasks that nobody waits for."""
    before = ask_scheduler(client, "processing", ANSWER_SECONDS, workers=None)
    held = run_on_workers(client, _executing, ANSWER_SECONDS)
    after = ask_scheduler(client, "processing", ANSWER_SECONDS, workers=None)
    return any(
        set(keys).difference(before.get(worker, ()), after.get(worker, ()))
        for worker, keys in held.items()
    )


def _executing(dask_worker: Any) -> list[Any]:
    """Keys of the tasks that a worker is at, also of those that are cancelled. Runs on it."""
    return [task.key for task in dask_worker.state.executing]
