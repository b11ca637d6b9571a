"""The oracle for a dask array: lazy blockwise work and tree reductions on any scheduler.

A sweep is one graph. Each task has a range of rows (cut at group boundaries if a step needs whole
groups), reads its blocks one at a time, accumulates in float64 and returns one partial sum of k×k
numbers; the partial sums are added up as a tree. If a block of X is a plain read, from Zarr for
example, the task reads it itself: it needs memory for a few blocks and k×k arrays, whatever the
number of rows. Other arrays (results of a computation, data persisted on the cluster) are ordinary
dependencies of the tasks.

In the dashboard of Dask the third read of a fit is ``sweep-3`` (or ``survey-3``, ``gram-3``,
``residuals-3``, ``leave-out-3``), ``merge-3`` adds up its partial sums, and ``constants-3`` is
shared by its tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.progress import Listener
from gpgc_dask.core.threads import READ_AHEAD, keep_freed_memory, prefetch
from gpgc_dask.execution.client import n_threads
from gpgc_dask.execution.compute import Opaque, compute, lazy_calls, token
from gpgc_dask.execution.row_blocks import (
    SAMPLE_BLOCKS,
    Blocks,
    row_readers,
    sample_rows,
    select_rows,
    take_rows,
)
from gpgc_dask.execution.task_progress import Watch
from gpgc_dask.execution.worker import limit_blas_threads
from gpgc_dask.gp.oracle.base import FeatureOracle, Rows
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.layout import TaskRows, cut_tasks, is_adjacent, whole_batches
from gpgc_dask.gp.oracle.numpy import NumpyOracle, NumpySweeps
from gpgc_dask.gp.oracle.packing import PackedRows
from gpgc_dask.gp.oracle.rows import RowSweeps, TaskFunction
from gpgc_dask.gp.oracle.tasks import Sweep

__all__ = [
    "SAMPLE_BLOCKS",
    "DaskOracle",
    "DaskSweeps",
    "compute",
    "count_tasks",
    "lazy_leave_out",
    "max_rows_in_memory",
    "measure_read_speed",
    "sample_rows",
    "select_rows",
    "take_rows",
]


TASK_PRODUCTS = 3e10
"""Multiply-adds of one task: about one second of one core."""

MIN_TASK_PRODUCTS = 2e9
"""Multiply-adds from which on a task is worth its scheduling, and a partial sum of its own."""

MIN_ROUNDS = 2
"""Tasks per thread, if they are large enough: a thread that is faster then takes more of them."""

FAN_IN = 2
"""Partial sums added up by one task of the tree: few, as a worker holds all of them (k×k each)."""

MAX_GROUP_BYTES = 1 << 28
"""Maximum size of a group that a task holds as a whole; larger groups are read twice per step."""

DEPENDENCY_BYTES = 1 << 26
"""Size of the rows of one task if its blocks are dependencies, not read one by one."""

BLOCKS_IN_MEMORY = 2 + READ_AHEAD
"""Blocks in the memory of a task: a batch may span two, and the next ones are being read."""


def _run_task(
    function: Opaque,
    task: PackedRows,
    reads: Opaque,
    source: Opaque | None,
    *dependencies: Features,
) -> Any:
    keep_freed_memory()
    rows = task.value
    makers = row_readers(reads.value, source.value if source else {}, dependencies, rows.keep)
    blocks = (make() for make in makers) if dependencies else prefetch(makers)
    with limit_blas_threads():
        batches = whole_batches(blocks, rows.ends, rows.limit)
        return function.value(batches, rows.rows, rows.start)


def _merge(*parts: Any) -> Any:
    return type(parts[0]).merge(parts)


def _map_tasks(
    name: str, constants: str, function: TaskFunction, tasks: list[PackedRows], blocks: Blocks
) -> list[Delayed]:
    """One lazy call of ``function`` per task; the function with its constants is one object."""
    shared = dask.delayed(Opaque(function), name=(constants, token()))
    arguments = []
    for task in tasks:
        reads, dependencies = blocks.of(task.value.start, task.value.stop)
        arguments.append((shared, task, reads, blocks.source, *dependencies))
    return lazy_calls(name, _run_task, arguments)


def _tree(name: str, parts: list[Delayed], merge: Callable[..., Any]) -> Delayed:
    """The lazy total of lazy parts, merged FAN_IN at a time."""
    while len(parts) > 1:
        pairs = [tuple(parts[start : start + FAN_IN]) for start in range(0, len(parts), FAN_IN)]
        single = pairs.pop() if len(pairs[-1]) == 1 else ()
        parts = [*lazy_calls(name, merge, pairs), *single]
    return parts[0]


class DaskSweeps(RowSweeps):
    """Sweeps over a dask array of rows.

    Parameters
    ----------
    X : dask array of shape (N, k)
        Features.
    rows : Rows
        Classes, weights and groups of all rows.
    arithmetic : Arithmetic
        Precision and offset of the products.
    groups : array of int, optional
        Groups to sweep over, which are renumbered in this order. By default all groups.
    blocks : Blocks, optional
        Row blocks of X, if they are known already.
    numbers : iterator of int, optional
        Numbers of the sweeps, for their names in the dashboard.
    listener : callable, optional
        Called with the progress of each sweep.
    """

    def __init__(
        self,
        X: da.Array,
        rows: Rows,
        arithmetic: Arithmetic,
        groups: Index | None = None,
        blocks: Blocks | None = None,
        numbers: Iterator[int] | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.X = X
        self.all_rows = rows
        self.arithmetic = arithmetic
        self.n_features = X.shape[1]
        self.n_targets = rows.n_targets
        self.groups = np.arange(rows.n_groups) if groups is None else groups
        self.group_weight = rows.group_weight[self.groups]
        self._blocks = blocks or Blocks(X)
        self._numbers = numbers or count(1)
        self._listener = listener
        sizes = rows.group_sizes[self.groups]
        largest = int(sizes.max()) * self.n_features * arithmetic.dtype.itemsize
        self.holds_groups = largest <= MAX_GROUP_BYTES
        self.whole_groups = is_adjacent(rows.groups) and self.holds_groups
        self.read_share = float(sizes.sum()) / len(rows)
        self._layouts: dict[bool, list[PackedRows]] = {}

    @property
    def rows(self) -> Rows:  # type: ignore[override]
        """Rows of the groups to sweep over, in the order of X."""
        return self.all_rows.select(self.groups)[1]

    def _tasks(self, *, whole_groups: bool) -> list[PackedRows]:
        # If groups are adjacent, tasks of whole groups serve every sweep.
        whole = whole_groups or self.whole_groups
        if whole not in self._layouts:
            tasks = cut_tasks(
                self.all_rows,
                self.groups,
                self._blocks.bounds,
                whole_groups=whole,
                n_tasks=_count_tasks(self.X, self._blocks),
                limit=self.arithmetic.batch_rows(self.n_features),
            )
            self._layouts[whole] = [PackedRows(task) for task in tasks]
        return self._layouts[whole]

    def _run(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        tasks = self._tasks(whole_groups=whole_groups)
        number = next(self._numbers)
        label = f"{name}-{number}"
        parts = _map_tasks(label, f"constants-{number}", function, tasks, self._blocks)
        watch = self._listener and Watch(self._listener, label, [part.key for part in parts])
        (result,) = compute(_tree(f"merge-{number}", parts, _merge), watch=watch)
        return result

    def _map_rows(self, name: str, function: TaskFunction) -> Array:
        number = next(self._numbers)
        label = f"{name}-{number}"
        limit = self.arithmetic.batch_rows(self.n_features)
        order, _, parts = _group_tasks(
            label, f"constants-{number}", function, self.X, self.all_rows, limit
        )
        watch = self._listener and Watch(self._listener, label, [part.key for part in parts])
        values = np.concatenate(compute(*parts, watch=watch))
        return values if order is None else values[np.argsort(order)]

    def _in_order(self, values: Features) -> Features:
        return values

    def select_groups(self, groups: Index) -> DaskSweeps:
        return DaskSweeps(
            self.X,
            self.all_rows,
            self.arithmetic,
            self.groups[groups],
            self._blocks,
            self._numbers,
            self._listener,
        )

    def load_groups(self, groups: Index) -> NumpySweeps:
        index, rows = self.all_rows.select(self.groups[groups])
        return NumpySweeps(take_rows(self.X, index), rows, self.arithmetic)


def count_tasks(n_rows: int, n_features: int, n_threads: int) -> int:
    """Number of tasks of a sweep.

    A task has about TASK_PRODUCTS multiply-adds, and enough rows that its k×k partial sum is
    cheap. The number of tasks is a multiple of ``n_threads``, so that no thread is idle at the
    end. On a cluster with more threads than such tasks, tasks are smaller, of at least k rows.
    """
    products = 1.5 * n_features**2
    rows = max(TASK_PRODUCTS / products, 4 * n_features, 256)
    smallest = max(MIN_TASK_PRODUCTS / products, n_features, 256)
    rounds = max(-(-n_rows // (rows * n_threads)), 1)
    if rounds < MIN_ROUNDS and n_rows >= MIN_ROUNDS * n_threads * max(smallest, 4 * n_features):
        rounds = MIN_ROUNDS
    return max(int(min(rounds * n_threads, n_rows // smallest)), 1)


def _count_tasks(X: da.Array, blocks: Blocks) -> int:
    """Number of tasks for an array: more if the blocks of a task are its dependencies."""
    n_tasks = count_tasks(X.shape[0], X.shape[1], n_threads())
    return n_tasks if blocks.readable else max(n_tasks, -(-X.nbytes // DEPENDENCY_BYTES))


def max_rows_in_memory(X: da.Array) -> int:
    """Number of rows that a task has in memory at a time: a few blocks, or all its dependencies."""
    largest = int(max(X.chunks[0]))
    if Blocks(X).readable:
        return BLOCKS_IN_MEMORY * largest
    return max(DEPENDENCY_BYTES // (X.shape[1] * X.dtype.itemsize), 1) + largest


class DaskOracle(FeatureOracle):
    """The four queries as lazy dask arrays."""

    def __init__(self, X: da.Array) -> None:
        self.X = X
        self.shape = X.shape
        self._ends = np.cumsum(X.chunks[0])

    def _sum(self, query: str, values: Array, shape: tuple[int, ...]) -> da.Array:
        blocks = self.X.to_delayed().ravel()
        parts = np.split(values, self._ends[:-1])
        arguments = [(query, F, v) for F, v in zip(blocks, parts, strict=True)]
        total = _tree("merge", lazy_calls(query, _query, arguments), _add)
        return da.from_delayed(total, shape, dtype=np.float64)

    def _concatenate(self, query: str, argument: Array, columns: tuple[int, ...]) -> da.Array:
        return da.map_blocks(
            partial(_query, query),
            self.X,
            dask.delayed(argument, name=("weights", token())),
            name=f"{query}-{token()}",
            dtype=np.float64,
            chunks=(self.X.chunks[0], *columns),
            **({} if columns else {"drop_axis": 1}),
            meta=np.empty((0,) * (1 + len(columns))),
        )

    def rmatvec(self, v: Array) -> da.Array:
        return self._sum("rmatvec", v, (self.shape[1], *v.shape[1:]))

    def matvec(self, u: Array) -> da.Array:
        return self._concatenate("matvec", u, u.shape[1:])

    def gram(self, d: Array) -> da.Array:
        return self._sum("gram", d, (self.shape[1], self.shape[1]))

    def quad_diag(self, A: Array) -> da.Array:
        return self._concatenate("quad_diag", A, ())

    def variance(self, T: Array) -> da.Array:
        return self._concatenate("variance", T, ())


def _query(query: str, F: Features, argument: Array) -> Array:
    result: Array = getattr(NumpyOracle(F), query)(argument)
    return result


def _add(*parts: Array) -> Array:
    return sum(parts[1:], start=parts[0])


def lazy_leave_out(X: da.Array, rows: Rows, sweep: Sweep) -> da.Array:
    """(N, t) lazy predictions for each row of the model fitted without the row's group.

    Scattered groups are gathered by a shuffle first, for which the cluster holds X once.

    Parameters
    ----------
    X : dask array of shape (N, k)
        Features.
    rows : Rows
        Classes, weights and groups of the rows.
    sweep : Sweep
        Projection, noise and redundancy of the fitted model.
    """
    limit = sweep.projection.arithmetic.batch_rows(X.shape[1])
    order, tasks, lazy = _group_tasks(
        "leave-out", "constants", sweep.predict_left_out, X, rows, limit
    )
    name = f"leave-out-{token()}"
    # Keys that stand for other keys: no task of their own, so the dashboard shows "leave-out".
    layer = {(name, number, 0): part.key for number, part in enumerate(lazy)}
    predictions = da.Array(
        HighLevelGraph.from_collections(name, layer, dependencies=lazy),
        name,
        chunks=(tuple(task.stop - task.start for task in tasks), (rows.n_targets,)),
        dtype=np.float64,
    )
    return predictions if order is None else predictions[np.argsort(order)]


def _group_tasks(
    name: str, constants: str, function: TaskFunction, X: da.Array, rows: Rows, limit: int
) -> tuple[Index | None, list[TaskRows], list[Delayed]]:
    """(order of the rows or None, tasks of whole groups, one lazy call per task)."""
    order = None if is_adjacent(rows.groups) else np.argsort(rows.groups, kind="stable")
    if order is not None:
        X, rows = X[order], rows.take(order)
    blocks = Blocks(X)
    tasks = cut_tasks(
        rows,
        np.arange(rows.n_groups),
        blocks.bounds,
        whole_groups=True,
        n_tasks=_count_tasks(X, blocks),
        limit=limit,
    )
    packed = [PackedRows(task) for task in tasks]
    return order, tasks, _map_tasks(name, constants, function, packed, blocks)


def measure_read_speed(X: da.Array) -> float | None:
    """Decoded bytes per second and thread, from reading a few blocks; None if X is not stored."""
    threads = n_threads()
    if not Blocks(X).readable:
        return None
    numbers = np.unique(np.linspace(0, X.numblocks[0] - 1, 2 * threads).astype(int))
    blocks = [dask.delayed(np.shape)(X.blocks[number]) for number in numbers]
    start = time.perf_counter()
    shapes = compute(*blocks)
    seconds = time.perf_counter() - start
    size = sum(rows for rows, _ in shapes) * X.shape[1] * X.dtype.itemsize
    return float(size / (seconds * min(threads, len(numbers))))
