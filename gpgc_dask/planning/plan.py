"""What a fit will cost, before anything runs: pure functions of shapes, with units in the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.display import render_card
from gpgc_dask.core.errors import InputError, NotEnoughMemoryError
from gpgc_dask.core.text import bytes_text
from gpgc_dask.data.dataset import CHUNK_BYTES
from gpgc_dask.execution.client import cluster_resources
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.oracle.dask import BLOCKS_HELD, FAN_IN, MAX_GROUP_BYTES, count_tasks, rows_held
from gpgc_dask.gp.oracle.kernels import batch_rows
from gpgc_dask.gp.oracle.layout import is_adjacent
from gpgc_dask.gp.oracle.rows import STATISTICS_BYTES
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.gp.warm_start import warm_rows
from gpgc_dask.planning.machine import Machine

__all__ = [
    "PAPER",
    "PAPER_FEATURES",
    "Plan",
    "Resources",
    "Shape",
    "Sweeps",
    "driver_bytes",
    "duration",
    "plan",
    "refuse_if_too_large",
    "worker_bytes",
]

PAPER = {
    "AutoSeg cats": 3_006,
    "AutoSeg sheep": 5_079,
    "AutoSeg horses": 9_007,
    "HDSeg horses": 19_060,
    "AutoSeg dogs": 41_777,
    "HDSeg dogs": 111_668,
}
"""Images of the paper's six datasets."""

PAPER_FEATURES = 4_113
"""4,096 of a network, 16 of position, a constant."""

PROCESS_BYTES = 240 << 20
"""A worker with this package, NumPy, SciPy, Dask and Zarr imported, and some freed memory kept."""

USABLE_SHARE = 0.9
"""Share of a worker's memory limit that a plan may fill."""

SECONDS_A_GRAPH = 0.05
"""Building, sending and merging one sweep's graph on a cluster."""

WARM_STEPS, COLD_STEPS, SLOW_STEPS = 2, 3, 4
"""Steps that a fit typically takes: after a warm start, after a survey, with few rows a feature."""

ROWS_FOR_FEW_STEPS = 100
"""Rows for each feature from which on a fit takes few steps."""

EVALUATIONS_A_STEP = 4
EVALUATIONS_OF_A_START = 13
"""Factorisations at the driver (or what costs as much)."""

PARTIALS_HELD = FAN_IN + 3
"""Partials in a worker's memory at a time: those that are merged, their sum, and some that wait."""

LINEAR_PRODUCTS = 40
"""Multiply-adds for each number of a row in judging it by probes."""

GRAMS_OF_A_SAMPLE = 5
"""What a warm start does with its sample, in Gram products of it."""


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

    @classmethod
    def stated(cls, images: int, features: int, superpixels: int = 145) -> Shape:
        """Of a dataset that ingest would make of so many images, before there is one."""
        rows = max(CHUNK_BYTES // (4 * features), 1)
        return cls(
            n_rows=images * superpixels,
            n_features=features,
            n_targets=1,
            n_groups=images,
            largest_group=superpixels,
            rows_in_large_groups=images * superpixels if superpixels > features else 0,
            n_large_groups=images if superpixels > features else 0,
            adjacent=True,
            stored_bytes=4,
            block_rows=rows,
            held_rows=BLOCKS_HELD * rows,
            product_bytes=4,
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
        cls,
        is_dask: bool,
        workers: int | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Resources:
        found_workers, found_threads, found_memory, separate = cluster_resources()
        for name, value in (("workers", workers), ("threads", threads)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be 1 or more, got {value!r}")
        if workers is not None and not separate:
            # Processes of one thread that share this machine, as gpgc fit --workers starts them.
            found_threads = 1
            found_memory = None if found_memory is None else found_memory // workers
        if workers is not None:
            found_workers, separate = workers, True
        if memory is not None:
            try:
                found_memory = parse_bytes(memory)
                if found_memory <= 0:
                    raise InputError("not above 0")
            except ValueError as error:
                raise InputError(
                    f'memory must be bytes or text such as "4GB", got {memory!r}'
                ) from error
        if not is_dask:
            found_workers, separate = 1, False
        return cls(found_workers, threads or found_threads, found_memory, separate)


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a fit by kind, each in reads of the data.

    surveys : moments alone
    steps : judge rows by probes, then moments (the first read of a warm start is one)
    certificates : exact leverages, no moments
    repeated : reads of rows that were read in the same sweep already (scattered groups), of the
        sample, and of nothing else
    """

    surveys: float
    steps: float
    certificates: float
    repeated: float
    sample_rows: int

    @property
    def reads(self) -> float:
        return self.surveys + self.steps + self.certificates + self.repeated


@dataclass(frozen=True)
class Plan:
    """The cost of a fit. Bytes include the Python process; ``reads`` is what is typical.

    shape, resources, machine : what was planned for;  sweeps : the reads, by kind
    worker_bytes, driver_bytes : peak memory of a worker, and of the driver
    network_bytes : from worker to worker and to the driver, all sweeps together, besides what the
        store sends;  bytes_read : what it sends
    products : multiply-adds over the rows;  seconds : by the clock
    """

    shape: Shape
    resources: Resources
    machine: Machine
    sweeps: Sweeps
    worker_bytes: int
    driver_bytes: int
    network_bytes: int
    bytes_read: int
    products: float
    seconds: float

    @property
    def reads(self) -> float:
        return self.sweeps.reads

    @property
    def fits(self) -> bool:
        memory = self.resources.memory
        return memory is None or self.worker_bytes <= USABLE_SHARE * memory

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(what, how much) for people."""
        s, r = self.shape, self.resources
        memory = "unknown" if r.memory is None else bytes_text(r.memory)
        verdict = "fits" if self.fits else "DOES NOT FIT"
        speed = self.machine.products_per_second / 1e9
        return [
            (
                "data",
                f"{s.n_rows:,} rows × {s.n_features:,} features, {s.n_groups:,} groups"
                f" ({'adjacent' if s.adjacent else 'scattered'}), blocks of {s.block_rows:,} rows",
            ),
            ("reads of X", f"{self.reads:.3g} ({bytes_text(self.bytes_read)})"),
            ("multiply-adds", f"{self.products:.3g}"),
            ("memory a worker", f"{bytes_text(self.worker_bytes)} of {memory}: {verdict}"),
            ("memory, driver", bytes_text(self.driver_bytes)),
            ("network", f"{bytes_text(self.network_bytes)} between workers and driver"),
            (
                "time",
                f"{duration(self.seconds)} on {r.workers} worker(s) of {r.threads} thread(s) at "
                f"{speed:.0f} G multiply-adds/s a thread ({self.machine.name})",
            ),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{what:<17}{told}" for what, told in self.facts)

    def _repr_html_(self) -> str:
        return render_card("plan", self)


def duration(seconds: float) -> str:
    """For people: 45 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan(
    shape: Shape,
    *,
    redundancy: bool,
    separable: bool,
    resources: Resources,
    machine: Machine | None = None,
) -> Plan:
    """Project memory, reads, arithmetic, traffic and time of a fit.

    Examples
    --------
    >>> from gpgc_dask.planning.plan import Resources, Shape, plan
    >>> shape = Shape.stated(images=111_668, features=489)
    >>> found = plan(
    ...     shape,
    ...     redundancy=True,
    ...     separable=True,
    ...     resources=Resources.of(is_dask=True, workers=4, memory="8GB"),
    ... )
    >>> found.fits, round(found.reads)
    (True, 4)
    """
    machine = machine or Machine.measure(shape.product_bytes)
    redundancy = redundancy and shape.n_groups >= MIN_GROUPS_FOR_REDUNDANCY
    sweeps = expected_sweeps(shape, redundancy=redundancy, separable=separable)
    worker = _worker_bytes(shape, resources, resources.threads, redundancy=redundancy)
    driver = driver_bytes(shape) if resources.separate else worker
    network = _network_bytes(shape, resources, sweeps, redundancy=redundancy)
    return Plan(
        shape,
        resources,
        machine,
        sweeps,
        worker,
        driver,
        network,
        bytes_read=int(sweeps.reads * shape.n_rows * shape.n_features * shape.stored_bytes),
        products=_products(shape, sweeps, redundancy=redundancy),
        seconds=_seconds(shape, resources, machine, sweeps, network, redundancy=redundancy),
    )


def expected_sweeps(shape: Shape, *, redundancy: bool, separable: bool) -> Sweeps:
    """What a fit typically reads, sufficient statistics and shortcuts included."""
    kept = shape.n_large_groups * 8 * shape.n_features**2 <= STATISTICS_BYTES
    share = 1.0 - (shape.rows_in_large_groups / shape.n_rows if kept else 0.0)
    if not separable:
        # One read for the noise and the scales; each trial of c asks for leave-out terms.
        return Sweeps(1.0, 0.0, 4.0 * share if redundancy else 0.0, 0.0, 0)
    one_read = shape.adjacent and (
        shape.largest_group * shape.n_features * shape.product_bytes <= MAX_GROUP_BYTES
    )
    sample = warm_rows(
        shape.n_rows, shape.n_features, shape.n_groups, shape.largest_group, shape.stored_bytes
    )
    if sample and one_read:
        read = min(8 * shape.block_rows, shape.n_rows) / shape.n_rows
        return Sweeps(0.0, 1.0 + WARM_STEPS, 1.0, read, sample)
    many = shape.n_rows >= ROWS_FOR_FEW_STEPS * shape.n_features
    steps = share * ((COLD_STEPS if many else SLOW_STEPS) + (1 if redundancy else 0))
    return Sweeps(1.0, steps, share, 0.0 if one_read else steps, 0)


def _products(shape: Shape, sweeps: Sweeps, *, redundancy: bool) -> float:
    """Multiply-adds over the rows, a Gram and a triangular product counted as N k² each."""
    square = float(shape.n_rows) * shape.n_features**2
    linear = float(shape.n_rows) * shape.n_features
    judged = sweeps.steps + (sweeps.certificates if redundancy else 0.0)
    sample = GRAMS_OF_A_SAMPLE * float(sweeps.sample_rows) * shape.n_features**2
    return (
        square * (sweeps.surveys + sweeps.steps + sweeps.certificates)
        + linear * LINEAR_PRODUCTS * judged
        + sample
    )


def _seconds(
    shape: Shape,
    resources: Resources,
    machine: Machine,
    sweeps: Sweeps,
    network_bytes: int,
    *,
    redundancy: bool,
) -> float:
    """Wall time: rows on all threads, then the last task, merging, and the driver's algebra."""
    n, k = float(shape.n_rows), float(shape.n_features)
    threads = resources.workers * resources.threads
    gram = k * k / machine.products_per_second
    read = k * shape.stored_bytes / machine.read_bytes_per_second
    linear = k * machine.linear_seconds
    leave_out = k * machine.leave_out_seconds if redundancy else 0.0
    row = {
        "survey": gram + read,
        "step": gram + read + linear + leave_out,
        "certificate": k * k / machine.triangular_per_second + read + linear + leave_out,
    }
    counts = {"survey": sweeps.surveys, "step": sweeps.steps, "certificate": sweeps.certificates}
    by_rows = sum(row[kind] * counts[kind] for kind in row) * n / threads
    n_tasks = count_tasks(shape.n_rows, shape.n_features, threads)
    busy = min(n_tasks / threads, 1.0)
    idle = 0.5 * by_rows / n_tasks * threads if n_tasks > 1 else 0.0
    algebra = k**3 / machine.algebra_per_second
    evaluations = EVALUATIONS_OF_A_START + EVALUATIONS_A_STEP * sweeps.steps
    sample = GRAMS_OF_A_SAMPLE * sweeps.sample_rows * gram
    repeated = sweeps.repeated * n * read / threads
    apart = 0.0
    if resources.separate:
        n_sweeps = sum(counts.values())
        flow = machine.network_bytes_per_second * max(resources.workers / 2, 1)
        apart = n_sweeps * SECONDS_A_GRAPH + network_bytes / flow
    return by_rows / busy + idle + evaluations * algebra + sample + repeated + apart


def _network_bytes(shape: Shape, resources: Resources, sweeps: Sweeps, *, redundancy: bool) -> int:
    """Partials that are merged on another worker, the total, and what goes out with each sweep."""
    if not resources.separate:
        return 0
    k, workers = shape.n_features, resources.workers
    threads = workers * resources.threads
    n_tasks = count_tasks(shape.n_rows, k, threads)
    packed = 8 * k * (k + 1) // 2
    elsewhere = (n_tasks - 1) * (1.0 - 1.0 / workers) + 1.0
    factor = 8 * k * k * (workers + 1)
    rows_known = 40 * shape.n_rows
    pull = _pull_bytes(shape)
    by_moments = packed * elsewhere
    with_factor = sweeps.certificates + (sweeps.steps if redundancy else 0.0)
    n_sweeps = sweeps.surveys + sweeps.steps + sweeps.certificates
    total = (sweeps.surveys + sweeps.steps) * by_moments + with_factor * factor
    return int(total + n_sweeps * rows_known + sweeps.steps * pull)


def _pull_bytes(shape: Shape) -> int:
    """The groups' pulls on the weights."""
    return min(shape.n_groups, shape.n_features) * shape.n_features * shape.product_bytes


def _worker_bytes(shape: Shape, resources: Resources, threads: int, *, redundancy: bool) -> int:
    """As :func:`worker_bytes`, with the driver's own where they are one process."""
    needed = worker_bytes(shape, threads, redundancy=redundancy)
    return needed if resources.separate else needed + driver_bytes(shape) - PROCESS_BYTES


def worker_bytes(shape: Shape, threads: int, *, redundancy: bool) -> int:
    """Peak memory of a worker process, in bytes: in a step or in a certificate.

    In a step each thread holds an open triangle of the Gram sum in a square and its packed sum in
    float64; the process the packed partials that the tree sums, with a few that wait or travel, and
    pulls. In the first read a partial holds the statistics of large groups too. A certificate has T
    in float64 and in the products' precision instead; where the redundancy is solved for, a step
    has both, and V. And each thread always has the rows it has read or was given (a batch may lie
    across two blocks, the next are being read), and the batch.
    """
    k, p = shape.n_features, shape.product_bytes
    square, triangle = k * k, k * (k + 1) // 2
    batch = min(
        max(batch_rows(k, p), shape.largest_group), max(shape.block_rows, shape.largest_group)
    )
    rows = threads * k * (shape.held_rows * shape.stored_bytes + batch * p)
    factor = square * (8 + p)
    step = threads * (square * p + triangle * (8 + p)) + PARTIALS_HELD * 8 * triangle
    step += (FAN_IN + 1) * _statistics_bytes(shape) + 2 * _pull_bytes(shape)
    step += factor + square * p if redundancy else 0
    return int(PROCESS_BYTES + rows + max(step, factor))


def driver_bytes(shape: Shape) -> int:
    """Peak memory of the driver, in bytes: k×k arrays, N-vectors, a sample, pulls, statistics."""
    k = shape.n_features
    statistics = 2 * _statistics_bytes(shape)
    sample = warm_rows(shape.n_rows, k, shape.n_groups, shape.largest_group, shape.stored_bytes)
    kept = sample * k * shape.stored_bytes + 4 * _pull_bytes(shape)
    return int(PROCESS_BYTES + 10 * 8 * k * k + 6 * 8 * shape.n_rows + statistics + kept)


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
    raise NotEnoughMemoryError(
        f"a worker needs {bytes_text(needed)} for this fit but has "
        f"{bytes_text(r.memory or 0)} ({s.n_features:,} features, blocks of {s.block_rows:,} "
        f"rows, {r.threads} thread(s)). Give workers more memory, or fewer threads (one thread: "
        f"{bytes_text(one_thread)}), or rechunk X into smaller row blocks; "
        "fit(..., force=True) goes on all the same"
    )
