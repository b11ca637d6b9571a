"""Memory that the training of an SVM needs, and a check before it starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import InputError, NotEnoughMemoryError
from gpgc_dask.core.text import bytes_text
from gpgc_dask.execution.client import MEMORY_LIMIT
from gpgc_dask.gp.training import Training
from gpgc_dask.models._hinge import GRAM_ROWS
from gpgc_dask.models.svm_rows import is_usable_in_place
from gpgc_dask.planning.memory import USABLE_SHARE

__all__ = ["available_bytes", "check_size", "training_bytes"]

NODE_BYTES = 16
"""Bytes of LibLinear's copy of a non-zero number: an index and a float64, aligned."""

KEPT_BYTES = 128 << 20
"""Freed memory that the process keeps, of blocks that were read, for example."""

MAX_NODES = 2**31 - 1
"""LibLinear counts its nodes, one per number and one per row, in 32 bits, unchecked."""


def training_bytes(n_rows: int, n_features: int, n_classes: int, threads: int) -> int:
    """Maximum memory of a fit: X as float64, then LibLinear's copy or the arrays of the folds.

    ``threads`` share the folds of a cross-validation; 0 without one.
    """
    machines = 1 if n_classes == 2 else n_classes
    batches = threads * 2 * 8 * min(GRAM_ROWS, n_rows) * n_features
    folds = threads * 8 * ((machines + 2) * n_features**2 + 8 * machines * n_rows)
    nodes = NODE_BYTES * n_rows * (n_features + 1)
    return int(8 * n_rows * n_features + max(nodes, folds) + batches + KEPT_BYTES)


def available_bytes() -> int:
    """Memory that this process may still allocate, within the machine's and its own limit."""
    own = psutil.Process().memory_info().rss
    return int(max(min(psutil.virtual_memory().available, MEMORY_LIMIT - own), 0))


def check_size(
    training: Training, rows: Index, memory_bytes: Callable[[int], int], *, force: bool
) -> None:
    """Raise an error if LibLinear cannot train on these rows, or the memory is not enough.

    ``memory_bytes`` is a function of the number of rows. ``force`` ignores the memory.
    """
    n, k = rows.size, training.X.shape[1]
    if n * (k + 1) > MAX_NODES:
        raise InputError(
            f"LibLinear counts in 32 bits: it takes {MAX_NODES // (k + 1):,} rows of {k:,} "
            f"features, not {n:,}; train on a sample of the groups with max_rows="
        )
    needed, available = memory_bytes(n), available_bytes()
    if is_usable_in_place(training.X, rows):
        needed -= training.X.nbytes
    if force or needed <= USABLE_SHARE * available:
        return
    max_rows = bisect_right(range(n), USABLE_SHARE * available, key=memory_bytes) - 1
    raise NotEnoughMemoryError(
        f"this fit needs {bytes_text(needed)} but {bytes_text(available)} are available: LibLinear "
        f"holds all {n:,} rows of {k:,} features in memory. Train on a sample of the groups "
        f"(in Python max_rows={max(max_rows, 0)}), or on a machine with more memory; "
        "in Python fit(..., force=True) ignores this check"
    )
