"""Row blocks of a dask array for tasks, and selections of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.core import get_dependencies
from dask.delayed import Delayed
from distributed import Future

from gpgc_dask.core.arrays import Features, Index, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.execution.compute import Opaque, Sealed, compute, lazy_calls, token
from gpgc_dask.execution.private import DataNode, GraphNode
from gpgc_dask.storage.retries import with_retries

__all__ = ["SAMPLE_BLOCKS", "Blocks", "row_readers", "sample_rows", "select_rows", "take_rows"]

SAMPLE_BLOCKS = 8
"""Number of blocks that are read to choose the offset which float32 products subtract."""


class Blocks:
    """Row blocks of a dask array.

    Attributes
    ----------
    readable : bool
        Whether a task can make each block itself, from constants (a store, a memory map) and work
        that only this block needs. Otherwise blocks are passed to tasks as dependencies.
    """

    def __init__(self, X: da.Array) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.intp)
        (optimised,) = dask.optimize(X)
        graph = dict(optimised.__dask_graph__())
        self.keys = [row[0] for row in optimised.__dask_keys__()]
        own, shared = _separate(graph, self.keys)
        self._parts: dict[tuple[int, int], tuple[Opaque, list[Delayed]]] = {}
        self.readable = own is not None
        if own is not None:
            self.own = own
            # One object for all tasks: it may be large, for example a memory map.
            self.source = dask.delayed(Opaque(shared), name=("source", token()))
        else:
            self.given = list(X.to_delayed().ravel())
            self.source = None

    def of(self, start: int, stop: int) -> tuple[Opaque, list[Delayed]]:
        """What a task needs for rows [start, stop): how to read blocks, and blocks to pass on.

        Every sweep sends it again: it is made and pickled once.
        """
        if (start, stop) not in self._parts:
            self._parts[start, stop] = self._part(start, stop)
        return self._parts[start, stop]

    def _part(self, start: int, stop: int) -> tuple[Opaque, list[Delayed]]:
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
        return Sealed(reads), given


def _separate(
    graph: dict[Any, Any], keys: list[Any]
) -> tuple[list[dict[Any, Any]] | None, dict[Any, Any]]:
    """The part of the graph that only one block needs, per block, and the shared constants.

    None if blocks share work, or depend on data that a cluster's workers hold.
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
                # Including keys that are not in the graph: data that a cluster's workers hold.
                if isinstance(node, GraphNode):
                    waiting.extend(node.dependencies)
                else:
                    waiting.extend(get_dependencies(graph, name))
    return own, shared


def row_readers(
    reads: list[tuple[Any, dict[Any, Any] | None, slice]],
    source: dict[Any, Any],
    given: tuple[Features, ...],
    keep: Mask | None,
) -> Iterator[Callable[[], Features]]:
    """Readers of the rows of a task, one per block; blocks without a wanted row are skipped."""
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
    """The wanted rows of one block, which is read unless it was passed."""
    read = partial(dask.get, {**source, **(graph or {})}, key)
    made = block if graph is None else with_retries(read, f"block {key} of X")
    rows = np.asarray(made)[part]
    if len(rows) != part.stop - part.start:
        raise InputError(
            f"block {key} of X has fewer rows than its chunks promise: fix its chunks, for "
            "example with X = X.compute_chunk_sizes()"
        )
    return rows if wanted is None or wanted.all() else rows[wanted]


def select_rows(X: da.Array, keep: Mask) -> da.Array:
    """The rows marked in ``keep``, block by block: each block is still read separately."""
    parts = np.split(keep, np.cumsum(X.chunks[0])[:-1])
    return X.map_blocks(
        _selected,
        parts,
        dtype=X.dtype,
        chunks=(tuple(int(part.sum()) for part in parts), X.chunks[1]),
        meta=meta_from_array(X),
    )


def _selected(block: Features, parts: list[Mask], block_info: Any = None) -> Features:
    return block[parts[block_info[0]["chunk-location"][0]]]


def take_rows(X: da.Array, index: Index) -> Features:
    """Load the rows of these increasing numbers into memory."""
    bounds = np.concatenate([[0], np.cumsum(X.chunks[0])])
    places = np.searchsorted(index, bounds)
    needed = np.flatnonzero(np.diff(places))
    blocks = Blocks(X.blocks[needed])
    arguments = []
    for number, (start, stop) in zip(needed, pairwise(blocks.bounds.tolist()), strict=True):
        wanted = np.zeros(stop - start, dtype=bool)
        wanted[index[places[number] : places[number + 1]] - bounds[number]] = True
        reads, given = blocks.of(start, stop)
        arguments.append((Opaque(wanted), reads, blocks.source, *given))
    parts = with_retries(partial(compute, *lazy_calls("sample", _take, arguments)), "rows of X")
    return np.concatenate(parts)


def _take(wanted: Opaque, reads: Opaque, source: Opaque | None, *given: Features) -> Features:
    """The wanted rows of one block."""
    (make,) = row_readers(reads.value, source.value if source else {}, given, wanted.value)
    return make()


def sample_rows(X: da.Array, n_rows: int) -> tuple[Index, Features]:
    """Numbers and features of some rows, from a few blocks spread over X."""
    filled = np.flatnonzero(X.chunks[0])
    chosen = filled[np.linspace(0, len(filled) - 1, min(len(filled), SAMPLE_BLOCKS)).astype(int)]
    each = -(-n_rows // len(chosen))
    bounds = np.cumsum([0, *X.chunks[0]])
    index = np.concatenate(
        [np.arange(bounds[n], min(bounds[n] + each, bounds[n + 1])) for n in chosen]
    ).astype(np.intp)
    return index, take_rows(X, index)


def is_dask(X: object) -> bool:
    """Whether X is a dask array."""
    return isinstance(X, da.Array)
