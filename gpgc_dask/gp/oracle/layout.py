"""Where rows may be cut: group boundaries, and the row range of each task."""

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
"""(start, stop, features of those rows in pieces)."""


@dataclass(frozen=True)
class TaskRows:
    """The rows one task works on: [start, stop) of the matrix, those that ``keep`` marks."""

    start: int
    stop: int
    rows: Rows
    keep: Mask | None
    ends: Index
    """Row numbers within ``rows`` where a batch may end."""
    limit: int
    """Rows of a batch at most, but for groups that are larger."""


def _run_ends(groups: Index) -> Index:
    """Row numbers just past each run of equal groups."""
    return np.append(np.flatnonzero(np.diff(groups)) + 1, groups.size).astype(np.intp)


def is_adjacent(groups: Index) -> bool:
    """Whether the rows of every group stand together."""
    return len(_run_ends(groups)) == np.unique(groups).size


def batch_ends(groups: Index, *, whole_groups: bool, limit: int) -> Index:
    """Where a batch of at most ``limit`` rows may end."""
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
    """Split the matrix into about ``n_tasks`` even tasks for the groups in ``selected``.

    Tasks end at group boundaries where ``whole_groups``, else at ends of blocks (``blocks`` are
    the matrix's row block boundaries, from 0 to N). Groups are renumbered by ``selected``.
    """
    place, chosen = rows.select(selected)
    allowed = _run_ends(rows.groups) if whole_groups else blocks[1:]
    wanted = np.arange(1, n_tasks) * (len(rows) / n_tasks)
    cuts = np.unique([0, *allowed[np.searchsorted(allowed, wanted)], len(rows)])
    tasks = []
    for start, stop in pairwise(cuts.tolist()):
        low, high = np.searchsorted(place, [start, stop])
        if low == high:
            continue
        part = chosen.take(slice(int(low), int(high)))
        keep = None
        if high - low < stop - start:
            keep = np.zeros(stop - start, dtype=bool)
            keep[place[low:high] - start] = True
        ends = batch_ends(part.groups, whole_groups=whole_groups, limit=limit)
        tasks.append(TaskRows(start, stop, part, keep, ends, limit))
    return tasks


def whole_batches(blocks: Iterable[Features], ends: Index, limit: int) -> Iterator[Batch]:
    """Cut a stream of row blocks into batches that end only at ``ends``.

    ``ends`` are the increasing row numbers where a batch may end, the last one the total. Yields
    (start, stop, pieces) with as many whole groups as fit into ``limit`` rows, at least one. The
    pieces are views of the blocks, more than one where a batch lies across blocks.
    """
    begin = high = 0
    pieces: list[Features] = []
    for block in blocks:
        low, high = high, high + len(block)
        rest = block
        while begin < high:
            end = _last_end(ends, begin, limit)
            if end > high:
                # What is in hand ends here unless the next groups still fit beside it.
                pieces.append(rest)
                break
            yield begin, end, [*pieces, block[max(begin, low) - low : end - low]]
            begin, pieces = end, []
            rest = block[begin - low :]


def _last_end(ends: Index, begin: int, limit: int) -> int:
    """The furthest end within ``limit`` rows of ``begin``, or the next one if none is."""
    place = int(np.searchsorted(ends, begin + limit, side="right")) - 1
    if place < 0 or ends[place] <= begin:
        place = int(np.searchsorted(ends, begin, side="right"))
    return int(ends[place])
