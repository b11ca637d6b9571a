"""Noise models: how many variances there are, which group uses which, and how they step.

A model maps its parameters (ln ε², one each) to the J groups and sums group terms back onto
the parameters. Another model, say one variance per annotator over groups that are images,
is one more class with its own ``index``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpgc_dask.core.arrays import Array, Index

__all__ = ["FixedPointRule", "Groupwise", "Homoscedastic", "NoiseModel", "OpeningRule"]


EM_LEVERAGE_SHARE = 0.8
"""Above this share Γⱼ/Wⱼ the MacKay denominator is not trusted and the group takes an EM step."""


OPENING_SHARE = 0.3
"""Share of a group's residuals that its first noise has at least."""


class NoiseModel(Protocol):
    """Which noise parameter each of ``n_groups`` groups uses."""

    @property
    def separable(self) -> bool:
        """True where every group has a parameter of its own (a step needs no other group)."""

    def index(self, n_groups: int) -> Index:
        """(J,) parameter of each group."""


@dataclass(frozen=True)
class Homoscedastic:
    """One noise variance for all rows: the plain GP."""

    @property
    def separable(self) -> bool:
        return False

    def index(self, n_groups: int) -> Index:
        return np.zeros(n_groups, dtype=np.intp)


@dataclass(frozen=True)
class Groupwise:
    """One noise variance a group: GP-GC."""

    @property
    def separable(self) -> bool:
        return True

    def index(self, n_groups: int) -> Index:
        return np.arange(n_groups)


@dataclass(frozen=True)
class OpeningRule:
    """A first noise for groups judged by a posterior that never saw them, at unit noise.

    Their residuals carry the noise and the posterior's own doubt: E R = t (ε² W + Γ), so
    ε² ← (R/t − Γ) / W, but no less than OPENING_SHARE of R/t/W. All weights are W/c.
    """

    n_targets: int
    lower: float
    upper: float
    redundancy: float

    def __call__(self, log_noise: Array, weight: Array, residual: Array, leverage: Array) -> Array:
        """New ln ε² of some groups from W (before 1/c), R and Γ at ε = 1."""
        weight = weight / self.redundancy
        residual = residual / self.n_targets
        noise = np.maximum(residual - leverage, OPENING_SHARE * residual)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.log(noise / weight)
        return np.clip(np.where(weight > 0, new, log_noise), self.lower, self.upper)


@dataclass(frozen=True)
class FixedPointRule:
    """The noise step of one sweep, cheap enough to run beside the data.

    MacKay: ε² ← ε² R / (t (W − Γ)); EM: ε² ← ε² (R/t + Γ) / W. MacKay is the faster, EM is
    monotone; a group whose leverage nearly uses up its weight takes EM. All weights are W/c.
    """

    n_targets: int
    lower: float
    upper: float
    redundancy: float = 1.0
    monotone: bool = False
    still: float = 0.0
    """Groups that a step would win fewer nats than this stay exactly where they are."""

    def __call__(self, log_noise: Array, weight: Array, residual: Array, leverage: Array) -> Array:
        """New ln ε² of some groups from their ln ε², W (before 1/c), R and Γ."""
        weight = weight / self.redundancy
        residual = residual / self.n_targets
        em = self.monotone | (leverage > EM_LEVERAGE_SHARE * weight)
        numerator = np.where(em, residual + leverage, residual)
        denominator = np.where(em, weight, weight - leverage)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.log(numerator / denominator)
        # A group that carries no weight tells nothing about its noise: it stays where it is.
        step = np.where(weight > 0, step, 0.0)
        step = np.where(0.25 * self.n_targets * weight * step**2 < self.still, 0.0, step)
        return np.clip(log_noise + step, self.lower, self.upper)
