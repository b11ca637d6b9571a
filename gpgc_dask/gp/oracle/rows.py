"""Sweeps over rows that are read again each time: what rows in memory and on a cluster share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import (
    EXACT_TERMS,
    GroupTerms,
    NoiseRule,
    Rows,
    StepResult,
    SweepOracle,
    TermsRequest,
    WeightRule,
)
from gpgc_dask.gp.oracle.kernels import Arithmetic, MomentSums, Projection
from gpgc_dask.gp.oracle.statistics import CompositeOracle, StatisticsOracle
from gpgc_dask.gp.oracle.tasks import (
    Batches,
    GroupSums,
    Partial,
    Reweighted,
    Sweep,
    sweep_group_moments,
    sweep_moments,
)

__all__ = ["RowSweeps", "Survey", "survey"]

TaskFunction = Callable[[Batches, Rows, int], Any]
"""(batches, rows, number of the first row in X) -> a result with a ``merge`` class method."""

STATISTICS_BYTES = 1 << 28
"""Memory of the driver for sufficient statistics of large groups."""

LEAVE_OUT_BYTES = 1 << 28
"""Memory for the sample of groups used for leave-out terms if no task can hold whole groups."""


class RowSweeps(SweepOracle):
    """Fused sweeps over the rows of some groups of a matrix.

    Subclasses define how a task function runs over all rows (:meth:`_run`).

    Attributes
    ----------
    rows : Rows
        Classes, weights and groups of the rows.
    arithmetic : Arithmetic
        Precision and offset of the products.
    n_features : int
        Number of features k.
    whole_groups : bool
        Whether a batch can hold whole groups. A step is then one read.
    holds_groups : bool
        Whether every group is small enough that a task can hold it.
    read_share : float
        Share of the matrix that one sweep reads.
    """

    rows: Rows
    arithmetic: Arithmetic
    n_features: int
    whole_groups: bool
    holds_groups: bool = True
    read_share: float = 1.0

    @abstractmethod
    def _run(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        """Run a task function over all rows and merge the results; ``name`` is for display."""

    @abstractmethod
    def _map_rows(self, name: str, function: TaskFunction) -> Array:
        """Results of a row-wise task function over whole groups, in the order of X."""

    @abstractmethod
    def _in_order(self, values: Features) -> Features:
        """Results for the rows as the tasks have them, in the order of X."""

    @abstractmethod
    def select_groups(self, groups: Index) -> RowSweeps:
        """Sweeps over the rows of some groups, which are renumbered in that order."""

    @abstractmethod
    def load_groups(self, groups: Index) -> RowSweeps:
        """The same sweeps with the rows of those groups in memory."""

    def _read(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        self.reads += self.read_share
        return self._run(name, function, whole_groups=whole_groups)

    def group_sums(self, apart: Mask) -> dict[int, MomentSums]:
        """Sums at unit noise: one per group marked in ``apart``, one under -1 for all others."""
        task = partial(sweep_group_moments, arithmetic=self.arithmetic, apart=apart)
        result: GroupSums = self._read("survey", task, whole_groups=False)
        return result.sums

    def moments(self, log_noise: Array, redundancy: float) -> Moments:
        task = partial(
            sweep_moments,
            arithmetic=self.arithmetic,
            log_noise=log_noise,
            redundancy=redundancy,
        )
        sums: MomentSums = self._read("gram", task, whole_groups=False)
        return sums.finish(self.arithmetic)

    def leave_out(self, post: Posterior, log_noise: Array, redundancy: float) -> Array:
        """(N, t) predictions for each row of the model without the row's group, in one read.

        A task holds whole groups; scattered groups of a dask array are gathered by a shuffle first.
        """
        sweep = self._sweep(post, log_noise, redundancy, EXACT_TERMS, leave_out=True)
        self.reads += self.read_share
        return self._map_rows("leave-out", sweep.predict_left_out)

    def reweight(
        self, post: Posterior, log_noise: Array, redundancy: float, rule: WeightRule
    ) -> tuple[Array, Features, Moments]:
        """Give rows new weights by their predictions without their group, in one read.

        Batches must hold whole groups.

        Parameters
        ----------
        post : Posterior
            Posterior of the weights of the features, at the weights that the rows have.
        log_noise : array of shape (J,)
            ln ε² of each group.
        redundancy : float
            Redundancy c.
        rule : callable
            Computes weights from predictions.

        Returns
        -------
        values : array of shape (N, t)
            Predictions, as of :meth:`leave_out`.
        weights : array of float32 of shape (N,)
            New weights.
        moments : Moments
            Moments with the new weights.
        """
        sweep = self._sweep(post, log_noise, redundancy, EXACT_TERMS, leave_out=True)
        task = partial(sweep.reweight, rule=rule)
        total: Reweighted = self._read("sweep", task, whole_groups=True)
        values, weights = (self._in_order(each) for each in (total.values, total.weights))
        return values, weights, total.sums.finish(self.arithmetic)

    def terms(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        *,
        leave_out: bool,
        request: TermsRequest = EXACT_TERMS,
    ) -> GroupTerms:
        whole = leave_out and self.whole_groups
        predict = request.left_out and request.directions is None and self.whole_groups
        sweep = self._sweep(post, log_noise, redundancy, request, leave_out=whole)
        sweep = replace(sweep, predict=predict)
        total: Partial = self._read("residuals", sweep.run, whole_groups=whole or predict)
        terms, _ = sweep.finish(total)
        if total.left_out is not None:
            terms = replace(terms, left_out=self._in_order(total.left_out))
        if leave_out and not whole:
            terms = replace(terms, leave_out=self._sampled_leave_out(post, log_noise, redundancy))
        return terms

    def step(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        rule: NoiseRule,
        *,
        leave_out: bool,
        request: TermsRequest = EXACT_TERMS,
        current: Moments | None = None,
    ) -> StepResult:
        if not self.whole_groups:
            return super().step(
                post, log_noise, redundancy, rule, leave_out=leave_out, request=request
            )
        sweep = self._sweep(post, log_noise, redundancy, request, leave_out=leave_out)
        sweep = replace(sweep, rule=rule, sum_changes=current is not None)
        return self._step(sweep, current)

    def first_step(
        self, post: Posterior, redundancy: float, rule: NoiseRule, request: TermsRequest
    ) -> StepResult:
        """A first step, from unit noise, with a posterior computed on other data.

        It raises an InputError if X contains NaN or infinity. Batches must hold whole groups.
        """
        unit = np.zeros(self.group_weight.size)
        sweep = self._sweep(post, unit, redundancy, request, leave_out=False)
        return self._step(replace(sweep, rule=rule, check_values=True), None)

    def _sweep(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        request: TermsRequest,
        *,
        leave_out: bool,
    ) -> Sweep:
        projection = Projection(
            post,
            self.arithmetic,
            mean=request.mean,
            directions=request.directions,
            keep_factor=leave_out,
        )
        return Sweep(
            projection,
            log_noise,
            redundancy,
            leave_out,
            gradient_groups=request.gradient_groups,
            held_noise=request.held_noise,
        )

    def _step(self, sweep: Sweep, current: Moments | None) -> StepResult:
        total: Partial = self._read("sweep", sweep.run, whole_groups=True)
        terms, new = sweep.finish(total)
        if total.sums is None:
            raise InputError("a step needs a rule")
        moments = total.sums.finish(self.arithmetic)
        return StepResult(terms, new, moments if current is None else current + moments)

    def _sampled_leave_out(self, post: Posterior, log_noise: Array, redundancy: float) -> Array:
        """Leave-out terms of a random sample of groups in memory; NaN for the others."""
        sample, oracle = self._sample
        leave_out = np.full(log_noise.size, np.nan)
        terms = oracle.terms(post, log_noise[sample], redundancy, leave_out=True)
        leave_out[sample] = terms.leave_out
        return leave_out

    @cached_property
    def _sample(self) -> tuple[Index, SweepOracle]:
        """Random groups, as many as fit into LEAVE_OUT_BYTES, and their rows, in one read."""
        order = np.random.default_rng(0).permutation(self.rows.n_groups)
        row_bytes = self.n_features * self.arithmetic.dtype.itemsize
        size = np.cumsum(self.rows.group_sizes[order]) * row_bytes
        n_chosen = max(2, int(np.searchsorted(size, LEAVE_OUT_BYTES)))
        chosen = np.sort(order[:n_chosen])
        self.reads += self.read_share
        return chosen, self.load_groups(chosen)


@dataclass(frozen=True)
class Survey:
    """Result of the first read.

    Attributes
    ----------
    moments : Moments
        Moments at unit noise.
    oracle : SweepOracle
        Oracle for all later sweeps.
    column_variance : array of shape (k,)
        Weighted variance of each feature.
    """

    moments: Moments
    oracle: SweepOracle
    column_variance: Array


def survey(rows: RowSweeps, budget: int = STATISTICS_BYTES) -> Survey:
    """Read the rows once; replace groups with more rows than features by sufficient statistics.

    Parameters
    ----------
    rows : RowSweeps
        Sweeps over all rows.
    budget : int, default STATISTICS_BYTES
        Memory of the driver for the statistics in bytes. The largest groups take precedence.
    """
    k, t = rows.n_features, rows.n_targets
    sizes = rows.rows.group_sizes
    n_apart = min(int((sizes > k).sum()), budget // (8 * k * (k + t)))
    apart = np.zeros(sizes.size, dtype=bool)
    apart[np.argsort(-sizes, kind="stable")[:n_apart]] = True
    sums = rows.group_sums(apart)
    total = MomentSums.merge(list(sums.values()))
    return Survey(
        total.finish(rows.arithmetic), _combine(rows, apart, sums), total.column_variance()
    )


def _combine(rows: RowSweeps, apart: Mask, sums: dict[int, MomentSums]) -> SweepOracle:
    """An oracle of statistics for the groups marked in ``apart`` and of rows for the others."""
    if not apart.any():
        return rows
    large, small = np.flatnonzero(apart), np.flatnonzero(~apart)
    k, t = rows.n_features, rows.n_targets
    gram, cross, yy = (
        np.empty((large.size, k, k)),
        np.empty((large.size, k, t)),
        np.empty(large.size),
    )
    for number, group in enumerate(large.tolist()):
        moments = sums.pop(group).finish(rows.arithmetic)
        gram[number], cross[number], yy[number] = moments.gram, moments.cross, moments.yy
    statistics = StatisticsOracle(gram, cross, yy, rows.group_weight[large])
    statistics.reads = rows.reads
    if not small.size:
        return statistics
    return CompositeOracle([(large, statistics), (small, rows.select_groups(small))], apart.size)
