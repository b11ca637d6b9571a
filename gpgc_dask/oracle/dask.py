"""The oracle over a dask array: lazy blockwise work and tree reductions on any scheduler.

Nothing outside this module builds a Dask graph for the mathematics.

A sweep is one graph. Each task owns a row range (cut at group boundaries where a step needs whole
groups), goes through its blocks one at a time, accumulates in float64 and returns one k×k partial;
partials are summed as a tree. Where a block of X is a plain read (Zarr, say), the task reads it
itself, so that memory is a block and a few k×k whatever the number of rows; other arrays (results
of a computation, data persisted on the cluster) come in as ordinary dependencies.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import DataNode, GraphNode
from dask.base import get_scheduler
from dask.core import get_dependencies
from dask.delayed import Delayed
from distributed import Future

from gpgc_dask.arrays import Array, Features, Index, Mask
from gpgc_dask.cluster import active_client, is_inside, n_threads
from gpgc_dask.endurance import compute_on
from gpgc_dask.oracle.base import FeatureOracle, Rows
from gpgc_dask.oracle.kernels import Arithmetic
from gpgc_dask.oracle.layout import TaskRows, cut_tasks, is_adjacent, whole_batches
from gpgc_dask.oracle.numpy import NumpyOracle, NumpySweeps
from gpgc_dask.oracle.rows import RowSweeps, TaskFunction
from gpgc_dask.oracle.tasks import Sweep
from gpgc_dask.process import (
    READ_AHEAD,
    ahead,
    keep_freed_memory,
    one_blas_thread,
    own_blas_threads,
)
from gpgc_dask.retrying import patiently

__all__ = [
    "DaskOracle",
    "DaskSweeps",
    "compute",
    "count_tasks",
    "is_dask",
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

SAMPLE_BLOCKS = 8
"""Blocks looked into to choose the offset that float32 products subtract."""


def is_dask(X: object) -> bool:
    """Whether X is a dask array."""
    return isinstance(X, da.Array)


def compute(*collections: Any) -> tuple[Any, ...]:
    """Compute with one BLAS thread a task where the tasks run in this process."""
    client = active_client()
    with _blas_limit(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        if client is not None:
            return compute_on(client, collections)
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


class _Sealed:
    """An argument that Dask passes on as it is, without looking inside."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Blocks:
    """The row blocks of a dask array as tasks can get at them.

    ``readable``: a task can make each block by itself, from constants (a store, a memory map) and
    work that serves this block alone. Else blocks are given to tasks as dependencies.
    """

    def __init__(self, X: da.Array) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.intp)
        (optimised,) = dask.optimize(X)
        graph = dict(optimised.__dask_graph__())
        self.keys = [row[0] for row in optimised.__dask_keys__()]
        own, shared = _separate(graph, self.keys)
        self.readable = own is not None
        if own is not None:
            self.own = own
            # One object for all tasks: it may be more than a handle, a memory map for example.
            self.source = dask.delayed(_Sealed(shared), name=f"source-{uuid.uuid4().hex[:12]}")
        else:
            self.given = list(X.to_delayed().ravel())
            self.source = None

    def of(self, start: int, stop: int) -> tuple[_Sealed, list[Delayed]]:
        """What a task needs for rows [start, stop): how to read blocks, and blocks to be given."""
        first = int(np.searchsorted(self.bounds, start, side="right")) - 1
        last = int(np.searchsorted(self.bounds, stop, side="left"))
        reads, given = [], []
        for number in range(first, last):
            low, high = int(self.bounds[number]), int(self.bounds[number + 1])
            part = slice(max(start - low, 0), min(stop, high) - low)
            if part.stop <= part.start:
                continue
            reads.append((self.keys[number], self.own[number] if self.readable else None, part))
            if not self.readable:
                given.append(self.given[number])
        return _Sealed(reads), given


def _separate(
    graph: dict[Any, Any], keys: list[Any]
) -> tuple[list[dict[Any, Any]] | None, dict[Any, Any]]:
    """(the part of the graph that each block has to itself, the constants they share).

    None where blocks share work or hang on data that is elsewhere, on a cluster's workers.
    """
    owner: dict[Any, int] = {}
    own: list[dict[Any, Any]] = [{} for _ in keys]
    shared: dict[Any, Any] = {}
    for number, key in enumerate(keys):
        waiting = [key]
        while waiting:
            name = waiting.pop()
            node = graph.get(name)
            value = node.value if isinstance(node, DataNode) else node
            if value is None or isinstance(value, Future):
                return None, {}
            if isinstance(node, DataNode) and name != key:
                shared[name] = node
                continue
            if owner.setdefault(name, number) != number:
                return None, {}
            if name not in own[number]:
                own[number][name] = node
                # Those that the graph lacks too: data that a cluster's workers hold.
                if isinstance(node, GraphNode):
                    waiting.extend(node.dependencies)
                else:
                    waiting.extend(get_dependencies(graph, name))
    return own, shared


def _makers(
    reads: list[tuple[Any, dict[Any, Any] | None, slice]],
    source: dict[Any, Any],
    given: tuple[Features, ...],
    keep: Mask | None,
) -> Iterator[Callable[[], Features]]:
    """Makers of a task's rows, a block each; blocks without a wanted row are not read."""
    supplied = iter(given)
    position = 0
    for key, graph, part in reads:
        length = part.stop - part.start
        wanted = None if keep is None else keep[position : position + length]
        position += length
        block = next(supplied) if graph is None else None
        if wanted is None or wanted.any():
            yield partial(_rows, key, graph, source, block, part, wanted)


def _rows(
    key: Any,
    graph: dict[Any, Any] | None,
    source: dict[Any, Any],
    block: Features | None,
    part: slice,
    wanted: Mask | None,
) -> Features:
    """The wanted rows of one block, which is read unless it was given."""
    read = partial(dask.get, {**source, **(graph or {})}, key)
    made = block if graph is None else patiently(read, f"block {key} of X")
    rows = np.asarray(made)[part]
    if len(rows) != part.stop - part.start:
        raise ValueError(
            f"block {key} of X has fewer rows than its chunks say: mend its chunks, for "
            "example with X = X.compute_chunk_sizes()"
        )
    return rows if wanted is None or wanted.all() else rows[wanted]


def _run_task(
    function: _Sealed, task: _Sealed, reads: _Sealed, source: _Sealed | None, *given: Features
) -> Any:
    keep_freed_memory()
    rows: TaskRows = task.value
    makers = _makers(reads.value, source.value if source else {}, given, rows.keep)
    blocks = (make() for make in makers) if given else ahead(makers)
    with own_blas_threads():
        batches = whole_batches(blocks, rows.ends, rows.limit)
        return function.value(batches, rows.rows, rows.start)


def _merge(*parts: Any) -> Any:
    return type(parts[0]).merge(parts)


def _map_tasks(
    name: str, function: TaskFunction, tasks: list[TaskRows], blocks: _Blocks
) -> list[Delayed]:
    """One lazy call of ``function`` a task. The function, with its constants, is one object."""
    token = uuid.uuid4().hex[:12]
    constants = dask.delayed(_Sealed(function), name=f"{name}-constants-{token}")
    call = dask.delayed(_run_task, pure=False, name=False)
    lazy = []
    for number, rows in enumerate(tasks):
        reads, given = blocks.of(rows.start, rows.stop)
        key = f"{name}-{token}-{number}"
        lazy.append(call(constants, _Sealed(rows), reads, blocks.source, *given, dask_key_name=key))
    return lazy


def _tree(name: str, parts: list[Delayed], merge: Callable[..., Any]) -> Delayed:
    """The lazy total of lazy parts, FAN_IN at a time."""
    token = uuid.uuid4().hex[:12]
    call = dask.delayed(merge, pure=False, name=False)
    count = 0
    while len(parts) > 1:
        merged = []
        for start in range(0, len(parts), FAN_IN):
            if start == len(parts) - 1:
                merged.append(parts[start])
                continue
            count += 1
            key = f"{name}-merge-{token}-{count}"
            merged.append(call(*parts[start : start + FAN_IN], dask_key_name=key))
        parts = merged
    return parts[0]


class DaskSweeps(RowSweeps):
    """Fused sweeps over a dask array of rows."""

    def __init__(
        self,
        X: da.Array,
        rows: Rows,
        arithmetic: Arithmetic,
        groups: Index | None = None,
        blocks: _Blocks | None = None,
    ) -> None:
        """``groups`` are the groups of ``rows`` to sweep over, renumbered in that order."""
        self.X = X
        self.all_rows = rows
        self.arithmetic = arithmetic
        self.n_features = X.shape[1]
        self.n_targets = rows.n_targets
        self.groups = np.arange(rows.n_groups) if groups is None else groups
        self.group_weight = rows.group_weight[self.groups]
        self._blocks = blocks or _Blocks(X)
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
        parts = _map_tasks(name, function, tasks, self._blocks)
        (result,) = compute(_tree(name, parts, _merge))
        return result

    def restricted(self, groups: Index) -> DaskSweeps:
        return DaskSweeps(self.X, self.all_rows, self.arithmetic, self.groups[groups], self._blocks)

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


def _count_tasks(X: da.Array, blocks: _Blocks) -> int:
    """As :func:`count_tasks`; more where a task is given its blocks all at once."""
    n_tasks = count_tasks(X.shape[0], X.shape[1], n_threads())
    return n_tasks if blocks.readable else max(n_tasks, -(-X.nbytes // GIVEN_BYTES))


def rows_held(X: da.Array) -> int:
    """Rows that a task holds at a time: a few blocks, or all it is given."""
    largest = int(max(X.chunks[0]))
    if _Blocks(X).readable:
        return BLOCKS_HELD * largest
    return max(GIVEN_BYTES // (X.shape[1] * X.dtype.itemsize), 1) + largest


def select_rows(X: da.Array, keep: Mask) -> da.Array:
    """The rows marked in ``keep``, block by block: each block stays a read of its own."""
    parts = np.split(keep, np.cumsum(X.chunks[0])[:-1])
    return X.map_blocks(
        _selected,
        parts,
        dtype=X.dtype,
        chunks=(tuple(int(part.sum()) for part in parts), X.chunks[1]),
        meta=X._meta,
    )


def _selected(block: Features, parts: list[Mask], block_info: Any = None) -> Features:
    return block[parts[block_info[0]["chunk-location"][0]]]


def take_rows(X: da.Array, index: Index) -> Features:
    """The rows of these numbers, in memory."""
    (F,) = patiently(partial(compute, X[index]), "rows of X")
    return F


def sample_rows(X: da.Array, n_rows: int) -> tuple[Index, Features]:
    """Numbers and features of some rows, of a few blocks spread over X."""
    filled = np.flatnonzero(X.chunks[0])
    chosen = filled[np.linspace(0, len(filled) - 1, min(len(filled), SAMPLE_BLOCKS)).astype(int)]
    each = -(-n_rows // len(chosen))
    blocks = [X.blocks[number][:each] for number in chosen]
    parts = patiently(partial(compute, *blocks), "a sample of X")
    first = np.cumsum([0, *X.chunks[0]])[chosen]
    index = [start + np.arange(len(part)) for start, part in zip(first, parts, strict=True)]
    return np.concatenate(index).astype(np.intp), np.concatenate(parts)


class DaskOracle(FeatureOracle):
    """The four queries as lazy dask arrays."""

    def __init__(self, X: da.Array) -> None:
        self.X = X
        self.shape = X.shape
        self._ends = np.cumsum(X.chunks[0])

    def _sum(self, query: str, values: Array, shape: tuple[int, ...]) -> da.Array:
        call = dask.delayed(_query, pure=True)
        blocks = self.X.to_delayed().ravel()
        parts = np.split(values, self._ends[:-1])
        lazy = [call(query, F, v) for F, v in zip(blocks, parts, strict=True)]
        return da.from_delayed(_tree(query, lazy, _add), shape, dtype=np.float64)

    def _concatenate(self, query: str, argument: Array, columns: tuple[int, ...]) -> da.Array:
        return da.map_blocks(
            partial(_query, query),
            self.X,
            dask.delayed(argument),
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
    blocks = _Blocks(X)
    tasks = cut_tasks(
        rows,
        np.arange(rows.n_groups),
        blocks.bounds,
        whole_groups=True,
        n_tasks=_count_tasks(X, blocks),
        limit=sweep.project.arithmetic.batch_rows(X.shape[1]),
    )
    lazy = _map_tasks("leave-out", sweep.predict, tasks, blocks)
    t = rows.n_targets
    parts = [
        da.from_delayed(part, (task.stop - task.start, t), dtype=np.float64)
        for part, task in zip(lazy, tasks, strict=True)
    ]
    found = da.concatenate(parts)
    return found if order is None else found[np.argsort(order)]


def read_speed(X: da.Array) -> float | None:
    """Decoded bytes a second and thread, from reading a few blocks; None where X is no store."""
    threads = n_threads()
    if not _Blocks(X).readable:
        return None
    numbers = np.unique(np.linspace(0, X.numblocks[0] - 1, 2 * threads).astype(int))
    blocks = [dask.delayed(np.shape)(X.blocks[number]) for number in numbers]
    start = time.perf_counter()
    shapes = compute(*blocks)
    seconds = time.perf_counter() - start
    size = sum(rows for rows, _ in shapes) * X.shape[1] * X.dtype.itemsize
    return float(size / (seconds * min(threads, len(numbers))))
