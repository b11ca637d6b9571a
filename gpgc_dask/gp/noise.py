"""Noise models: how many noise variances there are, and which group uses which.

A noise model is a map from the J groups to its parameters ln ε². A new one is a function that
returns this map, in a module of its own, and one line in :data:`NOISE_MODELS`; all solvers and
oracles work with it. Groups whose labels are trusted have no parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Mask, group_sums
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.registry import Registry

__all__ = [
    "NOISE_MODELS",
    "FirstNoiseRule",
    "FixedPointRule",
    "NoiseModel",
    "PooledRule",
    "groupwise",
    "homoscedastic",
    "tied",
]


EM_LEVERAGE_SHARE = 0.8
"""Share Γⱼ/Wⱼ above which a group takes an EM step: MacKay's denominator is too close to 0."""


MIN_NOISE_SHARE = 0.3
"""Smallest share of the residuals of a group in its first noise."""


class NoiseModel:
    """Which noise parameter each group uses.

    Parameters
    ----------
    index : array of int of shape (J,)
        Parameter of each group, numbered from 0 to M - 1 without gaps.
    trusted : bool array of shape (J,), optional
        Groups whose labels are known to be right. They have no parameter: their noise is that of
        good groups, see :meth:`good_noise`. With one variance for all groups they have it too; if
        all groups are trusted, they share one parameter.

    Attributes
    ----------
    index : array of int of shape (J,)
        Parameter of each group; −1 for trusted groups.
    held : bool array of shape (J,) or None
        The trusted groups; None if every group has a parameter.
    n_parameters : int
        M, the number of noise variances.
    """

    def __init__(self, index: Index, trusted: Mask | None = None) -> None:
        self.index = np.asarray(index, dtype=np.intp)
        self.held: Mask | None = None
        if trusted is not None and trusted.all():
            self.index = np.zeros_like(self.index)
        elif trusted is not None and trusted.any() and self.index.any():
            self.held = trusted
            numbers = np.unique(self.index[~trusted], return_inverse=True)[1]
            self.index = np.full(trusted.size, -1, dtype=np.intp)
            self.index[~trusted] = numbers
        self.n_parameters = int(self.index.max()) + 1

    @property
    def separable(self) -> bool:
        """Whether every group has a parameter of its own: its step needs no other group."""
        n_held = 0 if self.held is None else np.count_nonzero(self.held)
        return self.n_parameters == self.index.size - n_held

    @property
    def pooled(self) -> bool:
        """Whether all groups share one parameter."""
        return self.n_parameters == 1 and self.held is None

    def values(self, per_group: Array) -> Array:
        """(M,) values of the parameters, from (J,) values that agree within each parameter."""
        values = np.empty(self.n_parameters)
        if self.held is None:
            values[self.index] = per_group
        else:
            values[self.index[~self.held]] = per_group[~self.held]
        return values

    def sums(self, per_group: Array) -> Array:
        """(M,) sums over the groups that share a parameter."""
        if self.held is None:
            return group_sums(self.index, per_group, self.n_parameters)
        return group_sums(self.index[~self.held], per_group[~self.held], self.n_parameters)

    def per_group(self, values: Array, before: Array | None = None) -> Array:
        """(J,) each group's parameter, the inverse of :meth:`values`.

        Trusted groups keep their values of ``before`` (J,).
        """
        if self.held is None or before is None:
            return values[self.index]
        return np.where(self.held, before, values[self.index])

    def good_noise(self, log_noise: Array) -> float:
        """The noise of good groups: median ln ε² of the more reliable half of the others.

        Parameters
        ----------
        log_noise : array of shape (J,)
            ln ε² of each group; those of trusted groups do not count.
        """
        others = np.sort(log_noise if self.held is None else log_noise[~self.held])
        return float(np.median(others[: -(-others.size // 2)]))

    def held_noise(self, log_noise: Array) -> Array | None:
        """(J,) ln ε² of the trusted groups, NaN for the others; None if no group is trusted."""
        return None if self.held is None else np.where(self.held, log_noise, np.nan)


def homoscedastic(n_groups: int, owners: Index | None = None) -> Index:
    """One noise variance for all groups: the plain GP."""
    return np.zeros(n_groups, dtype=np.intp)


def groupwise(n_groups: int, owners: Index | None = None) -> Index:
    """One noise variance per group: GP-GC."""
    return np.arange(n_groups)


def tied(n_groups: int, owners: Index | None = None) -> Index:
    """One noise variance per owner of groups: per annotator over images, per camera over frames.

    Parameters
    ----------
    n_groups : int
        J, the number of groups.
    owners : array of int of shape (J,)
        Owner of each group, numbered from 0 to M - 1.
    """
    if owners is None:
        raise InputError("a tied noise needs the owner of each group: pass noise_groups")
    return owners


NOISE_MODELS: Registry[Callable[[int, Index | None], Index]] = Registry(
    "noise model",
    {
        "homoscedastic": "gpgc_dask.gp.noise:homoscedastic",
        "groupwise": "gpgc_dask.gp.noise:groupwise",
        "tied": "gpgc_dask.gp.noise:tied",
    },
    "gpgc_dask.noise_models",
)
"""{name: function of (number of groups, owner of each group or None) that returns the (J,) index
of a :class:`NoiseModel`}."""


@dataclass(frozen=True)
class FirstNoiseRule:
    """The first noise of groups, from unit noise and a posterior computed without them.

    The residuals contain the noise and the variance of the posterior, E R = t (ε² W + Γ). So
    ε² ← (R/t − Γ) / W, but at least MIN_NOISE_SHARE of R/t/W. All weights are W/c.
    """

    n_targets: int
    lower: float
    upper: float
    redundancy: float

    def __call__(self, log_noise: Array, weight: Array, residual: Array, leverage: Array) -> Array:
        """New ln ε² of some groups from W (before 1/c), R and Γ at ε = 1."""
        weight = weight / self.redundancy
        residual = residual / self.n_targets
        noise = np.maximum(residual - leverage, MIN_NOISE_SHARE * residual)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.log(noise / weight)
        return np.clip(np.where(weight > 0, new, log_noise), self.lower, self.upper)


@dataclass(frozen=True)
class FixedPointRule:
    """The noise step of one sweep, which runs in the tasks that read the data.

    MacKay: ε² ← ε² R / (t (W − Γ)); EM: ε² ← ε² (R/t + Γ) / W. MacKay's step is faster, the EM
    step is monotone and used for groups whose leverage is nearly as large as their weight. All
    weights are W/c.

    Attributes
    ----------
    n_targets : int
        Number of target columns t.
    lower, upper : float
        Bounds of ln ε².
    redundancy : float, default 1.0
        Redundancy c.
    monotone : bool, default False
        Whether all groups take the EM step.
    min_gain : float, default 0.0
        Groups that would gain fewer nats than this keep their noise exactly.
    """

    n_targets: int
    lower: float
    upper: float
    redundancy: float = 1.0
    monotone: bool = False
    min_gain: float = 0.0

    def __call__(self, log_noise: Array, weight: Array, residual: Array, leverage: Array) -> Array:
        """New ln ε² of some groups from their ln ε², W (before 1/c), R and Γ."""
        weight = weight / self.redundancy
        residual = residual / self.n_targets
        em = self.monotone | (leverage > EM_LEVERAGE_SHARE * weight)
        numerator = np.where(em, residual + leverage, residual)
        denominator = np.where(em, weight, weight - leverage)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.log(numerator / denominator)
        # A group without weight has no information about its noise, which stays as it is.
        step = np.where(weight > 0, step, 0.0)
        step = np.where(0.25 * self.n_targets * weight * step**2 < self.min_gain, 0.0, step)
        return np.clip(log_noise + step, self.lower, self.upper)


@dataclass(frozen=True)
class PooledRule:
    """A rule for noise parameters that several groups share.

    The terms of the groups are summed over each parameter before ``rule`` is applied, so the rule
    needs all groups at once: it cannot run next to the data.
    """

    rule: FixedPointRule
    noise: NoiseModel

    def __call__(self, log_noise: Array, weight: Array, residual: Array, leverage: Array) -> Array:
        """New ln ε² (J,) of all groups from their ln ε², W (before 1/c), R and Γ."""
        sums = (self.noise.sums(each) for each in (weight, residual, leverage))
        new = self.rule(self.noise.values(log_noise), *sums)
        return self.noise.per_group(new, log_noise)
