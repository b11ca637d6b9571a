"""What one task does with its batches of rows, and how the tasks' results are merged.

The same functions serve rows in memory and a cluster. Each takes the task's batches, its rows and
the number of its first row in X; what it returns has a ``merge`` of its own, or is concatenated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.core.checks import check_finite
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.oracle.base import GroupTerms, NoiseRule, Rows
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, MomentSums, Projection, Workspace
from gpgc_dask.gp.oracle.layout import Batch
from gpgc_dask.gp.oracle.leave_out import leave_out_shift, leave_out_terms

__all__ = [
    "Batches",
    "GroupSums",
    "Partial",
    "Sweep",
    "sweep_group_moments",
    "sweep_moments",
]

Batches: TypeAlias = Iterable[Batch]
"""The batches of a task, in order."""


@dataclass
class Partial:
    """One task's share of a sweep; shares of several tasks are merged as a tree.

    ``table`` has a column for each of ``groups``: R, Γ, the leave-out term and the new ln ε²;
    ``pull`` a row (k·t) for each of ``pulled``.
    """

    groups: Index
    table: Array
    pulled: Index
    pull: Features
    sums: MomentSums | None = None

    @classmethod
    def merge(cls, parts: Sequence[Partial]) -> Partial:
        sums = [part.sums for part in parts if part.sums is not None]
        return cls(
            *_merge_columns([part.groups for part in parts], [part.table for part in parts]),
            *_merge_rows([part.pulled for part in parts], [part.pull for part in parts]),
            MomentSums.merge(sums) if sums else None,
        )


def _merge_columns(groups: Sequence[Index], tables: Sequence[Array]) -> tuple[Index, Array]:
    """Columns side by side, those of the same group summed (but for the new noise)."""
    union, place = np.unique(np.concatenate(groups), return_inverse=True)
    columns = np.concatenate(tables, axis=1)
    merged = np.stack([group_sums(place, row, union.size) for row in columns])
    merged[3, place] = columns[3]
    return union, merged


def _merge_rows(groups: Sequence[Index], parts: Sequence[Features]) -> tuple[Index, Features]:
    """Rows one below the other, those of the same group summed."""
    union, place = np.unique(np.concatenate(groups), return_inverse=True)
    rows = np.concatenate(parts)
    if len(rows) == union.size:
        merged = np.empty_like(rows)
        merged[place] = rows
    else:
        merged = np.zeros((union.size, rows.shape[1]), dtype=rows.dtype)
        np.add.at(merged, place, rows)
    return union, merged


def sweep_moments(
    batches: Batches,
    rows: Rows,
    first_row: int,
    *,
    arithmetic: Arithmetic,
    log_noise: Array,
    redundancy: float,
) -> MomentSums:
    """Queries (i) and (iii) over the batches of one task."""
    sums: Accumulator | None = None
    work = Workspace(arithmetic)
    for start, stop, pieces in batches:
        part = rows.take(slice(start, stop))
        sums = sums or Accumulator(pieces[0].shape[1], rows.n_targets, arithmetic.dtype)
        precision = part.precision(log_noise, redundancy)
        sums.add(work.load(pieces), precision, part.targets())
    if sums is None:
        raise InputError("X has no rows")
    return sums.sums()


@dataclass(frozen=True)
class GroupSums:
    """Moments at unit noise: a sum for each group kept apart, one under -1 for all the rest."""

    sums: dict[int, MomentSums]

    @classmethod
    def merge(cls, parts: Sequence[GroupSums]) -> GroupSums:
        keys = sorted({key for part in parts for key in part.sums})
        return cls(
            {
                key: MomentSums.merge([part.sums[key] for part in parts if key in part.sums])
                for key in keys
            }
        )


def sweep_group_moments(
    batches: Batches, rows: Rows, first_row: int, *, arithmetic: Arithmetic, apart: Mask
) -> GroupSums:
    """The first read: moments at unit noise, with a sum of its own for each group in ``apart``.

    It also checks every number.
    """
    found: dict[int, Accumulator] = {}
    work = Workspace(arithmetic)
    for start, stop, pieces in batches:
        A = work.load(pieces)
        check_finite(A, first_row + start)
        part = rows.take(slice(start, stop))
        key = np.where(apart[part.groups], part.groups, -1)
        for group in np.unique(key):
            index = np.flatnonzero(key == group)
            own = part.take(index)
            if int(group) not in found:
                found[int(group)] = Accumulator(A.shape[1], rows.n_targets, arithmetic.dtype)
            part_of = A if index.size == len(A) else A[index]
            found[int(group)].add(part_of, own.weights, own.targets())
    return GroupSums({group: sums.sums() for group, sums in found.items()})


@dataclass(frozen=True)
class Sweep:
    """What a terms or step sweep needs besides its rows: the same for every task.

    rule : gives the groups of a batch their new noise, at which the batch's moments are summed;
        None: no moments
    corrects : sum what the new noise changes of the moments, instead of the moments
    checks : complain of NaN and infinity
    """

    project: Projection
    log_noise: Array
    redundancy: float
    leave_out: bool
    rule: NoiseRule | None = None
    pull: Mask | None = None
    corrects: bool = False
    checks: bool = False

    def run(self, batches: Batches, rows: Rows, first_row: int) -> Partial:
        """Queries (ii) and (iv) over the batches of one task and, with a rule, (i) and (iii)."""
        arithmetic = self.project.arithmetic
        k, t = self.project.mu.shape
        sums = Accumulator(k, t, arithmetic.dtype) if self.rule else None
        work = Workspace(arithmetic)
        found = [
            self._batch(work, pieces, rows.take(slice(start, stop)), sums, first_row + start)
            for start, stop, pieces in batches
        ]
        total = Partial.merge(found)
        total.sums = sums.sums() if sums else None
        return total

    def _batch(
        self,
        work: Workspace,
        pieces: list[Features],
        rows: Rows,
        sums: Accumulator | None,
        first_row: int,
    ) -> Partial:
        """The terms of one batch; its part of the next moments goes into ``sums``."""
        groups, local = np.unique(rows.groups, return_inverse=True)
        precision = rows.precision(self.log_noise, self.redundancy)
        targets = rows.targets()

        A = work.load(pieces)
        if self.checks:
            check_finite(A, first_row)
        f, v = self.project.judge(A)
        residual = targets - f
        pulled, pull = self._pull(A, precision[:, None] * residual, groups, local)
        if v is None:
            A = self.project.whiten(A)
            v = np.einsum("ij,ij->i", A, A).astype(np.float64)
        table = np.zeros((4, groups.size))
        table[0] = group_sums(local, precision * (residual**2).sum(1), groups.size)
        table[1] = group_sums(local, precision * v, groups.size)
        if self.leave_out:
            starts = np.flatnonzero(np.diff(local, prepend=-1))
            terms = leave_out_terms(
                A, precision, residual, starts, pieces, self.project, whitened=self.project.exact
            )
            table[2, local[starts]] = terms
        table[3] = self.log_noise[groups]
        if self.rule is not None and sums is not None:
            weight = group_sums(local, rows.weights, groups.size)
            table[3] = self.rule(table[3], weight, table[0], table[1])
            new = rows.weights * np.exp(-table[3][local]) / self.redundancy
            change = new - precision if self.corrects else new
            if change.any():
                sums.add(work.load(pieces) if self.project.exact else A, change, targets)
        return Partial(groups, table, pulled, pull)

    def _pull(self, A: Features, pr: Array, groups: Index, local: Index) -> tuple[Index, Features]:
        """The groups of the batch that are asked for it, and Fᵀ P r (·, k·t) of each."""
        k, t = A.shape[1], pr.shape[1]
        asked = np.flatnonzero(self.pull[groups]) if self.pull is not None else groups[:0]
        found = np.empty((asked.size, k, t), dtype=A.dtype)
        if asked.size and np.any(np.diff(local) < 0):
            order = np.argsort(local, kind="stable")
            A, pr, local = A[order], pr[order], local[order]
        m = self.project.arithmetic.offset
        starts, stops = (np.searchsorted(local, asked, side=side) for side in ("left", "right"))
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            own = pr[start:stop]
            found[number] = A[start:stop].T @ own.astype(A.dtype)
            if m is not None:
                found[number] += np.multiply.outer(m, own.sum(0))
        return groups[asked], found.reshape(asked.size, k * t)

    def finish(self, found: Partial) -> tuple[GroupTerms, Array]:
        """Terms and new ln ε² of all groups from the merged shares of all tasks."""
        n_groups = self.log_noise.size
        table = np.zeros((4, n_groups))
        table[3] = self.log_noise
        table[:, found.groups] = found.table
        pull = None
        if self.pull is not None:
            asked = np.flatnonzero(self.pull)
            pull = np.zeros((asked.size, *self.project.mu.shape), dtype=found.pull.dtype)
            place = np.searchsorted(asked, found.pulled)
            pull[place] = found.pull.reshape(-1, *self.project.mu.shape)
        terms = GroupTerms(table[0], table[1], table[2] if self.leave_out else None, pull)
        return terms, table[3]

    def predict(self, batches: Batches, rows: Rows, first_row: int) -> Array:
        """(n, t) predictions of the model that never saw the row's group."""
        found = np.empty((len(rows), self.project.mu.shape[1]))
        work = Workspace(self.project.arithmetic)
        for start, stop, pieces in batches:
            part = rows.take(slice(start, stop))
            precision = part.precision(self.log_noise, self.redundancy)
            A = work.load(pieces)
            mean, _ = self.project.judge(A)
            if not np.all(np.isfinite(mean)):
                check_finite(A, first_row + start)
            starts = np.flatnonzero(np.diff(part.groups, prepend=-1))
            residual = part.targets() - mean
            Z = self.project.whiten(A)
            shift = leave_out_shift(Z, precision, residual, starts, pieces, self.project)
            found[start:stop] = mean - shift
        return found
