"""Peak memory of workers and driver: pure functions of sizes, in bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gpgc_dask.core.errors import NotEnoughMemoryError
from gpgc_dask.core.text import bytes_text
from gpgc_dask.gp.oracle.dask import FAN_IN
from gpgc_dask.gp.oracle.kernels import batch_rows
from gpgc_dask.gp.oracle.rows import STATISTICS_BYTES
from gpgc_dask.gp.warm_start import warm_start_rows
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape

__all__ = ["USABLE_SHARE", "check_memory", "driver_bytes", "process_bytes", "worker_bytes"]

PROCESS_BYTES = 240 << 20
"""A worker with this package, NumPy, SciPy, Dask and Zarr imported, and some memory to spare."""

USABLE_SHARE = 0.9
"""Share of a worker's memory limit that a fit may fill."""

PARTIALS_HELD = FAN_IN + 3
"""Partial sums in a worker's memory at a time: those being merged, their sum, and some waiting."""


def worker_bytes(shape: Shape, threads: int, *, estimate_redundancy: bool, rounds: int = 0) -> int:
    """Peak memory of a worker process in bytes.

    Parameters
    ----------
    shape : Shape
        Sizes of the data.
    threads : int
        Threads of the worker.
    estimate_redundancy : bool
        Whether the fit estimates the redundancy.
    rounds : int, default 0
        Rounds of the second look.

    Notes
    -----
    The peak is reached in a step, in the final check of the optimum, or in the second look.

    In a step each thread holds a square of which one triangle is the current Gram sum, and its
    packed sum in float64. The process holds the packed partial sums that the tree adds up, a few
    that wait or are being sent, and group gradients. In the first read a partial sum also holds
    the statistics of large groups.

    The final check holds T in float64 and in the precision of the products instead. If the
    redundancy is estimated, a step holds both, and V. The second look holds copies of the batch in
    addition to T, two in the precision of the products and two in float64.

    Each thread always holds the rows it has read or received (a batch may span two blocks while
    the next ones are being read), and the batch.
    """
    k, p = shape.n_features, shape.product_bytes
    square, triangle = k * k, k * (k + 1) // 2
    batch = min(
        max(batch_rows(k, p), shape.largest_group), max(shape.block_rows, shape.largest_group)
    )
    rows = threads * k * (shape.held_rows * shape.stored_bytes + batch * p)
    factor = square * (8 + p)
    step = threads * (square * p + triangle * (8 + p)) + PARTIALS_HELD * 8 * triangle
    step += (FAN_IN + 1) * _statistics_bytes(shape) + 2 * weight_gradient_bytes(shape)
    step += factor + square * p if estimate_redundancy else 0
    look = factor + threads * batch * k * (2 * p + 16) if rounds else 0
    return int(PROCESS_BYTES + rows + max(step, factor, look))


def driver_bytes(shape: Shape, *, rounds: int = 0) -> int:
    """Peak memory of the driver in bytes.

    It holds k×k arrays, N-vectors, the sample of a warm start, group gradients, and statistics of
    large groups; in the second look the predictions for all rows, and more N-vectors.
    """
    k = shape.n_features
    statistics = 2 * _statistics_bytes(shape)
    sample = warm_start_rows(
        shape.n_rows, k, shape.n_groups, shape.largest_group, shape.stored_bytes
    )
    in_memory = sample * k * shape.stored_bytes + 4 * weight_gradient_bytes(shape)
    vectors = 6 + (shape.n_targets + 4 if rounds else 0)
    return int(PROCESS_BYTES + 10 * 8 * k * k + vectors * 8 * shape.n_rows + statistics + in_memory)


def process_bytes(
    shape: Shape, resources: Resources, *, estimate_redundancy: bool, rounds: int = 0
) -> int:
    """Peak memory in bytes of a process that is a worker, and the driver too if not separate."""
    needed = worker_bytes(
        shape, resources.threads, estimate_redundancy=estimate_redundancy, rounds=rounds
    )
    if resources.separate:
        return needed
    return needed + driver_bytes(shape, rounds=rounds) - PROCESS_BYTES


def check_memory(
    shape: Shape, resources: Resources, *, estimate_redundancy: bool, rounds: int = 0
) -> None:
    """Raise a NotEnoughMemoryError if a fit needs more memory than a worker has."""
    limit = resources.memory_limit
    needed_by = partial(
        process_bytes, shape, estimate_redundancy=estimate_redundancy, rounds=rounds
    )
    needed = needed_by(resources)
    if limit is None or needed <= USABLE_SHARE * limit:
        return
    one_thread = needed_by(replace(resources, threads=1))
    raise NotEnoughMemoryError(
        f"a worker needs {bytes_text(needed)} for this fit but has {bytes_text(limit)} "
        f"({shape.n_features:,} features, blocks of {shape.block_rows:,} rows, "
        f"{resources.threads} thread(s)). Give workers more memory or fewer threads (one thread: "
        f"{bytes_text(one_thread)}), or rechunk X into smaller row blocks; "
        "in Python fit(..., force=True) skips this check"
    )


def weight_gradient_bytes(shape: Shape) -> int:
    """Gradients of the weights by group, of as many groups as are asked for."""
    return min(shape.n_groups, shape.n_features) * shape.n_features * shape.product_bytes


def _statistics_bytes(shape: Shape) -> int:
    """Sufficient statistics of groups with more rows than features."""
    k = shape.n_features
    return min(shape.n_large_groups * 8 * k * (k + shape.n_targets), STATISTICS_BYTES)
