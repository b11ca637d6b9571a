"""The oracle over a dask array: lazy blockwise work and tree reductions on any scheduler.

Nothing but this module, ``blocks`` and ``computing`` builds a Dask graph for the mathematics.

A sweep is one graph. Each task owns a row range (cut at group boundaries where a step needs whole
groups), goes through its blocks one at a time, accumulates in float64 and returns one k×k partial;
partials are summed as a tree. Where a block of X is a plain read (Zarr, say), the task reads it
itself, so that memory is a block and a few k×k whatever the number of rows; other arrays (results
of a computation, data persisted on the cluster) come in as ordinary dependencies.

In Dask's dashboard the third read of a fit is ``sweep-3`` (or ``survey``, ``gram``, ``residuals``),
``merge-3`` sums it up, and ``constants-3`` is what its tasks share.
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

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.progress import Listener
from gpgc_dask.core.threads import READ_AHEAD, ahead, keep_freed_memory
from gpgc_dask.execution.client import n_threads
from gpgc_dask.execution.compute import Sealed, compute, lazy_calls, token
from gpgc_dask.execution.row_blocks import (
    SAMPLE_BLOCKS,
    Blocks,
    row_makers,
    sample_rows,
    select_rows,
    take_rows,
)
from gpgc_dask.execution.task_progress import Watch
from gpgc_dask.execution.worker import own_blas_threads
from gpgc_dask.gp.oracle.base import FeatureOracle, Rows
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.layout import TaskRows, cut_tasks, is_adjacent, whole_batches
from gpgc_dask.gp.oracle.numpy import NumpyOracle, NumpySweeps
from gpgc_dask.gp.oracle.rows import RowSweeps, TaskFunction
from gpgc_dask.gp.oracle.tasks import Sweep

__all__ = [
    "SAMPLE_BLOCKS",
    "DaskOracle",
    "DaskSweeps",
    "compute",
    "count_tasks",
    "lazy_leave_out",
    "read_speed",
    "rows_held",
    "sample_rows",
    "select_rows",
    "take_rows",
]


TASK_PRODUCTS = 3e10
"""Multiply-adds worth one task, about a second of one core."""

FAN_IN = 2
"""Partials summed in one task of the tree: few, since a worker holds them all (k×k each)."""

MAX_GROUP_BYTES = 1 << 28
"""A task holds whole groups of up to this size; larger ones are swept twice a step."""

GIVEN_BYTES = 1 << 26
"""Rows of one task, in bytes, where its blocks are given and not read one by one."""

BLOCKS_HELD = 2 + READ_AHEAD
"""Blocks that a task has in memory: a batch may lie across two, and the next are being read."""


def _run_task(
    function: Sealed, task: Sealed, reads: Sealed, source: Sealed | None, *given: Features
) -> Any:
    keep_freed_memory()
    rows: TaskRows = task.value
    makers = row_makers(reads.value, source.value if source else {}, given, rows.keep)
    blocks = (make() for make in makers) if given else ahead(makers)
    with own_blas_threads():
        batches = whole_batches(blocks, rows.ends, rows.limit)
        return function.value(batches, rows.rows, rows.start)


def _merge(*parts: Any) -> Any:
    return type(parts[0]).merge(parts)


def _map_tasks(
    name: str, constants: str, function: TaskFunction, tasks: list[TaskRows], blocks: Blocks
) -> list[Delayed]:
    """One lazy call of ``function`` a task. The function, with its constants, is one object."""
    shared = dask.delayed(Sealed(function), name=(constants, token()))
    arguments = []
    for rows in tasks:
        reads, given = blocks.of(rows.start, rows.stop)
        arguments.append((shared, Sealed(rows), reads, blocks.source, *given))
    return lazy_calls(name, _run_task, arguments)


def _tree(name: str, parts: list[Delayed], merge: Callable[..., Any]) -> Delayed:
    """The lazy total of lazy parts, FAN_IN at a time."""
    while len(parts) > 1:
        pairs = [tuple(parts[start : start + FAN_IN]) for start in range(0, len(parts), FAN_IN)]
        alone = pairs.pop() if len(pairs[-1]) == 1 else ()
        parts = [*lazy_calls(name, merge, pairs), *alone]
    return parts[0]


class DaskSweeps(RowSweeps):
    """Fused sweeps over a dask array of rows."""

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
        """``groups`` are the groups of ``rows`` to sweep over, renumbered in that order.

        ``numbers`` are given to the sweeps in turn; ``listener`` is told how far each of them is.
        """
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
        self.whole_groups = is_adjacent(rows.groups) and largest <= MAX_GROUP_BYTES
        self.read_share = float(sizes.sum()) / len(rows)
        self._layouts: dict[bool, list[TaskRows]] = {}

    @property
    def rows(self) -> Rows:  # type: ignore[override]
        """Rows of the groups swept over, in the order of X."""
        return self.all_rows.select(self.groups)[1]

    def _tasks(self, *, whole_groups: bool) -> list[TaskRows]:
        # Where groups are adjacent, tasks of whole groups serve every sweep.
        whole = whole_groups or self.whole_groups
        if whole not in self._layouts:
            self._layouts[whole] = cut_tasks(
                self.all_rows,
                self.groups,
                self._blocks.bounds,
                whole_groups=whole,
                n_tasks=_count_tasks(self.X, self._blocks),
                limit=self.arithmetic.batch_rows(self.n_features),
            )
        return self._layouts[whole]

    def _run(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        tasks = self._tasks(whole_groups=whole_groups)
        number = next(self._numbers)
        named = f"{name}-{number}"
        parts = _map_tasks(named, f"constants-{number}", function, tasks, self._blocks)
        watch = self._listener and Watch(self._listener, named, [part.key for part in parts])
        (result,) = compute(_tree(f"merge-{number}", parts, _merge), watch=watch)
        return result

    def restricted(self, groups: Index) -> DaskSweeps:
        return DaskSweeps(
            self.X,
            self.all_rows,
            self.arithmetic,
            self.groups[groups],
            self._blocks,
            self._numbers,
            self._listener,
        )

    def loaded(self, groups: Index) -> NumpySweeps:
        place, rows = self.all_rows.select(self.groups[groups])
        return NumpySweeps(take_rows(self.X, place), rows, self.arithmetic)


def count_tasks(n_rows: int, n_features: int, n_threads: int) -> int:
    """Tasks of a sweep: about TASK_PRODUCTS each, with rows enough that a k×k partial is cheap.

    A whole number of rounds for the threads at hand, so that none idles in the last one; on a
    cluster with more threads than such tasks smaller ones, of k rows at least.
    """
    rows = max(TASK_PRODUCTS / (1.5 * n_features**2), 4 * n_features, 256)
    if n_rows <= rows:
        return 1
    rounds = -(-n_rows // (rows * n_threads))
    return max(min(int(rounds) * n_threads, n_rows // n_features), 1)


def _count_tasks(X: da.Array, blocks: Blocks) -> int:
    """As :func:`count_tasks`; more where a task is given its blocks all at once."""
    n_tasks = count_tasks(X.shape[0], X.shape[1], n_threads())
    return n_tasks if blocks.readable else max(n_tasks, -(-X.nbytes // GIVEN_BYTES))


def rows_held(X: da.Array) -> int:
    """Rows that a task holds at a time: a few blocks, or all it is given."""
    largest = int(max(X.chunks[0]))
    if Blocks(X).readable:
        return BLOCKS_HELD * largest
    return max(GIVEN_BYTES // (X.shape[1] * X.dtype.itemsize), 1) + largest


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
    """(N, t) lazy predictions with the row's whole group left out.

    Scattered groups are gathered by a shuffle first: then the cluster holds X once.
    """
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
        limit=sweep.project.arithmetic.batch_rows(X.shape[1]),
    )
    lazy = _map_tasks("leave-out", "constants", sweep.predict, tasks, blocks)
    found = da.concatenate(
        [
            da.from_delayed(part, (task.stop - task.start, rows.n_targets), dtype=np.float64)
            for part, task in zip(lazy, tasks, strict=True)
        ]
    )
    return found if order is None else found[np.argsort(order)]


def read_speed(X: da.Array) -> float | None:
    """Decoded bytes a second and thread, from reading a few blocks; None where X is no store."""
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
