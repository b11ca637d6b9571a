"""Sweeps over rows that are read again each time: the part that memory and cluster share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import (
    EXACTLY,
    GroupTerms,
    Look,
    NoiseRule,
    Rows,
    StepResult,
    SweepOracle,
)
from gpgc_dask.gp.oracle.kernels import Arithmetic, MomentSums, Projection
from gpgc_dask.gp.oracle.statistics import CompositeOracle, StatisticsOracle
from gpgc_dask.gp.oracle.tasks import (
    Batches,
    GroupSums,
    Partial,
    Sweep,
    sweep_group_moments,
    sweep_moments,
)

__all__ = ["RowSweeps", "Survey", "survey"]

TaskFunction = Callable[[Batches, Rows, int], Any]
"""(batches, rows, number of the first row in X) -> something with a ``merge`` of its own."""

STATISTICS_BYTES = 1 << 28
"""Memory the driver may spend on sufficient statistics of large groups."""

LEAVE_OUT_BYTES = 1 << 28
"""Memory for the sample of groups that stands in where no task can see whole groups."""


class RowSweeps(SweepOracle):
    """Fused sweeps over the rows of some groups of a matrix.

    Subclasses say how a task function runs over all rows (:meth:`_run`) and whether a batch
    can hold whole groups (``whole_groups``); with whole groups a step is one read.
    """

    rows: Rows
    arithmetic: Arithmetic
    n_features: int
    whole_groups: bool
    read_share: float = 1.0
    """Share of the matrix that one sweep reads."""

    @abstractmethod
    def _run(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        """Run a task function over all rows and merge the results."""

    @abstractmethod
    def restricted(self, groups: Index) -> RowSweeps:
        """Sweeps over the rows of some groups, renumbered in that order."""

    @abstractmethod
    def loaded(self, groups: Index) -> RowSweeps:
        """The same with the rows of those groups held in memory."""

    def _read(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        self.reads += self.read_share
        return self._run(name, function, whole_groups=whole_groups)

    def group_sums(self, apart: Mask) -> dict[int, MomentSums]:
        """Sums at unit noise; groups marked in ``apart`` by themselves, the rest under -1."""
        task = partial(sweep_group_moments, arithmetic=self.arithmetic, apart=apart)
        found: GroupSums = self._read("survey", task, whole_groups=False)
        return found.sums

    def moments(self, log_noise: Array, redundancy: float) -> Moments:
        task = partial(
            sweep_moments,
            arithmetic=self.arithmetic,
            log_noise=log_noise,
            redundancy=redundancy,
        )
        found: MomentSums = self._read("gram", task, whole_groups=False)
        return found.finish(self.arithmetic)

    def terms(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        *,
        leave_out: bool,
        look: Look = EXACTLY,
    ) -> GroupTerms:
        whole = leave_out and self.whole_groups
        sweep = self._sweep(post, log_noise, redundancy, look, leave_out=whole)
        found = self._read("residuals", sweep.run, whole_groups=whole)
        terms, _ = sweep.finish(found)
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
        look: Look = EXACTLY,
        known: Moments | None = None,
    ) -> StepResult:
        if not self.whole_groups:
            return super().step(post, log_noise, redundancy, rule, leave_out=leave_out, look=look)
        sweep = self._sweep(post, log_noise, redundancy, look, leave_out=leave_out)
        sweep = replace(sweep, rule=rule, corrects=known is not None)
        return self._step(sweep, known)

    def opening(
        self, post: Posterior, redundancy: float, rule: NoiseRule, look: Look
    ) -> StepResult:
        """A first read by somebody else's posterior: a step from unit noise; checks every number.

        The rows need whole groups.
        """
        unit = np.zeros(self.group_weight.size)
        sweep = self._sweep(post, unit, redundancy, look, leave_out=False)
        return self._step(replace(sweep, rule=rule, checks=True), None)

    def _sweep(
        self, post: Posterior, log_noise: Array, redundancy: float, look: Look, *, leave_out: bool
    ) -> Sweep:
        project = Projection(
            post,
            self.arithmetic,
            mean=look.mean,
            directions=look.directions,
            whitens=leave_out,
        )
        return Sweep(project, log_noise, redundancy, leave_out, pull=look.pull)

    def _step(self, sweep: Sweep, known: Moments | None) -> StepResult:
        found: Partial = self._read("sweep", sweep.run, whole_groups=True)
        terms, new = sweep.finish(found)
        if found.sums is None:
            raise InputError("a step needs a rule")
        moments = found.sums.finish(self.arithmetic)
        return StepResult(terms, new, moments if known is None else known + moments)

    def _sampled_leave_out(self, post: Posterior, log_noise: Array, redundancy: float) -> Array:
        """Leave-out terms of a random sample of groups held in memory; NaN for the others."""
        sample, oracle = self._sample
        found = np.full(log_noise.size, np.nan)
        terms = oracle.terms(post, log_noise[sample], redundancy, leave_out=True)
        found[sample] = terms.leave_out
        return found

    @cached_property
    def _sample(self) -> tuple[Index, SweepOracle]:
        """Some groups, as many as fit into LEAVE_OUT_BYTES, and their rows. One read."""
        order = np.random.default_rng(0).permutation(self.rows.n_groups)
        row_bytes = self.n_features * self.arithmetic.dtype.itemsize
        size = np.cumsum(self.rows.group_sizes[order]) * row_bytes
        most = max(2, int(np.searchsorted(size, LEAVE_OUT_BYTES)))
        chosen = np.sort(order[:most])
        self.reads += self.read_share
        return chosen, self.loaded(chosen)


@dataclass(frozen=True)
class Survey:
    """The first read: moments at unit noise, and the oracle for all later sweeps.

    column_variance : (k,) weighted variance of each feature
    """

    moments: Moments
    oracle: SweepOracle
    column_variance: Array


def survey(rows: RowSweeps, budget: int = STATISTICS_BYTES) -> Survey:
    """Read once; keep groups with more rows than features as sufficient statistics.

    The largest groups come first, as many as fit into ``budget`` bytes at the driver.
    """
    k, t = rows.n_features, rows.n_targets
    sizes = rows.rows.group_sizes
    most = min(int((sizes > k).sum()), budget // (8 * k * (k + t)))
    apart = np.zeros(sizes.size, dtype=bool)
    apart[np.argsort(-sizes, kind="stable")[:most]] = True
    found = rows.group_sums(apart)
    total = MomentSums.merge(list(found.values()))
    return Survey(
        total.finish(rows.arithmetic), _reduced(rows, apart, found), total.column_variance()
    )


def _reduced(rows: RowSweeps, apart: Mask, found: dict[int, MomentSums]) -> SweepOracle:
    """The oracle that never reads the groups kept apart again."""
    if not apart.any():
        return rows
    large, small = np.flatnonzero(apart), np.flatnonzero(~apart)
    k, t = rows.n_features, rows.n_targets
    gram, cross, yy = (
        np.empty((large.size, k, k)),
        np.empty((large.size, k, t)),
        np.empty(large.size),
    )
    for place, group in enumerate(large.tolist()):
        moments = found.pop(group).finish(rows.arithmetic)
        gram[place], cross[place], yy[place] = moments.gram, moments.cross, moments.yy
    statistics = StatisticsOracle(gram, cross, yy, rows.group_weight[large])
    statistics.reads = rows.reads
    if not small.size:
        return statistics
    return CompositeOracle([(large, statistics), (small, rows.restricted(small))], apart.size)
