"""Where rows may be cut: group boundaries, and the row range of each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpgc_dask.arrays import Features, Index, Mask
from gpgc_dask.oracle.base import Rows

__all__ = ["TaskRows", "batch_ends", "cut_tasks", "is_adjacent", "whole_batches"]


@dataclass(frozen=True)
class TaskRows:
    """The rows one task works on: [start, stop) of the matrix, those that ``keep`` marks."""

    start: int
    stop: int
    rows: Rows
    keep: Mask | None
    ends: Index
    """Row numbers within ``rows`` where a batch may end."""


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
    task_rows: int,
    limit: int,
) -> list[TaskRows]:
    """Split the matrix into tasks of about ``task_rows`` rows for the groups in ``selected``.

    Tasks end at group boundaries where ``whole_groups``, else at ends of blocks (``blocks`` are
    the matrix's row block boundaries, from 0 to N). Groups are renumbered by ``selected``.
    """
    number = np.full(rows.n_groups, -1, dtype=np.intp)
    number[selected] = np.arange(selected.size)
    local = number[rows.groups]
    allowed = _run_ends(rows.groups) if whole_groups else blocks[1:]
    cuts = [0]
    while cuts[-1] < len(rows):
        place = np.searchsorted(allowed, cuts[-1] + task_rows, side="right") - 1
        end = int(allowed[place]) if place >= 0 else 0
        if end <= cuts[-1]:
            end = int(allowed[np.searchsorted(allowed, cuts[-1], side="right")])
        cuts.append(end)
    tasks = []
    for start, stop in pairwise(cuts):
        keep = local[start:stop] >= 0
        if not keep.any():
            continue
        index = np.arange(start, stop)[keep]
        part = Rows(
            rows.codes[index], rows.weights[index], local[index], rows.n_classes, selected.size
        )
        ends = batch_ends(part.groups, whole_groups=whole_groups, limit=limit)
        tasks.append(TaskRows(start, stop, part, None if keep.all() else keep, ends))
    return tasks


def whole_batches(
    blocks: Iterable[Features], ends: Index, limit: int
) -> Iterator[tuple[int, int, Features]]:
    """Cut a stream of row blocks into batches that end only at ``ends``.

    ``ends`` are the increasing row numbers where a batch may end, the last one the total. Yields
    (start, stop, rows) with as many whole pieces as fit into ``limit`` rows, at least one. Rows
    are views of the blocks; only a piece that lies across two blocks is copied.
    """
    begin = position = 0
    carry: list[Features] = []
    for block in blocks:
        high = position + len(block)
        if carry:
            end = int(ends[np.searchsorted(ends, begin, side="right")])
            if end > high:
                carry.append(block)
                position = high
                continue
            yield begin, end, np.concatenate([*carry, block[: end - position]])
            begin, carry = end, []
        while begin < high:
            stop = int(np.searchsorted(ends, min(begin + limit, high), side="right")) - 1
            end = int(ends[stop]) if stop >= 0 else 0
            if end <= begin:
                end = int(ends[np.searchsorted(ends, begin, side="right")])
            if end > high:
                carry = [block[begin - position :].copy()]
                break
            yield begin, end, block[begin - position : end - position]
            begin = end
        position = high
