"""Threads and memory of the process in which a task runs.

Several tasks with one BLAS thread each are faster than one task with many: NumPy and SciPy have
separate BLAS libraries, whose idle threads slow each other down, and parts of a sweep are not BLAS.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = [
    "READ_AHEAD",
    "algebra_threads",
    "blas_threads",
    "keep_freed_memory",
    "map_threads",
    "one_blas_thread",
    "prefetch",
]

Item = TypeVar("Item")

READ_AHEAD = 2
"""Number of blocks that are read while one is processed."""

MANY_FEATURES = 2048
"""Number of features from which k×k algebra is faster with several threads."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads() -> int:
    """Number of threads that BLAS may use now."""
    blas = (pool for pool in _controller().info() if pool["user_api"] == "blas")
    return max((pool["num_threads"] for pool in blas), default=1)


_limit_lock = threading.Lock()
_limit_users = 0
_limiter: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the whole process while the context lasts.

    Fits in several threads share the limit: the first sets it, the last restores the old one.
    """
    global _limit_users, _limiter
    with _limit_lock:
        if _limit_users == 0:
            _limiter = _controller().limit(limits=1, user_api="blas")
        _limit_users += 1
    try:
        yield
    finally:
        with _limit_lock:
            _limit_users -= 1
            if _limit_users == 0:
                _limiter.restore_original_limits()


def map_threads(
    function: Callable[[Any], Any], items: Iterable[Any], cancelled: threading.Event | None = None
) -> list[Any]:
    """Results of ``function`` for each item, with one thread per item.

    Parameters
    ----------
    function : callable
        Function of one item.
    items : iterable
        The items.
    cancelled : threading.Event, optional
        Set when the results are not needed any more: one call has failed, or the caller is
        interrupted.
    """
    items = list(items)
    if len(items) == 1:
        return [function(items[0])]
    with one_blas_thread(), ThreadPoolExecutor(len(items)) as pool:
        try:
            # Each in a copy of the caller's context, so that numpy.errstate applies in the threads.
            waiting = [pool.submit(copy_context().run, function, item) for item in items]
            return [future.result() for future in waiting]
        except BaseException:
            if cancelled is not None:
                cancelled.set()
            raise


def algebra_threads(n_features: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for k×k algebra at the driver if the matrices are small.

    NumPy's and SciPy's threads would otherwise wait for each other longer than they work.
    """
    return one_blas_thread() if n_features < MANY_FEATURES else nullcontext()


def prefetch(makers: Iterable[Callable[[], Item]], depth: int = READ_AHEAD) -> Iterator[Item]:
    """Yield the results of calls in order; the next few run in threads while one is used."""
    waiting: deque[Future[Item]] = deque()
    with ThreadPoolExecutor(depth) as pool:
        for make in makers:
            waiting.append(pool.submit(make))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@cache
def keep_freed_memory() -> bool:
    """Let this worker process reuse the memory of blocks that it has freed.

    Dask's nanny sets MALLOC_TRIM_THRESHOLD_ so that workers return freed memory at once; every
    block that is read then causes a page fault per 4 kB, which takes longer than the read itself.
    Blocks of up to 32 MB (glibc's limit) are reused instead, and at most 128 MB is kept.

    Returns
    -------
    bool
        Whether the settings were changed.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    settings = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 128 << 20, M_ARENA_MAX: 2}
    return all(map(mallopt, settings.keys(), settings.values()))
