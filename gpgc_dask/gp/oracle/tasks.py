"""The work of one task on its batches of rows, and how results of tasks are merged.

The same functions run on rows in memory and on a cluster. Each takes the batches of the task, its
rows and the number of its first row in X. The result has a ``merge`` class method, or is
concatenated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.core.checks import check_finite
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.oracle.base import GroupTerms, NoiseRule, Rows, WeightRule
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, MomentSums, Projection, Workspace
from gpgc_dask.gp.oracle.layout import Batch
from gpgc_dask.gp.oracle.leave_out import leave_out_shift, leave_out_terms

__all__ = [
    "Batches",
    "GroupSums",
    "Partial",
    "Reweighted",
    "Sweep",
    "sweep_group_moments",
    "sweep_moments",
]

Batches: TypeAlias = Iterable[Batch]
"""The batches of a task, in order."""


@dataclass
class Partial:
    """Result of one task of a sweep; results of several tasks are merged as a tree.

    Attributes
    ----------
    groups : array of int of shape (g,)
        Groups of the rows of the task.
    table : array of shape (4, g)
        R, Γ, the leave-out term and the new ln ε² of each of these groups.
    gradient_groups : array of int of shape (p,)
        Those groups whose gradients were requested.
    gradients : array of shape (p, k·t)
        Their gradients with respect to the weights.
    sums : MomentSums or None
        Moments at the new noise.
    left_out : array of shape (n, t) or None
        Predictions for the rows of the task without their groups.
    """

    groups: Index
    table: Array
    gradient_groups: Index
    gradients: Features
    sums: MomentSums | None = None
    left_out: Array | None = None

    @classmethod
    def merge(cls, parts: Sequence[Partial]) -> Partial:
        """The result of consecutive tasks, in their order."""
        left_out = [part.left_out for part in parts if part.left_out is not None]
        sums = [part.sums for part in parts if part.sums is not None]
        return cls(
            *_merge_columns([part.groups for part in parts], [part.table for part in parts]),
            *_merge_rows(
                [part.gradient_groups for part in parts], [part.gradients for part in parts]
            ),
            MomentSums.merge(sums) if sums else None,
            np.concatenate(left_out) if left_out else None,
        )


@dataclass(frozen=True)
class Reweighted:
    """Result of one task that gives its rows new weights.

    Attributes
    ----------
    values : array of shape (n, t)
        Predictions for each row of the model fitted without the row's group.
    weights : array of shape (n,)
        New weights.
    sums : MomentSums
        Moments with the new weights.
    """

    values: Array
    weights: Features
    sums: MomentSums

    @classmethod
    def merge(cls, parts: Sequence[Reweighted]) -> Reweighted:
        """Results of consecutive tasks, in their order."""
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.weights for part in parts]),
            MomentSums.merge([part.sums for part in parts]),
        )


def _merge_columns(groups: Sequence[Index], tables: Sequence[Array]) -> tuple[Index, Array]:
    """Concatenate columns and sum those of the same group, except for the new noise."""
    union, position = np.unique(np.concatenate(groups), return_inverse=True)
    columns = np.concatenate(tables, axis=1)
    merged = np.stack([group_sums(position, row, union.size) for row in columns])
    merged[3, position] = columns[3]
    return union, merged


def _merge_rows(groups: Sequence[Index], parts: Sequence[Features]) -> tuple[Index, Features]:
    """Concatenate rows and sum those of the same group."""
    union, position = np.unique(np.concatenate(groups), return_inverse=True)
    rows = np.concatenate(parts)
    if len(rows) == union.size:
        merged = np.empty_like(rows)
        merged[position] = rows
    else:
        merged = np.zeros((union.size, rows.shape[1]), dtype=rows.dtype)
        np.add.at(merged, position, rows)
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
    """Moments at unit noise: one sum per group that is kept apart, one under -1 for all others."""

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
    """The first read: moments at unit noise, with a separate sum per group marked in ``apart``.

    It raises an InputError if X contains NaN or infinity.
    """
    sums: dict[int, Accumulator] = {}
    work = Workspace(arithmetic)
    for start, stop, pieces in batches:
        A = work.load(pieces)
        check_finite(A, first_row + start)
        part = rows.take(slice(start, stop))
        key = np.where(apart[part.groups], part.groups, -1)
        for group in np.unique(key):
            index = np.flatnonzero(key == group)
            own = part.take(index)
            if int(group) not in sums:
                sums[int(group)] = Accumulator(A.shape[1], rows.n_targets, arithmetic.dtype)
            features = A if index.size == len(A) else A[index]
            sums[int(group)].add(features, own.weights, own.targets())
    return GroupSums({group: each.sums() for group, each in sums.items()})


@dataclass(frozen=True)
class Sweep:
    """Everything but the rows that a sweep for terms, or a step, needs: the same for every task.

    Attributes
    ----------
    projection : Projection
        Predicts and whitens rows.
    log_noise : array of shape (J,)
        ln ε² of each group.
    redundancy : float
        Redundancy c.
    leave_out : bool
        Whether to compute the leave-out terms.
    rule : NoiseRule or None
        Computes the new noise of the groups of a batch, at which its moments are summed. None: no
        moments.
    gradient_groups : bool array of shape (J,) or None
        Groups whose gradients with respect to the weights are computed.
    sum_changes : bool
        Whether to sum the changes of the moments by the new noise instead of the moments.
    check_values : bool
        Whether to raise an InputError for NaN and infinity.
    predict : bool
        Whether to predict each row without its group. It needs exact leverages.
    held_noise : array of shape (J,) or None
        ln ε² of groups whose new noise is this instead of that by the rule; NaN for the others.
    """

    projection: Projection
    log_noise: Array
    redundancy: float
    leave_out: bool
    rule: NoiseRule | None = None
    gradient_groups: Mask | None = None
    sum_changes: bool = False
    check_values: bool = False
    predict: bool = False
    held_noise: Array | None = None

    def run(self, batches: Batches, rows: Rows, first_row: int) -> Partial:
        """Queries (ii) and (iv) over the batches of one task and, with a rule, (i) and (iii)."""
        arithmetic = self.projection.arithmetic
        k, t = self.projection.mu.shape
        sums = Accumulator(k, t, arithmetic.dtype) if self.rule else None
        work = Workspace(arithmetic)
        parts = [
            self._batch(work, pieces, rows.take(slice(start, stop)), sums, first_row + start)
            for start, stop, pieces in batches
        ]
        total = Partial.merge(parts)
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
        """The terms of one batch; its share of the new moments is added to ``sums``."""
        groups, local = np.unique(rows.groups, return_inverse=True)
        precision = rows.precision(self.log_noise, self.redundancy)
        targets = rows.targets()

        A = work.load(pieces)
        if self.check_values:
            check_finite(A, first_row)
        f, v = self.projection.predict(A)
        residual = targets - f
        wanted, gradients = self._gradients(A, precision[:, None] * residual, groups, local)
        if v is None:
            A = self.projection.whiten(A)
            v = np.einsum("ij,ij->i", A, A).astype(np.float64)
        table = np.zeros((4, groups.size))
        table[0] = group_sums(local, precision * (residual**2).sum(1), groups.size)
        table[1] = group_sums(local, precision * v, groups.size)
        left_out = None
        starts = np.flatnonzero(np.diff(local, prepend=-1))
        if self.predict:
            shift = leave_out_shift(
                A, precision, residual, starts, pieces, self.projection, whitened=True
            )
            left_out = f - shift
            table[2] = group_sums(local, precision * (residual * shift).sum(1), groups.size)
        elif self.leave_out:
            table[2, local[starts]] = leave_out_terms(
                A,
                precision,
                residual,
                starts,
                pieces,
                self.projection,
                whitened=self.projection.exact,
            )
        table[3] = self.log_noise[groups]
        if self.rule is not None and sums is not None:
            weight = group_sums(local, rows.weights, groups.size)
            table[3] = self.rule(table[3], weight, table[0], table[1])
            if self.held_noise is not None:
                held = self.held_noise[groups]
                table[3] = np.where(np.isnan(held), table[3], held)
            new = rows.weights * np.exp(-table[3][local]) / self.redundancy
            change = new - precision if self.sum_changes else new
            if change.any():
                sums.add(work.load(pieces) if self.projection.exact else A, change, targets)
        return Partial(groups, table, wanted, gradients, left_out=left_out)

    def _gradients(
        self, A: Features, pr: Array, groups: Index, local: Index
    ) -> tuple[Index, Features]:
        """The groups of the batch whose gradients are wanted, and Fᵀ P r (·, k·t) of each."""
        k, t = A.shape[1], pr.shape[1]
        wanted = groups[:0]
        if self.gradient_groups is not None:
            wanted = np.flatnonzero(self.gradient_groups[groups])
        gradients = np.empty((wanted.size, k, t), dtype=A.dtype)
        if wanted.size and np.any(np.diff(local) < 0):
            order = np.argsort(local, kind="stable")
            A, pr, local = A[order], pr[order], local[order]
        m = self.projection.arithmetic.offset
        starts, stops = (np.searchsorted(local, wanted, side=side) for side in ("left", "right"))
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            own = pr[start:stop]
            gradients[number] = A[start:stop].T @ own.astype(A.dtype)
            if m is not None:
                gradients[number] += np.multiply.outer(m, own.sum(0))
        return groups[wanted], gradients.reshape(wanted.size, k * t)

    def finish(self, total: Partial) -> tuple[GroupTerms, Array]:
        """Terms and new ln ε² of all groups from the merged results of all tasks."""
        n_groups = self.log_noise.size
        table = np.zeros((4, n_groups))
        table[3] = self.log_noise
        table[:, total.groups] = total.table
        gradients = None
        if self.gradient_groups is not None:
            wanted = np.flatnonzero(self.gradient_groups)
            shape = self.projection.mu.shape
            gradients = np.zeros((wanted.size, *shape), dtype=total.gradients.dtype)
            position = np.searchsorted(wanted, total.gradient_groups)
            gradients[position] = total.gradients.reshape(-1, *shape)
        terms = GroupTerms(table[0], table[1], table[2] if self.leave_out else None, gradients)
        return terms, table[3]

    def predict_left_out(self, batches: Batches, rows: Rows, first_row: int) -> Array:
        """(n, t) predictions for each row of the model fitted without the row's group."""
        predictions = np.empty((len(rows), self.projection.mu.shape[1]))
        work = Workspace(self.projection.arithmetic)
        for start, stop, pieces in batches:
            part = rows.take(slice(start, stop))
            A = work.load(pieces)
            predictions[start:stop] = self._left_out(A, pieces, part, first_row + start)
        return predictions

    def reweight(
        self, batches: Batches, rows: Rows, first_row: int, *, rule: WeightRule
    ) -> Reweighted:
        """The same predictions, new weights by a rule, and the moments with these."""
        k, t = self.projection.mu.shape
        values, weights = np.empty((len(rows), t)), np.empty(len(rows), dtype=np.float32)
        work = Workspace(self.projection.arithmetic)
        sums = Accumulator(k, t, self.projection.arithmetic.dtype)
        for start, stop, pieces in batches:
            part = rows.take(slice(start, stop))
            A = work.load(pieces)
            values[start:stop] = self._left_out(A, pieces, part, first_row + start)
            weights[start:stop] = rule(values[start:stop], part)
            part = replace(part, weights=weights[start:stop].astype(np.float64))
            precision = part.precision(self.log_noise, self.redundancy)
            sums.add(A, precision, part.targets())
        return Reweighted(values, weights, sums.sums())

    def _left_out(self, A: Features, pieces: list[Features], rows: Rows, first_row: int) -> Array:
        """(n, t) the same predictions for the loaded rows of one batch, which stay as they are."""
        precision = rows.precision(self.log_noise, self.redundancy)
        mean, _ = self.projection.predict(A)
        if not np.all(np.isfinite(mean)):
            check_finite(A, first_row)
        starts = np.flatnonzero(np.diff(rows.groups, prepend=-1))
        shift = leave_out_shift(
            A, precision, rows.targets() - mean, starts, pieces, self.projection, whitened=False
        )
        left_out: Array = mean - shift
        return left_out
