"""What is optimised, and what is known at one point of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.gp import evidence
from gpgc_dask.gp.evidence import FeatureTerms, Moments, Posterior
from gpgc_dask.gp.noise import NoiseModel
from gpgc_dask.gp.oracle.base import GroupTerms, SweepOracle

__all__ = ["Certificate", "Point", "PrecisionError", "Problem", "State", "probe_directions"]


SCALE_RANGE = (1e-10, 1e8)
"""Bounds of σ²_g times the mean squared norm of a row's features in g: the prior variance of f."""

PRECISION_SHARE = 100.0
"""Error of the evidence from the products, in units of the gain tolerance, that is let pass."""

MIN_REDUNDANCY = 0.5
"""Smallest c: rows that oppose each other more than chance would make it smaller still."""

STRICT_ROWS, ROWS_PER_TOL = 10_000, 200
"""Up to the first ``tol`` is in nats; rows beyond add as much for each of the second."""

ROWS_PER_FEATURE = 100
"""With fewer rows for each feature the curvature is less than the Fisher information says, and a
predicted gain less than the true one: the tolerance is as much smaller."""

PROBES = 32
"""Random directions that estimate the leverages while they need not be exact."""

MIN_FEATURES_PER_PROBE = 4
"""With fewer features than this for each probe, exact leverages cost no more."""

MAX_PROBED_LEVERAGE = 0.3
"""Share of the weight that leverages may use up for an estimate to do."""

PROBE_ERROR = 0.06
"""Typical relative error of a group's leverage by so many probes."""

PROBE_MARGIN = 10.0
"""How much more than the probes' error costs a step must be expected to win."""


READY_RATIO = 0.03
"""How near 1, in logs, the redundancy's ratio must have been for its next step to be the last."""


@dataclass(frozen=True)
class State:
    """The hyperparameters: ln ε² (J,), ln σ² (n_g,) and the redundancy c."""

    log_noise: Array
    log_scales: Array
    redundancy: float = 1.0


@dataclass(frozen=True)
class Point:
    """A state with what one read of the data told about it."""

    state: State
    moments: Moments
    post: Posterior
    features: FeatureTerms
    value: float


@dataclass(frozen=True)
class Certificate:
    """How far a point is from the optimum, judged by the projected gradient.

    projected_gradient : largest component, each in units of its Fisher information's root
    gain : ½ Σ of their squares, the nats a Newton step is expected to win
    shift : largest change of a group's confidence (its rank by noise, 0..1) in that step
    ratio : the redundancy's moment equation, 1 where c is right; None where c is fixed
    precision_error : nats that the arithmetic of the products costs the evidence
    exact : whether the gradient is exact, not estimated or expected
    """

    projected_gradient: float
    gain: float
    shift: float
    ratio: float | None
    precision_error: float = 0.0
    exact: bool = True


class PrecisionError(Exception):
    """The arithmetic of the products is not good enough at this state."""

    def __init__(self, state: State) -> None:
        super().__init__("the products need float64")
        self.state = state


@dataclass(frozen=True)
class Problem:
    """The evidence of one data set under one noise model.

    Attributes
    ----------
    feature_index : (k,) feature group of each column
    feature_energy : (n_g,) weighted mean over rows of ‖φ_g‖²
    noise_bounds : ln ε² lower and upper
    redundancy : c, or None to solve for it
    tol : predicted gain in nats at which the fit is done (see ROWS_PER_TOL)
    precision_error : nats that the products' arithmetic costs the evidence at a point
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

    @property
    def n_targets(self) -> int:
        return self.oracle.n_targets

    @property
    def n_groups(self) -> int:
        return self.oracle.group_weight.size

    @property
    def total_weight(self) -> float:
        return float(self.oracle.group_weight.sum())

    @property
    def scale_bounds(self) -> tuple[Array, Array]:
        energy = np.where(self.feature_energy > 0, self.feature_energy, 1.0)
        return np.log(SCALE_RANGE[0] / energy), np.log(SCALE_RANGE[1] / energy)

    @property
    def solves_redundancy(self) -> bool:
        return self.redundancy is None

    @property
    def redundancy_bounds(self) -> tuple[float, float]:
        rows_a_group = self.total_weight / self.n_groups
        return MIN_REDUNDANCY, max(4.0 * rows_a_group, 1.0)

    @property
    def gain_tolerance(self) -> float:
        rows = self.total_weight / (self.redundancy or 1.0)
        trust = min(1.0, rows / (ROWS_PER_FEATURE * self.feature_index.size))
        return self.tol * max(1.0, trust * (rows - STRICT_ROWS) / ROWS_PER_TOL)

    def group_weight(self, redundancy: float) -> Array:
        return self.oracle.group_weight / redundancy

    def evaluate(self, state: State, moments: Moments) -> Point:
        """Objective and posterior at a state whose moments are known."""
        scales = np.exp(0.5 * state.log_scales)[self.feature_index]
        post = evidence.posterior(moments, scales)
        value = evidence.objective(
            moments, post, self.group_weight(state.redundancy), state.log_noise
        )
        features = evidence.feature_terms(moments, post, self.feature_index)
        return Point(state, moments, post, features, value)

    def with_redundancy(self, point: Point, redundancy: float) -> Point:
        """The same noise and scales under another c: the moments only scale."""
        factor = point.state.redundancy / redundancy
        state = replace(point.state, redundancy=redundancy)
        return self.evaluate(state, point.moments.scale(factor))

    def log_evidence(self, point: Point) -> float:
        weight = self.total_weight / point.state.redundancy
        return evidence.log_evidence(point.value, weight, self.n_targets)

    def fisher(self, redundancy: float) -> tuple[Array, Array]:
        """Fisher information of the noise parameters' and the scales' logs, near enough."""
        weight = self.noise.sums(self.group_weight(redundancy))
        sizes = np.bincount(self.feature_index).astype(np.float64)
        floor = 1e-3 * max(float(weight.mean()), 1e-300)
        return 0.5 * self.n_targets * np.maximum(weight, floor), 0.5 * self.n_targets * sizes

    def gradient(self, point: Point, terms: GroupTerms | None) -> tuple[Array, Array]:
        """∂(−ln p)/∂ ln ε² per noise parameter and /∂ ln σ² per feature group.

        A single noise parameter needs no group terms: its gradient follows from the moments.
        Without terms, groups that all have the pooled noise are taken for one.
        """
        t = self.n_targets
        scales = evidence.scale_gradient(point.features, t)
        weight = self.group_weight(point.state.redundancy)
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

    def certify(
        self,
        point: Point,
        terms: GroupTerms | None,
        ratio: float | None,
        *,
        exact: bool = True,
        error: float | None = None,
    ) -> Certificate:
        """Judge a point by the gradient projected onto the bounds.

        ``error`` is its precision error where that is known already.
        Raises :class:`PrecisionError` where the products' arithmetic is not good enough for it.
        """
        error = self.precision_error(point) if error is None else error
        if error > PRECISION_SHARE * self.gain_tolerance:
            raise PrecisionError(point.state)
        noise, scales = self.gradient(point, terms)
        fisher_noise, fisher_scales = self.fisher(point.state.redundancy)
        log_noise = self.noise.values(point.state.log_noise)
        if noise.size < log_noise.size:
            log_noise, fisher_noise = log_noise[:1], fisher_noise.sum(keepdims=True)
        lower, upper = self.scale_bounds
        noise = _project(noise, log_noise, *self.noise_bounds)
        move = noise / fisher_noise
        scales = _project(scales, point.state.log_scales, lower, upper)
        fisher = np.concatenate([fisher_noise, fisher_scales])
        gradient = np.concatenate([noise, scales])
        scaled = gradient / np.sqrt(fisher)
        return Certificate(
            projected_gradient=float(np.abs(scaled).max()),
            gain=0.5 * float(scaled @ scaled),
            shift=_rank_shift(log_noise, move),
            ratio=self.projected_ratio(point.state.redundancy, ratio),
            precision_error=error,
            exact=exact,
        )

    def projected_ratio(self, redundancy: float, ratio: float | None) -> float | None:
        """A ratio that only pushes c against its bound is as good as 1."""
        lower, upper = self.redundancy_bounds
        if (
            ratio is None
            or (redundancy <= lower and ratio < 1)
            or (redundancy >= upper and ratio > 1)
        ):
            return None if ratio is None else 1.0
        return ratio

    def is_converged(self, certificate: Certificate) -> bool:
        """Little is left to win, the ranking stands still, and the redundancy is right."""
        settled = self._is_settled(certificate, self.gain_tolerance, RATIO_TOLERANCE)
        return certificate.exact and settled

    def is_promising(self, expected: Certificate, doubt: float) -> bool:
        """Whether a point is worth a read that certifies it."""
        return self._is_settled(expected, doubt * self.gain_tolerance, READY_RATIO)

    def _is_settled(self, certificate: Certificate, gain: float, ratio_tolerance: float) -> bool:
        ratio = certificate.ratio
        if ratio is not None and not (ratio > 0 and abs(np.log(ratio)) <= ratio_tolerance):
            return False
        return certificate.gain <= gain and certificate.shift <= SHIFT_TOLERANCE

    def directions(self, point: Point, gain: float) -> Array | None:
        """(k, m) random z ~ N(0, V)/√m; None where leverages had better be exact.

        ``gain`` is what the step is expected to win. The directions are scaled so that they give
        the sum of all leverages, which is known, exactly.
        """
        k = self.feature_index.size
        weight = float(self.group_weight(point.state.redundancy).sum())
        share = point.features.leverage / weight
        # An error of ln ε²ⱼ costs ¼ Wⱼ times its square.
        cost = 0.25 * weight * (PROBE_ERROR * share) ** 2
        if (
            k < MIN_FEATURES_PER_PROBE * PROBES
            or share > MAX_PROBED_LEVERAGE
            or gain < PROBE_MARGIN * cost
        ):
            return None
        z = probe_directions(point.post)
        total = float(np.vdot(z, point.moments.gram @ z))
        return z * np.sqrt(point.features.leverage / total) if total > 0 else z

    def gradient_groups(self) -> Mask:
        """(J,) the groups whose pull is asked for: all, or as many as there are features.

        So the pulls are no larger than the moments.
        """
        most = max(self.feature_index.size // self.n_targets, 1)
        number = np.arange(self.n_groups)
        step = max(-(-self.n_groups // most), 1)
        return number % step == 0


def probe_directions(post: Posterior) -> Array:
    """(k, m) random z ~ N(0, V)/√m, always the same for a posterior: fits can be repeated."""
    normal = np.random.default_rng(0).standard_normal((len(post.T), PROBES))
    return post.T.T @ normal / np.sqrt(PROBES)


MOVE_TOLERANCE = 3e-3
"""Largest predicted change of any ln ε² at convergence, where groups are few."""

MANY_GROUPS = 1000
SHIFT_TOLERANCE = 1e-2
"""Where groups are many: largest predicted change of any group's confidence."""

RATIO_TOLERANCE = 5e-3
"""How near the redundancy's moment ratio must come to 1, in logs."""


def _rank_shift(log_noise: Array, move: Array) -> float:
    """Largest change of a group's rank, as a share of all, if each moved by itself.

    A group that moves by no more than MOVE_TOLERANCE does not count: ties are not to be broken.
    Among few groups ranks are far apart, so that every larger move counts in full.
    """
    moves = np.abs(move) > MOVE_TOLERANCE
    if not moves.any():
        return 0.0
    if log_noise.size < MANY_GROUPS:
        return 1.0
    order = np.sort(log_noise)
    place = np.searchsorted(order, log_noise[moves])
    new = np.searchsorted(order, (log_noise - move)[moves])
    return float(np.abs(new - place).max()) / log_noise.size


def _project(gradient: Array, x: Array, lower: Any, upper: Any) -> Array:
    """Components that only push against a bound are no reason to go on."""
    blocked = ((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0))
    return np.where(blocked, 0.0, gradient)
