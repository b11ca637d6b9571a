"""Groups with more rows than features, kept as sufficient statistics after one read.

For such a group the pair (F_jᵀ W F_j, F_jᵀ W y_j) is smaller than its rows and holds all the
evidence ever asks of them: no row of it is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import EXACTLY, GroupTerms, Look, NoiseRule, StepResult, SweepOracle

__all__ = ["CompositeOracle", "StatisticsOracle"]


@dataclass
class StatisticsOracle(SweepOracle):
    """Sweeps over groups that are known by their moments at unit noise; reads nothing.

    gram : (J, k, k) F_jᵀ W F_j;  cross : (J, k, t) F_jᵀ W Y_j;  yy : (J,) tr Y_jᵀ W Y_j
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
        look: Look = EXACTLY,
    ) -> GroupTerms:
        """Leverages are always exact here: they cost no read."""
        precision = np.exp(-log_noise) / redundancy
        V = post.T.T @ post.T
        mu = post.mu if look.mean is None else look.mean
        fitted = self.gram @ mu
        R = self.yy - 2 * np.einsum("jkt,kt->j", self.cross, mu)
        R += np.einsum("jkt,kt->j", fitted, mu)
        pull = None
        if look.pull is not None:
            pull = (precision[:, None, None] * (self.cross - fitted))[look.pull]
        gamma = np.einsum("jkl,kl->j", self.gram, V)
        S = None
        if leave_out:
            S = np.array(
                [
                    self._leave_out(post.T, p * G, p * (b - f))
                    for p, G, b, f in zip(precision, self.gram, self.cross, fitted, strict=True)
                ]
            )
        return GroupTerms(np.maximum(precision * R, 0.0), precision * gamma, S, pull)

    @staticmethod
    def _leave_out(T: Array, gram: Array, pull: Array) -> float:
        """gᵀ (I − M)⁻¹ g with M = T G_j Tᵀ and g = T F_jᵀ P_j r_j: Σ p r (q − r) of the group."""
        g = T @ pull
        M = T @ gram @ T.T
        return float(np.vdot(g, np.linalg.solve(np.eye(len(M)) - M, g)))


class CompositeOracle(SweepOracle):
    """Several oracles, each for some of the groups, answering as one."""

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
        look: Look = EXACTLY,
    ) -> GroupTerms:
        return self._join(
            [
                part.terms(
                    post,
                    log_noise[groups],
                    redundancy,
                    leave_out=leave_out,
                    look=_part_of(look, groups),
                )
                for groups, part in self.parts
            ],
            look,
        )

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
        # Moments of all parts together cannot be shared out, so ``known`` is of no use here.
        found = [
            part.step(
                post,
                log_noise[groups],
                redundancy,
                rule,
                leave_out=leave_out,
                look=_part_of(look, groups),
            )
            for groups, part in self.parts
        ]
        first, *rest = (result.moments for result in found)
        return StepResult(
            self._join([result.terms for result in found], look),
            self._gather([result.log_noise for result in found]),
            sum(rest, start=first),
        )

    def _join(self, terms: list[GroupTerms], look: Look) -> GroupTerms:
        leave_out = [term.leave_out for term in terms if term.leave_out is not None]
        return GroupTerms(
            self._gather([term.residual for term in terms]),
            self._gather([term.leverage for term in terms]),
            self._gather(leave_out) if leave_out else None,
            self._join_pull([term.pull for term in terms if term.pull is not None], look),
        )

    def _join_pull(self, pulls: list[Features], look: Look) -> Features | None:
        if look.pull is None:
            return None
        place = np.cumsum(look.pull) - 1
        joined = np.zeros((int(look.pull.sum()), *pulls[0].shape[1:]))
        for (groups, _), pull in zip(self.parts, pulls, strict=True):
            joined[place[groups[look.pull[groups]]]] = pull
        return joined


def _part_of(look: Look, groups: Index) -> Look:
    """What to ask of some of the groups."""
    return look if look.pull is None else replace(look, pull=look.pull[groups])
