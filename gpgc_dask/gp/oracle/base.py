"""The contract between the data and the solvers.

The paper's oracle answers four queries about the N×k matrix F; in row-major words

====  ===================  =========================  ==================
no.   query                method                     splits over rows by
====  ===================  =========================  ==================
i     Fᵀ v                 ``rmatvec(v)``             sum
ii    F u                  ``matvec(u)``              concatenation
iii   Fᵀ D F               ``gram(d)``                sum
iv    diag(F A Fᵀ)         ``quad_diag(A)``           concatenation
====  ===================  =========================  ==================

A fit never asks them one by one: a *sweep* answers several from one read of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.gp.evidence import Moments, Posterior

__all__ = [
    "EXACTLY",
    "FeatureOracle",
    "GroupTerms",
    "Look",
    "NoiseRule",
    "Rows",
    "StepResult",
    "SweepOracle",
]

NoiseRule = Callable[[Array, Array, Array, Array], Array]
"""(ln ε², W, R, Γ) of some groups -> their new ln ε²; runs beside the data, so it must pickle."""


@dataclass(frozen=True)
class Rows:
    """What is known of every row besides its features. N-vectors, held by the driver.

    Attributes
    ----------
    codes : (N,) class of each row, 0..n_classes-1
    weights : (N,) weight w of each row, ≥ 0
    groups : (N,) group of each row, 0..n_groups-1
    """

    codes: Index
    weights: Array
    groups: Index
    n_classes: int
    n_groups: int

    def __len__(self) -> int:
        return self.codes.size

    @property
    def n_targets(self) -> int:
        """Target columns: one for two classes, one a class for more."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def group_weight(self) -> Array:
        """(J,) W_j, the sum of the weights of each group."""
        return group_sums(self.groups, self.weights, self.n_groups)

    @property
    def group_sizes(self) -> Index:
        """(J,) number of rows of each group."""
        return np.bincount(self.groups, minlength=self.n_groups)

    def precision(self, log_noise: Array, redundancy: float) -> Array:
        """(N,) p of each row: w / (c ε²) with ln ε² of its group."""
        return self.weights * np.exp(-log_noise[self.groups]) / redundancy

    def take(self, index: slice | Index) -> Rows:
        return Rows(
            self.codes[index],
            self.weights[index],
            self.groups[index],
            self.n_classes,
            self.n_groups,
        )

    def select(self, groups: Index) -> tuple[Index, Rows]:
        """(numbers of the rows of some groups, those rows with groups renumbered in that order)."""
        number = np.full(self.n_groups, -1, dtype=np.intp)
        number[groups] = np.arange(groups.size)
        local = number[self.groups]
        place = np.flatnonzero(local >= 0)
        rows = Rows(
            self.codes[place], self.weights[place], local[place], self.n_classes, groups.size
        )
        return place, rows

    def targets(self) -> Array:
        """(N, t) matrix of ±1."""
        if self.n_classes == 2:
            return np.where(self.codes == 1, 1.0, -1.0)[:, None]
        targets = np.full((len(self), self.n_classes), -1.0)
        targets[np.arange(len(self)), self.codes] = 1.0
        return targets


@dataclass(frozen=True)
class Look:
    """How closely a sweep looks at the rows.

    mean : (k, t) weights to judge the rows by; None: the posterior's own
    directions : (k, m) random z ~ N(0, V)/√m that estimate the leverages; None: exact leverages
    pull : (J,) the groups whose pull on the weights is asked for; None: of none
    """

    mean: Array | None = None
    directions: Array | None = None
    pull: Mask | None = None


EXACTLY = Look()


@dataclass(frozen=True)
class GroupTerms:
    """Sums over the rows of each group at one posterior, (J,) but for the pull.

    residual : R_j = Σ p ‖y − f‖², summed over target columns
    leverage : Γ_j = Σ p v
    leave_out : Σ p (y − f)·(f − f^(−j)), for the redundancy; None where it was not asked for.
        NaN for groups that were not part of the sample it was computed on.
    pull : (P, k, t) Fⱼᵀ P (Y − f), where a group's rows want the weights to go, of the groups that
        were asked for it, in their order; None where none was
    """

    residual: Array
    leverage: Array
    leave_out: Array | None = None
    pull: Features | None = None


@dataclass(frozen=True)
class StepResult:
    """One fused sweep: the terms at the old noise, the new noise, the moments there."""

    terms: GroupTerms
    log_noise: Array
    moments: Moments


class FeatureOracle(ABC):
    """The four queries, for any matrix of rows. Lazy where the rows are lazy."""

    shape: tuple[int, int]

    @abstractmethod
    def rmatvec(self, v: Array) -> Any:
        """(i) Fᵀ v for v of shape (N,) or (N, t)."""

    @abstractmethod
    def matvec(self, u: Array) -> Any:
        """(ii) F u for u of shape (k,) or (k, t)."""

    @abstractmethod
    def gram(self, d: Array) -> Any:
        """(iii) Fᵀ diag(d) F for d of shape (N,)."""

    @abstractmethod
    def quad_diag(self, A: Array) -> Any:
        """(iv) diag(F A Fᵀ) for A of shape (k, k)."""

    @abstractmethod
    def variance(self, T: Array) -> Any:
        """(iv) for A = TᵀT: the squared norms of F Tᵀ, never negative."""


class SweepOracle(ABC):
    """The fused sweeps a solver runs on labelled, weighted, grouped rows.

    ``log_noise`` is ln ε²ⱼ (J,), ``redundancy`` is c: the precision of row i is wᵢ/(c ε²ⱼ).
    ``reads`` counts full reads of the rows since construction.
    """

    group_weight: Array
    n_targets: int
    reads: float = 0.0

    @abstractmethod
    def moments(self, log_noise: Array, redundancy: float) -> Moments:
        """Queries (i) and (iii) in one read."""

    @abstractmethod
    def terms(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        *,
        leave_out: bool,
        look: Look = EXACTLY,
    ) -> GroupTerms:
        """Queries (ii) and (iv) in one read, summed over groups."""

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
        """All four queries: terms at ``post``, new noise by ``rule``, moments at the new noise.

        One read where an implementation can see whole groups at a time, two here. ``known`` are
        the moments at ``log_noise``: where they are given, only groups whose noise the rule
        changes are multiplied again.
        """
        return self.step_with_all_groups(
            post, log_noise, redundancy, rule, leave_out=leave_out, look=look
        )

    def step_with_all_groups(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        rule: NoiseRule,
        *,
        leave_out: bool,
        look: Look = EXACTLY,
    ) -> StepResult:
        """The same in two reads, for a rule that needs the terms of all groups at once."""
        terms = self.terms(post, log_noise, redundancy, leave_out=leave_out, look=look)
        new = rule(log_noise, self.group_weight, terms.residual, terms.leverage)
        return StepResult(terms, new, self.moments(new, redundancy))
