"""Limits of the Dask worker on which a task runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from distributed import get_worker

from gpgc_dask.core.threads import blas_threads, one_blas_thread

__all__ = ["limit_blas_threads"]


def limit_blas_threads() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread if other tasks run in the same process at the same time.

    Dask's nannies limit BLAS already; workers without a nanny do not. A worker of one thread keeps
    its number of BLAS threads: one if it has a nanny, otherwise all cores.
    """
    try:
        side_by_side = get_worker().state.nthreads > 1
    except (ValueError, AttributeError):
        return nullcontext()
    return one_blas_thread() if side_by_side and blas_threads() > 1 else nullcontext()
