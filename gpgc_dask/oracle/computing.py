"""Lazy calls under names that people know, and their results.

Keys are (name, token, number), by which Dask's dashboard shows tasks: those of the third read of a
fit as ``sweep-3``, all reads of that kind as ``sweep``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask
from dask.base import get_scheduler
from dask.delayed import Delayed

from gpgc_dask.cluster import active_client, is_inside
from gpgc_dask.endurance import compute_on
from gpgc_dask.process import one_blas_thread
from gpgc_dask.watching import Watch

__all__ = ["Sealed", "compute", "lazy_calls", "token"]


class Sealed:
    """An argument that Dask passes on as it is, without looking inside."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def token() -> str:
    """What tells keys of the same name apart."""
    return uuid.uuid4().hex[:12]


def lazy_calls(
    name: str, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
) -> list[Delayed]:
    """A lazy call for each tuple of arguments."""
    own = token()
    call = dask.delayed(function, pure=False, name=False)
    return [call(*each, dask_key_name=(name, own, number)) for number, each in enumerate(arguments)]


def compute(*collections: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Compute with one BLAS thread a task where the tasks run in this process."""
    client = active_client()
    with _blas_limit(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        if client is not None:
            return compute_on(client, collections, watch)
        with nullcontext() if watch is None else watch.on_threads():
            return tuple(dask.compute(*collections))


def _blas_limit() -> AbstractContextManager[Any]:
    """Workers of their own set one BLAS thread; threads of this process share what it has."""
    client = active_client()
    if client is not None:
        inside = is_inside(client)
    else:
        scheduler = get_scheduler()
        inside = scheduler is None or "thread" in scheduler.__module__
    return one_blas_thread() if inside else nullcontext()
