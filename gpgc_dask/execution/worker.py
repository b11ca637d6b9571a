"""What a task asks of the Dask worker it runs on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from distributed import get_worker

from gpgc_dask.core.threads import blas_threads, one_blas_thread

__all__ = ["own_blas_threads"]


def own_blas_threads() -> AbstractContextManager[Any]:
    """BLAS threads of a task: one where tasks run side by side in its process.

    Dask's nannies limit BLAS already; workers without one, and threads started by hand, do not.
    A worker of one thread keeps what it has: one by its nanny, else all the cores it sees.
    """
    try:
        side_by_side = get_worker().state.nthreads > 1
    except (ValueError, AttributeError):
        return nullcontext()
    return one_blas_thread() if side_by_side and blas_threads() > 1 else nullcontext()
