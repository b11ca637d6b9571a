"""Sufficient statistics of groups with more rows than features, computed in one read.

For such a group the pair (F_jᵀ W F_j, F_jᵀ W y_j) is smaller than its rows and is all that the
evidence needs of them: its rows are not read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import (
    EXACT_TERMS,
    GroupTerms,
    NoiseRule,
    StepResult,
    SweepOracle,
    TermsRequest,
)

__all__ = ["CompositeOracle", "StatisticsOracle"]


@dataclass
class StatisticsOracle(SweepOracle):
    """Sweeps over groups with known moments at unit noise; nothing is read.

    Attributes
    ----------
    gram : array of shape (J, k, k)
        F_jᵀ W F_j of each group.
    cross : array of shape (J, k, t)
        F_jᵀ W Y_j of each group.
    yy : array of shape (J,)
        tr Y_jᵀ W Y_j of each group.
    group_weight : array of shape (J,)
        Sum of the weights of each group.
    """

    gram: Array
    cross: Array
    yy: Array
    group_weight: Array

    def __post_init__(self) -> None:
        self.n_targets = self.cross.shape[2]

    def moments(self, log_noise: Array, redundancy: float) -> Moments:
        precision = np.exp(-log_noise) / redundancy
        return Moments(
            np.tensordot(precision, self.gram, 1),
            np.tensordot(precision, self.cross, 1),
            float(precision @ self.yy),
        )

    def terms(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        *,
        leave_out: bool,
        request: TermsRequest = EXACT_TERMS,
    ) -> GroupTerms:
        """Exact leverages whatever the request: they cost no read."""
        precision = np.exp(-log_noise) / redundancy
        V = post.T.T @ post.T
        mu = post.mu if request.mean is None else request.mean
        fitted = self.gram @ mu
        R = self.yy - 2 * np.einsum("jkt,kt->j", self.cross, mu)
        R += np.einsum("jkt,kt->j", fitted, mu)
        gradients = None
        if request.gradient_groups is not None:
            gradients = (precision[:, None, None] * (self.cross - fitted))[request.gradient_groups]
        gamma = np.einsum("jkl,kl->j", self.gram, V)
        S = None
        if leave_out:
            S = np.array(
                [
                    self._leave_out(post.T, p * G, p * (b - f))
                    for p, G, b, f in zip(precision, self.gram, self.cross, fitted, strict=True)
                ]
            )
        return GroupTerms(np.maximum(precision * R, 0.0), precision * gamma, S, gradients)

    @staticmethod
    def _leave_out(T: Array, gram: Array, gradient: Array) -> float:
        """gᵀ (I − M)⁻¹ g with M = T G_j Tᵀ and g = T F_jᵀ P_j r_j: Σ p r (q − r) of the group."""
        g = T @ gradient
        M = T @ gram @ T.T
        return float(np.vdot(g, np.linalg.solve(np.eye(len(M)) - M, g)))


class CompositeOracle(SweepOracle):
    """Several oracles as one, each for some of the groups."""

    def __init__(self, parts: list[tuple[Index, SweepOracle]], n_groups: int) -> None:
        self.parts = parts
        self.n_targets = parts[0][1].n_targets
        self.n_groups = n_groups
        self.group_weight = self._gather([part.group_weight for _, part in parts])

    def _gather(self, values: list[Any]) -> Any:
        whole = np.zeros((self.n_groups, *values[0].shape[1:]))
        for (groups, _), value in zip(self.parts, values, strict=True):
            whole[groups] = value
        return whole

    @property
    def reads(self) -> float:  # type: ignore[override]
        return sum(part.reads for _, part in self.parts)

    def moments(self, log_noise: Array, redundancy: float) -> Moments:
        first, *rest = (part.moments(log_noise[groups], redundancy) for groups, part in self.parts)
        return sum(rest, start=first)

    def terms(
        self,
        post: Posterior,
        log_noise: Array,
        redundancy: float,
        *,
        leave_out: bool,
        request: TermsRequest = EXACT_TERMS,
    ) -> GroupTerms:
        return self._join(
            [
                part.terms(
                    post,
                    log_noise[groups],
                    redundancy,
                    leave_out=leave_out,
                    request=_select(request, groups),
                )
                for groups, part in self.parts
            ],
            request,
        )

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
        # ``current`` is not used: the moments of all parts cannot be split between them.
        results = [
            part.step(
                post,
                log_noise[groups],
                redundancy,
                rule,
                leave_out=leave_out,
                request=_select(request, groups),
            )
            for groups, part in self.parts
        ]
        first, *rest = (result.moments for result in results)
        return StepResult(
            self._join([result.terms for result in results], request),
            self._gather([result.log_noise for result in results]),
            sum(rest, start=first),
        )

    def _join(self, terms: list[GroupTerms], request: TermsRequest) -> GroupTerms:
        leave_out = [term.leave_out for term in terms if term.leave_out is not None]
        return GroupTerms(
            self._gather([term.residual for term in terms]),
            self._gather([term.leverage for term in terms]),
            self._gather(leave_out) if leave_out else None,
            self._join_gradients([term.weight_gradients for term in terms], request),
        )

    def _join_gradients(
        self, gradients: list[Features | None], request: TermsRequest
    ) -> Features | None:
        wanted = request.gradient_groups
        known = [each for each in gradients if each is not None]
        if wanted is None or not known:
            return None
        position = np.cumsum(wanted) - 1
        joined = np.zeros((int(wanted.sum()), *known[0].shape[1:]))
        for (groups, _), part in zip(self.parts, known, strict=True):
            joined[position[groups[wanted[groups]]]] = part
        return joined


def _select(request: TermsRequest, groups: Index) -> TermsRequest:
    """The request for some of the groups, without predictions, which no statistics have."""
    wanted, held = request.gradient_groups, request.held_noise
    return replace(
        request,
        gradient_groups=None if wanted is None else wanted[groups],
        left_out=False,
        held_noise=None if held is None else held[groups],
    )
