"""The contract between the data and the solvers.

The paper's oracle answers four queries about the N×k feature matrix F, whose rows are superpixels:

====  ===================  =========================  ==================
no.   query                method                     splits over rows by
====  ===================  =========================  ==================
i     Fᵀ v                 ``rmatvec(v)``             sum
ii    F u                  ``matvec(u)``              concatenation
iii   Fᵀ D F               ``gram(d)``                sum
iv    diag(F A Fᵀ)         ``quad_diag(A)``           concatenation
====  ===================  =========================  ==================

A fit never asks them one by one: a *sweep* answers several of them in one read of the rows.
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
    "EXACT_TERMS",
    "FeatureOracle",
    "GroupTerms",
    "NoiseRule",
    "Rows",
    "StepResult",
    "SweepOracle",
    "TermsRequest",
    "WeightRule",
]

NoiseRule = Callable[[Array, Array, Array, Array], Array]
"""(ln ε², W, R, Γ) of some groups -> their new ln ε². It runs in the tasks, so it must pickle."""


WeightRule = Callable[[Array, "Rows"], Features]
"""(predictions (n, t) without the own group, rows of whole groups) -> new weights (n,). It runs in
the tasks, so it must pickle."""


@dataclass(frozen=True)
class Rows:
    """Everything about the rows except their features: N-vectors held by the driver.

    Attributes
    ----------
    codes : array of int of shape (N,)
        Class of each row, from 0 to ``n_classes`` - 1.
    weights : array of shape (N,)
        Weight w ≥ 0 of each row.
    groups : array of int of shape (N,)
        Group of each row, from 0 to ``n_groups`` - 1.
    n_classes : int
        Number of classes.
    n_groups : int
        Number of groups J.
    given_weights : array of shape (N,) or None
        Weights of the caller, if ``weights`` are others that were computed from them.
    """

    codes: Index
    weights: Array
    groups: Index
    n_classes: int
    n_groups: int
    given_weights: Array | None = None

    def __len__(self) -> int:
        return self.codes.size

    @property
    def n_targets(self) -> int:
        """Number of target columns t: one for two classes, else one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def group_weight(self) -> Array:
        """(J,) sum of the weights of each group, W_j."""
        return group_sums(self.groups, self.weights, self.n_groups)

    @property
    def group_sizes(self) -> Index:
        """(J,) number of rows of each group."""
        return np.bincount(self.groups, minlength=self.n_groups)

    def precision(self, log_noise: Array, redundancy: float) -> Array:
        """(N,) precision p = w / (c ε²) of each row, from ln ε² (J,) of the groups."""
        return self.weights * np.exp(-log_noise[self.groups]) / redundancy

    def take(self, index: slice | Index) -> Rows:
        """The rows at some positions, with the same numbers of groups."""
        return self._at(index, self.groups[index], self.n_groups)

    def select(self, groups: Index) -> tuple[Index, Rows]:
        """Select the rows of some groups.

        Parameters
        ----------
        groups : array of int
            Groups to select.

        Returns
        -------
        index : array of int
            Positions of the selected rows.
        rows : Rows
            The selected rows, with groups renumbered in the order of ``groups``.
        """
        number = np.full(self.n_groups, -1, dtype=np.intp)
        number[groups] = np.arange(groups.size)
        local = number[self.groups]
        index = np.flatnonzero(local >= 0)
        return index, self._at(index, local[index], groups.size)

    def _at(self, index: slice | Index, groups: Index, n_groups: int) -> Rows:
        given = None if self.given_weights is None else self.given_weights[index]
        return Rows(self.codes[index], self.weights[index], groups, self.n_classes, n_groups, given)

    def targets(self) -> Array:
        """(N, t) target columns of ±1."""
        if self.n_classes == 2:
            return np.where(self.codes == 1, 1.0, -1.0)[:, None]
        targets = np.full((len(self), self.n_classes), -1.0)
        targets[np.arange(len(self)), self.codes] = 1.0
        return targets


@dataclass(frozen=True)
class TermsRequest:
    """Options for the group terms of a sweep.

    Attributes
    ----------
    mean : array of shape (k, t) or None
        Weights that the residuals are computed with. None: the posterior mean.
    directions : array of shape (k, m) or None
        Random z ~ N(0, V)/√m that estimate the leverages. None: exact leverages.
    gradient_groups : bool array of shape (J,) or None
        Groups whose gradients with respect to the weights are computed. None: no group.
    left_out : bool
        Whether to predict each row without its group too, if the same read can do it.
    held_noise : array of shape (J,) or None
        ln ε² that a step gives to groups instead of what its rule computes; NaN where the rule
        decides. None: it decides everywhere.
    """

    mean: Array | None = None
    directions: Array | None = None
    gradient_groups: Mask | None = None
    left_out: bool = False
    held_noise: Array | None = None


EXACT_TERMS = TermsRequest()
"""Residuals of the posterior mean, exact leverages, no gradients."""


@dataclass(frozen=True)
class GroupTerms:
    """Sums over the rows of each group at one posterior.

    Attributes
    ----------
    residual : array of shape (J,)
        R_j = Σ p ‖y − f‖², summed over target columns.
    leverage : array of shape (J,)
        Γ_j = Σ p v.
    leave_out : array of shape (J,) or None
        Σ p (y − f)·(f − f^(−j)), for the redundancy. None if it was not requested, NaN for groups
        that were not part of the sample it was computed on.
    weight_gradients : array of shape (P, k, t) or None
        g_j = F_jᵀ P (Y − f), the gradient of the log-likelihood of group j with respect to the
        weights, for the P requested groups in their order. None if none was requested.
    left_out : array of shape (N, t) or None
        Predictions f^(−j) for each row without its group, in the order of X. None if they were not
        requested, or if no task holds whole groups.
    """

    residual: Array
    leverage: Array
    leave_out: Array | None = None
    weight_gradients: Features | None = None
    left_out: Array | None = None


@dataclass(frozen=True)
class StepResult:
    """Result of a step: the terms at the old noise, the new noise, and the moments there.

    Attributes
    ----------
    terms : GroupTerms
        Terms at the old noise.
    log_noise : array of shape (J,)
        New ln ε² of each group.
    moments : Moments
        Moments at the new noise.
    """

    terms: GroupTerms
    log_noise: Array
    moments: Moments


class FeatureOracle(ABC):
    """The four queries for any matrix of rows; the results are lazy if the rows are lazy."""

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
        """(iv) for A = TᵀT: the squared norms of the rows of F Tᵀ, never negative."""


class SweepOracle(ABC):
    """The sweeps that a solver runs over labelled, weighted, grouped rows.

    In all methods ``log_noise`` is ln ε²ⱼ of shape (J,) and ``redundancy`` is c: the precision of
    row i of group j is wᵢ/(c ε²ⱼ).

    Attributes
    ----------
    group_weight : array of shape (J,)
        W_j, the sum of the weights of each group.
    n_targets : int
        Number of target columns t.
    reads : float
        Number of full reads of the rows since construction.
    in_memory : bool
        Whether a read without products of the features costs next to nothing.
    """

    group_weight: Array
    n_targets: int
    in_memory: bool = False
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
        request: TermsRequest = EXACT_TERMS,
    ) -> GroupTerms:
        """Queries (ii) and (iv) in one read, summed over groups.

        Parameters
        ----------
        post : Posterior
            Posterior that the rows are predicted with.
        log_noise : array of shape (J,)
            ln ε² of each group.
        redundancy : float
            Redundancy c.
        leave_out : bool
            Whether to compute the leave-out terms.
        request : TermsRequest, default EXACT_TERMS
            Which leverages and gradients to compute.
        """

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
        """All four queries: terms at ``post``, new noise by ``rule``, moments at the new noise.

        It takes one read in implementations that hold whole groups at a time, and two here.

        Parameters
        ----------
        post, log_noise, redundancy, leave_out, request
            As in :meth:`terms`.
        rule : NoiseRule
            Computes the new noise of some groups from the terms of these groups alone.
        current : Moments, optional
            Moments at ``log_noise``. With them only the groups whose noise changes are multiplied
            again.
        """
        return self.step_with_all_groups(
            post, log_noise, redundancy, rule, leave_out=leave_out, request=request
        )

    def step_with_all_groups(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        rule: NoiseRule,
        *,
        leave_out: bool,
        request: TermsRequest = EXACT_TERMS,
    ) -> StepResult:
        """A step in two reads, for a rule that needs the terms of all groups at once."""
        terms = self.terms(post, log_noise, redundancy, leave_out=leave_out, request=request)
        new = rule(log_noise, self.group_weight, terms.residual, terms.leverage)
        if request.held_noise is not None:
            new = np.where(np.isnan(request.held_noise), new, request.held_noise)
        return StepResult(terms, new, self.moments(new, redundancy))
