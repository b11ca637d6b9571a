"""How rows are split into tasks and batches: at group boundaries where groups must stay whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from gpgc_dask.core.arrays import Features, Index, Mask
from gpgc_dask.gp.oracle.base import Rows

__all__ = ["Batch", "TaskRows", "batch_ends", "cut_tasks", "is_adjacent", "whole_batches"]


Batch: TypeAlias = tuple[int, int, list[Features]]
"""(start, stop, pieces): the features of rows [start, stop) in one or more arrays."""


@dataclass(frozen=True)
class TaskRows:
    """The rows that one task works on.

    Attributes
    ----------
    start, stop : int
        Range [start, stop) of rows of the matrix.
    rows : Rows
        Classes, weights and groups of the selected rows.
    keep : bool array of shape (stop - start,) or None
        Selected rows of the range. None: all of them.
    ends : array of int
        Row numbers within ``rows`` where a batch may end.
    limit : int
        Maximum number of rows of a batch, except for larger groups.
    """

    start: int
    stop: int
    rows: Rows
    keep: Mask | None
    ends: Index
    limit: int


def _run_ends(groups: Index) -> Index:
    """Row numbers just past each run of equal groups."""
    return np.append(np.flatnonzero(np.diff(groups)) + 1, groups.size).astype(np.intp)


def is_adjacent(groups: Index) -> bool:
    """Whether the rows of every group are next to each other."""
    return len(_run_ends(groups)) == np.unique(groups).size


def batch_ends(groups: Index, *, whole_groups: bool, limit: int) -> Index:
    """Row numbers where a batch of at most ``limit`` rows may end."""
    if whole_groups:
        return _run_ends(groups)
    n = groups.size
    return np.append(np.arange(limit, n, limit), n).astype(np.intp)


def cut_tasks(
    rows: Rows,
    selected: Index,
    blocks: Index,
    *,
    whole_groups: bool,
    n_tasks: int,
    limit: int,
) -> list[TaskRows]:
    """Split the matrix into about ``n_tasks`` tasks of equal size.

    Parameters
    ----------
    rows : Rows
        All rows of the matrix.
    selected : array of int
        Groups to work on, which are renumbered in this order.
    blocks : array of int
        Row block boundaries of the matrix, from 0 to N.
    whole_groups : bool
        Whether tasks end at group boundaries. Otherwise they end at block boundaries.
    n_tasks : int
        Number of tasks to aim at.
    limit : int
        Maximum number of rows of a batch.
    """
    index, chosen = rows.select(selected)
    allowed = _run_ends(rows.groups) if whole_groups else blocks[1:]
    wanted = np.arange(1, n_tasks) * (len(rows) / n_tasks)
    cuts = np.unique([0, *allowed[np.searchsorted(allowed, wanted)], len(rows)])
    tasks = []
    for start, stop in pairwise(cuts.tolist()):
        low, high = np.searchsorted(index, [start, stop])
        if low == high:
            continue
        part = chosen.take(slice(int(low), int(high)))
        keep = None
        if high - low < stop - start:
            keep = np.zeros(stop - start, dtype=bool)
            keep[index[low:high] - start] = True
        ends = batch_ends(part.groups, whole_groups=whole_groups, limit=limit)
        tasks.append(TaskRows(start, stop, part, keep, ends, limit))
    return tasks


def whole_batches(blocks: Iterable[Features], ends: Index, limit: int) -> Iterator[Batch]:
    """Cut a stream of row blocks into batches.

    Parameters
    ----------
    blocks : iterable of arrays
        Consecutive row blocks.
    ends : array of int
        Increasing row numbers where a batch may end; the last one is the number of rows.
    limit : int
        Maximum number of rows of a batch. A longer stretch between two ends is one batch.

    Yields
    ------
    Batch
        (start, stop, pieces) with as many rows as possible. The pieces are views of the blocks,
        more than one if the batch spans several blocks.
    """
    begin = high = 0
    pieces: list[Features] = []
    for block in blocks:
        low, high = high, high + len(block)
        rest = block
        while begin < high:
            end = _last_end(ends, begin, limit)
            if end > high:
                # The batch continues in the next block.
                pieces.append(rest)
                break
            yield begin, end, [*pieces, block[max(begin, low) - low : end - low]]
            begin, pieces = end, []
            rest = block[begin - low :]


def _last_end(ends: Index, begin: int, limit: int) -> int:
    """The furthest end within ``limit`` rows of ``begin``, or the next one if none is."""
    number = int(np.searchsorted(ends, begin + limit, side="right")) - 1
    if number < 0 or ends[number] <= begin:
        number = int(np.searchsorted(ends, begin, side="right"))
    return int(ends[number])
