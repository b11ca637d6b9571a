"""What a task asks of the process it runs in: cores and memory.

Tasks side by side with one BLAS thread each beat one task with many: NumPy and SciPy bring a BLAS
each, whose idle threads get in each other's way, and some of a sweep's passes over memory are not
BLAS at all.
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
    "ahead",
    "algebra_threads",
    "blas_threads",
    "keep_freed_memory",
    "map_threads",
    "one_blas_thread",
]

Item = TypeVar("Item")

READ_AHEAD = 2
"""Blocks that are being read while one is worked on."""

MANY_FEATURES = 2048
"""Features from which on k×k algebra is worth several threads."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""glibc's names for mallopt's parameters."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads() -> int:
    """Threads that BLAS may use now, so cores that this process may fill."""
    blas = (pool for pool in _controller().info() if pool["user_api"] == "blas")
    return max((pool["num_threads"] for pool in blas), default=1)


_limit_lock = threading.Lock()
_limit_users = 0
_limiter: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, for the whole process, while anyone is inside.

    The limit is the process's, so fits in several threads share it: the first in sets it and the
    last out restores what was there before.
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
    function: Callable[[Any], Any], items: Iterable[Any], in_vain: threading.Event | None = None
) -> list[Any]:
    """Results of ``function`` for each item, a thread each.

    ``in_vain`` is set once nobody waits for them any more: one has failed, or the caller is
    interrupted.
    """
    items = list(items)
    if len(items) == 1:
        return [function(items[0])]
    with one_blas_thread(), ThreadPoolExecutor(len(items)) as pool:
        try:
            # Each in a copy of the caller's context, so that numpy.errstate reaches the threads.
            waiting = [pool.submit(copy_context().run, function, item) for item in items]
            return [future.result() for future in waiting]
        except BaseException:
            if in_vain is not None:
                in_vain.set()
            raise


def algebra_threads(n_features: int) -> AbstractContextManager[Any]:
    """BLAS threads for k×k algebra at the driver: one where the matrices are small.

    NumPy's and SciPy's threads would wait for each other longer than they work.
    """
    return one_blas_thread() if n_features < MANY_FEATURES else nullcontext()


def ahead(makers: Iterable[Callable[[], Item]], depth: int = READ_AHEAD) -> Iterator[Item]:
    """What the makers make, in order, the next few at work in threads while one is used."""
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
    """Let this worker process reuse the memory of a block it has freed.

    Dask's nanny sets MALLOC_TRIM_THRESHOLD_ so that workers hand freed memory back at once; every
    block read then pays a page fault every 4 kB, which took longer than the read itself. Blocks of
    up to 32 MB (glibc's limit) are reused instead, and at most 128 MB is kept.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    settings = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 128 << 20, M_ARENA_MAX: 2}
    return all(map(mallopt, settings.keys(), settings.values()))
