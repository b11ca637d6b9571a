"""What a fit will cost, before anything runs: pure functions of shapes, with units in the names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from gpgc_dask.arrays import Features, Index
from gpgc_dask.oracle.dask import (
    FAN_IN,
    MAX_GROUP_BYTES,
    cluster_resources,
    is_dask,
    rows_held,
)
from gpgc_dask.oracle.kernels import batch_rows
from gpgc_dask.oracle.layout import is_adjacent
from gpgc_dask.oracle.rows import STATISTICS_BYTES
from gpgc_dask.process import one_blas_thread

__all__ = ["Machine", "Plan", "Resources", "Shape", "plan", "refuse_if_too_large"]

PROCESS_BYTES = 240 << 20
"""A worker with this package, NumPy, SciPy, Dask and Zarr imported, and some freed memory kept."""

USABLE_SHARE = 0.9
"""Share of a worker's memory limit that a plan may fill."""

SECONDS_A_GRAPH = 0.05
"""Building, sending and merging one sweep's graph on a cluster."""

STEPS = 7
STEPS_WITH_REDUNDANCY = 10
"""Reads after the first that a fit typically takes."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the data: all that a plan depends on."""

    n_rows: int
    n_features: int
    n_targets: int
    n_groups: int
    largest_group: int
    rows_in_large_groups: int
    n_large_groups: int
    adjacent: bool
    stored_bytes: int
    block_rows: int
    held_rows: int
    """Rows that a task has in memory at a time."""
    product_bytes: int
    """Bytes of a number in the products: 4 or 8."""

    @classmethod
    def of(cls, X: Any, groups: Index, n_classes: int, dtype: np.dtype[Any] | None) -> Shape:
        sizes = np.bincount(groups)
        k = X.shape[1]
        large = sizes[sizes > k]
        chunks = getattr(X, "chunks", ((X.shape[0],),))[0]
        wide = X.dtype == np.float64 if dtype is None else dtype == np.float64
        return cls(
            n_rows=X.shape[0],
            n_features=k,
            n_targets=1 if n_classes == 2 else n_classes,
            n_groups=sizes.size,
            largest_group=int(sizes.max()),
            rows_in_large_groups=int(large.sum()),
            n_large_groups=large.size,
            adjacent=is_adjacent(groups),
            stored_bytes=X.dtype.itemsize,
            block_rows=int(max(chunks)),
            held_rows=rows_held(X) if is_dask(X) else 0,
            product_bytes=8 if wide else 4,
        )


@dataclass(frozen=True)
class Resources:
    """Worker processes, threads in each, and bytes of memory of each (None: not known)."""

    workers: int
    threads: int
    memory: int | None
    separate: bool
    """Whether workers are processes other than the driver."""

    @classmethod
    def of(
        cls, is_dask: bool, workers: int | None = None, memory: int | str | None = None
    ) -> Resources:
        found_workers, threads, found_memory, separate = cluster_resources()
        if workers is not None:
            if workers < 1:
                raise ValueError(f"workers must be 1 or more, got {workers!r}")
            found_workers, separate = workers, True
        if memory is not None:
            try:
                found_memory = parse_bytes(memory)
                if found_memory <= 0:
                    raise ValueError("not above 0")
            except ValueError as error:
                raise ValueError(
                    f'memory must be bytes or text such as "4GB", got {memory!r}'
                ) from error
        if not is_dask:
            found_workers, separate = 1, False
        return cls(found_workers, threads, found_memory, separate)


@dataclass(frozen=True)
class Machine:
    """Speed of one core: multiply-adds a second in a Gram product, and bytes read a second."""

    products_per_second: float
    read_bytes_per_second: float = 1e9
    name: str = "stated"

    @classmethod
    def measure(cls, product_bytes: int = 4) -> Machine:
        """Time a small Gram product on one core of this machine (some 0.1 s)."""
        rows, k = 2048, 512
        A = np.ones((rows, k), dtype=np.float32 if product_bytes == 4 else np.float64)
        with one_blas_thread():
            A.T @ A
            best = min(_seconds(A) for _ in range(5))
        return cls(rows * k * k / best, name="measured on this machine")


def _seconds(A: Features) -> float:
    start = time.perf_counter()
    A.T @ A
    return time.perf_counter() - start


@dataclass(frozen=True)
class Plan:
    """The cost of a fit. Bytes include the Python process; ``reads`` is what is typical."""

    shape: Shape
    resources: Resources
    machine: Machine
    worker_bytes: int
    driver_bytes: int
    reads: float
    bytes_read: int
    products: float
    seconds: float

    @property
    def fits(self) -> bool:
        memory = self.resources.memory
        return memory is None or self.worker_bytes <= USABLE_SHARE * memory

    def __str__(self) -> str:
        s, r = self.shape, self.resources
        memory = "unknown" if r.memory is None else format_bytes(r.memory)
        verdict = "fits" if self.fits else "DOES NOT FIT"
        lines = [
            f"data             {s.n_rows:,} rows × {s.n_features:,} features, {s.n_groups:,} groups"
            f" ({'adjacent' if s.adjacent else 'scattered'}), blocks of {s.block_rows:,} rows",
            f"reads of X       {self.reads:.3g} ({format_bytes(self.bytes_read)})",
            f"multiply-adds    {self.products:.3g}",
            f"memory a worker  {format_bytes(self.worker_bytes)} of {memory}: {verdict}",
            f"memory, driver   {format_bytes(self.driver_bytes)}",
            f"time             {_duration(self.seconds)} on {r.workers} worker(s) of {r.threads} "
            f"thread(s) at {self.machine.products_per_second / 1e9:.0f} G multiply-adds/s a thread "
            f"({self.machine.name})",
        ]
        return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan(
    shape: Shape,
    *,
    redundancy: bool,
    separable: bool,
    resources: Resources,
    machine: Machine | None = None,
) -> Plan:
    """Project memory, reads, arithmetic and time of a fit."""
    machine = machine or Machine.measure(shape.product_bytes)
    reads = expected_reads(shape, redundancy=redundancy, separable=separable)
    products = _products(shape, reads, redundancy=redundancy, separable=separable)
    bytes_read = int(reads * shape.n_rows * shape.n_features * shape.stored_bytes)
    threads = resources.workers * resources.threads
    seconds = products / (machine.products_per_second * threads)
    seconds += bytes_read / (machine.read_bytes_per_second * threads)
    seconds += _driver_products(shape) * reads / machine.products_per_second
    seconds += reads * SECONDS_A_GRAPH if resources.separate else 0.0
    worker = _worker_bytes(shape, resources, resources.threads, redundancy=redundancy)
    driver = driver_bytes(shape) if resources.separate else worker
    return Plan(shape, resources, machine, worker, driver, reads, bytes_read, products, seconds)


def expected_reads(shape: Shape, *, redundancy: bool, separable: bool) -> float:
    """Full reads of X a fit typically takes, sufficient statistics and shortcuts included."""
    solves = redundancy and shape.n_groups >= 10
    if not separable and not solves:
        return 1.0
    steps = STEPS_WITH_REDUNDANCY if solves else STEPS
    kept = shape.n_large_groups * 8 * shape.n_features**2 <= STATISTICS_BYTES
    share = 1.0 - (shape.rows_in_large_groups / shape.n_rows if kept else 0.0)
    one_read = shape.adjacent and (
        shape.largest_group * shape.n_features * shape.product_bytes <= MAX_GROUP_BYTES
    )
    return 1.0 + steps * share * (1 if one_read or not separable else 2)


def _products(shape: Shape, reads: float, *, redundancy: bool, separable: bool) -> float:
    """Multiply-adds over the rows, a Gram counted as N k², a triangular product as 0.8 of it."""
    square = float(shape.n_rows) * shape.n_features**2
    rows_a_group = min(shape.n_rows / shape.n_groups, shape.n_features)
    leave_out = float(shape.n_rows) * rows_a_group * shape.n_features if redundancy else 0.0
    return square + (reads - 1.0) * (1.8 * square + leave_out)


def _driver_products(shape: Shape) -> float:
    """Multiply-adds at the driver an iteration: some four factorisations in float64."""
    return 4 * (2 / 3) * float(shape.n_features) ** 3 * 2


def _worker_bytes(shape: Shape, resources: Resources, threads: int, *, redundancy: bool) -> int:
    """As :func:`worker_bytes`, with the driver's own where they are one process."""
    needed = worker_bytes(shape, threads, redundancy=redundancy)
    return needed if resources.separate else needed + driver_bytes(shape) - PROCESS_BYTES


def worker_bytes(shape: Shape, threads: int, *, redundancy: bool) -> int:
    """Peak memory of a worker process, in bytes.

    A process holds T in float64 and in the products' precision; each thread the rows it has read or
    was given (a batch may lie across two blocks, a third is being read), the batch, a Gram sum in
    float64 and one product; and the process the partials that the tree sums, with a few that wait
    or travel. In the first read a partial holds the statistics of large groups too.
    """
    k, p = shape.n_features, shape.product_bytes
    square = k * k
    limit = batch_rows(k, p)
    batch = min(max(limit, shape.largest_group), max(shape.block_rows, shape.largest_group))
    block = shape.held_rows * k * shape.stored_bytes
    batches = batch * k * p
    leave_out = min(shape.largest_group, limit) * k * (2 * p + 8) if redundancy else 0
    sums = square * (8 + p)
    partials = (FAN_IN + 4) * 8 * square + (FAN_IN + 1) * _statistics_bytes(shape)
    shared = square * (8 + p)
    return int(PROCESS_BYTES + shared + partials + threads * (block + batches + leave_out + sums))


def driver_bytes(shape: Shape) -> int:
    """Peak memory of the driver, in bytes: k×k arrays, N-vectors and sufficient statistics."""
    k = shape.n_features
    statistics = 2 * _statistics_bytes(shape)
    return int(PROCESS_BYTES + 9 * 8 * k * k + 6 * 8 * shape.n_rows + statistics)


def _statistics_bytes(shape: Shape) -> int:
    """Sufficient statistics of groups with more rows than features."""
    k = shape.n_features
    return min(shape.n_large_groups * 8 * k * (k + shape.n_targets), STATISTICS_BYTES)


def refuse_if_too_large(s: Shape, r: Resources, *, redundancy: bool) -> None:
    """Raise a MemoryError with the numbers and the way out where a fit will not fit."""
    needed = _worker_bytes(s, r, r.threads, redundancy=redundancy)
    if r.memory is None or needed <= USABLE_SHARE * r.memory:
        return
    one_thread = _worker_bytes(s, r, 1, redundancy=redundancy)
    raise MemoryError(
        f"a worker needs {format_bytes(needed)} for this fit but has "
        f"{format_bytes(r.memory or 0)} ({s.n_features:,} features, blocks of {s.block_rows:,} "
        f"rows, {r.threads} thread(s)). Give workers more memory, or fewer threads (one thread: "
        f"{format_bytes(one_thread)}), or rechunk X into smaller row blocks; "
        "fit(..., force=True) goes on all the same"
    )
