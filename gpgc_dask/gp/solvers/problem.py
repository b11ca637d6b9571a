"""The optimisation problem, and its objective and gradient at one point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.gp import evidence
from gpgc_dask.gp.evidence import FeatureTerms, Moments, Posterior
from gpgc_dask.gp.noise import NoiseModel
from gpgc_dask.gp.oracle.base import GroupTerms, SweepOracle

__all__ = ["Hyperparameters", "Point", "Problem"]

SCALE_RANGE = (1e-10, 1e8)
"""Bounds of σ²_g times the mean squared norm of a row's features in g: the prior variance of f."""

MIN_REDUNDANCY = 0.5
"""Smallest c. It would be smaller only if rows of a group differed more than by chance."""


@dataclass(frozen=True)
class Hyperparameters:
    """The parameters that maximise the evidence.

    Attributes
    ----------
    log_noise : array of shape (J,)
        ln ε² of each group.
    log_scales : array of shape (n_g,)
        ln σ² of each feature group.
    redundancy : float, default 1.0
        Redundancy c.
    """

    log_noise: Array
    log_scales: Array
    redundancy: float = 1.0


@dataclass(frozen=True)
class Point:
    """Hyperparameters with the moments of the data there, and what follows from both.

    Attributes
    ----------
    params : Hyperparameters
        The hyperparameters.
    moments : Moments
        Moments of the data at their noise and redundancy.
    post : Posterior
        Posterior of the weights.
    features : FeatureTerms
        Sums over feature groups.
    value : float
        −ln p_w up to a constant.
    """

    params: Hyperparameters
    moments: Moments
    post: Posterior
    features: FeatureTerms
    value: float


@dataclass(frozen=True)
class Problem:
    """The evidence of one dataset under one noise model, as a function of the hyperparameters.

    Attributes
    ----------
    oracle : SweepOracle
        Sweeps over the data.
    noise : NoiseModel
        Which noise parameter each group uses.
    feature_index : array of int of shape (k,)
        Feature group of each column.
    feature_energy : array of shape (n_g,)
        Weighted mean over rows of ‖φ_g‖².
    noise_bounds : tuple of float
        Lower and upper bound of ln ε².
    redundancy : float or None
        Redundancy c. None: it is estimated.
    tol : float
        Predicted gain in nats at which the fit is done, see
        :func:`~gpgc_dask.gp.solvers.convergence.gain_tolerance`.
    max_iter : int
        Maximum number of iterations.
    precision_error : callable
        Error of the evidence in nats that rounding in the products causes at a point.
    held_moments : Moments or None
        Moments of the trusted groups at unit noise and c = 1; None if there are none.
    """

    oracle: SweepOracle
    noise: NoiseModel
    feature_index: Index
    feature_energy: Array
    noise_bounds: tuple[float, float]
    redundancy: float | None
    tol: float
    max_iter: int
    precision_error: Callable[[Point], float]
    held_moments: Moments | None = None

    @property
    def n_targets(self) -> int:
        """Number of target columns t."""
        return self.oracle.n_targets

    @property
    def n_groups(self) -> int:
        """Number of groups J."""
        return self.oracle.group_weight.size

    @property
    def n_features(self) -> int:
        """Number of features k."""
        return self.feature_index.size

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows."""
        return float(self.oracle.group_weight.sum())

    @property
    def scale_bounds(self) -> tuple[Array, Array]:
        """(n_g,) lower and upper bounds of ln σ²."""
        energy = np.where(self.feature_energy > 0, self.feature_energy, 1.0)
        return np.log(SCALE_RANGE[0] / energy), np.log(SCALE_RANGE[1] / energy)

    @property
    def estimates_redundancy(self) -> bool:
        """Whether the redundancy is estimated."""
        return self.redundancy is None

    @property
    def redundancy_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of c."""
        rows_per_group = self.total_weight / self.n_groups
        return MIN_REDUNDANCY, max(4.0 * rows_per_group, 1.0)

    def group_weight(self, redundancy: float) -> Array:
        """(J,) Wⱼ/c of each group."""
        return self.oracle.group_weight / redundancy

    def evaluate(self, params: Hyperparameters, moments: Moments) -> Point:
        """Objective and posterior at hyperparameters whose moments are known."""
        scales = np.exp(0.5 * params.log_scales)[self.feature_index]
        post = evidence.posterior(moments, scales)
        value = evidence.objective(
            moments, post, self.group_weight(params.redundancy), params.log_noise
        )
        features = evidence.feature_terms(moments, post, self.feature_index)
        return Point(params, moments, post, features, value)

    def with_redundancy(self, point: Point, redundancy: float) -> Point:
        """The point with the same noise and scales and another c: the moments are only scaled."""
        factor = point.params.redundancy / redundancy
        params = replace(point.params, redundancy=redundancy)
        return self.evaluate(params, point.moments.scale(factor))

    def with_held_noise(self, point: Point) -> Point:
        """The point with trusted groups at the noise of good groups there, without a read.

        They all have the same noise, so that their moments are only scaled.
        """
        held, own = self.noise.held, self.held_moments
        if held is None or own is None:
            return point
        before = float(point.params.log_noise[held][0])
        after = self.noise.good_noise(point.params.log_noise)
        if after == before:
            return point
        factor = (np.exp(-after) - np.exp(-before)) / point.params.redundancy
        log_noise = np.where(held, after, point.params.log_noise)
        moments = point.moments + own.scale(float(factor))
        return self.evaluate(replace(point.params, log_noise=log_noise), moments)

    def held_change(self, point: Point) -> float:
        """Distance of ln ε² of the trusted groups from that of good groups; 0 if none is."""
        if self.noise.held is None:
            return 0.0
        log_noise = point.params.log_noise
        return abs(self.noise.good_noise(log_noise) - float(log_noise[self.noise.held][0]))

    def log_evidence(self, point: Point) -> float:
        """ln p_w at a point."""
        weight = self.total_weight / point.params.redundancy
        return evidence.log_evidence(point.value, weight, self.n_targets)

    def fisher(self, redundancy: float) -> tuple[Array, Array]:
        """Approximate Fisher information of ln ε² (M,) and of ln σ² (n_g,)."""
        weight = self.noise.sums(self.group_weight(redundancy))
        sizes = np.bincount(self.feature_index).astype(np.float64)
        floor = 1e-3 * max(float(weight.mean()), 1e-300)
        return 0.5 * self.n_targets * np.maximum(weight, floor), 0.5 * self.n_targets * sizes

    def gradient(self, point: Point, terms: GroupTerms | None) -> tuple[Array, Array]:
        """∂(−ln p_w)/∂ ln ε² (M,) per noise parameter and /∂ ln σ² (n_g,) per feature group.

        Without terms all groups are taken to share one noise parameter (M = 1), whose gradient
        follows from the moments.
        """
        t = self.n_targets
        scales = evidence.scale_gradient(point.features, t)
        weight = self.group_weight(point.params.redundancy)
        if terms is None:
            noise = evidence.noise_gradient(
                weight.sum(keepdims=True),
                np.array([point.features.residual]),
                np.array([point.features.leverage]),
                t,
            )
            return noise, scales
        noise = evidence.noise_gradient(weight, terms.residual, terms.leverage, t)
        return self.noise.sums(noise), scales
