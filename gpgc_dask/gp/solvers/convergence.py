"""When a fit is done: the distance of a point from the optimum, and the tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp import evidence
from gpgc_dask.gp.oracle.base import GroupTerms
from gpgc_dask.gp.solvers.problem import Hyperparameters, Point, Problem

__all__ = [
    "Certificate",
    "PrecisionError",
    "bounded_ratio",
    "certify",
    "gain_tolerance",
    "held_tolerance",
    "is_converged",
    "is_worth_certifying",
    "scale_gain",
]

STRICT_ROWS, ROWS_PER_TOL = 10_000, 200
"""Up to STRICT_ROWS rows ``tol`` is in nats; every further ROWS_PER_TOL rows add ``tol`` nats."""

ROWS_PER_FEATURE = 100
"""With fewer rows per feature the curvature is smaller than the Fisher information, and a predicted
gain smaller than the true one: the tolerance is reduced in proportion."""

MOVE_TOLERANCE = 3e-3
"""Largest predicted change of any ln ε² at convergence if there are few groups."""

MANY_GROUPS = 1000
SHIFT_TOLERANCE = 1e-2
"""Largest predicted change of the confidence of any group if there are many groups."""

HELD_TOLERANCE = 1e-4
"""Largest distance of ln ε² of the trusted groups from that of good groups."""

HELD_ROWS_PER_TOL = 250
"""The evidence is not at an optimum in the noise of trusted groups, which follows that of others:
it changes in proportion to what that noise has still to move. Every HELD_ROWS_PER_TOL rows allow
``tol`` nats."""

MIN_HELD_TOL = 1e-6
"""Smallest ``tol`` for this: below, rounding decides."""

RATIO_TOLERANCE = 5e-3
"""Largest distance of ln(moment ratio) of the redundancy from 0."""

EXPECTED_RATIO_TOLERANCE = 0.03
"""The same before the last step: the step that follows brings the ratio within its tolerance."""

MAX_PRECISION_ERROR = 100.0
"""Largest error of the evidence from rounding, in units of the gain tolerance."""


@dataclass(frozen=True)
class Certificate:
    """How far a point is from the optimum, by the gradient projected onto the bounds.

    Attributes
    ----------
    projected_gradient : float
        Largest component, in units of the root of its Fisher information.
    gain : float
        ½ Σ of the squared components: the predicted gain of a Newton step in nats.
    shift : float
        Largest change of the confidence of a group (its rank by noise, 0 to 1) in that step.
    ratio : float or None
        Moment ratio of the redundancy, 1 at the solution. None if c is fixed.
    precision_error : float
        Error of the evidence in nats from rounding in the products.
    exact : bool
        Whether the gradient is exact, as opposed to estimated or expected.
    held_change : float
        Distance of ln ε² of the trusted groups from that of good groups.
    held_gradient : float
        Change of the evidence in nats per ln ε² of the trusted groups.
    held_move : float
        Predicted change of that ln ε², as the trusted groups follow the good groups.
    """

    projected_gradient: float
    gain: float
    shift: float
    ratio: float | None
    precision_error: float = 0.0
    exact: bool = True
    held_change: float = 0.0
    held_gradient: float = 0.0
    held_move: float = 0.0


class PrecisionError(Exception):
    """The arithmetic of the products is not precise enough at these hyperparameters."""

    def __init__(self, params: Hyperparameters) -> None:
        super().__init__("the products need float64")
        self.params = params


def gain_tolerance(problem: Problem) -> float:
    """Predicted gain in nats at which a fit is done."""
    rows = problem.total_weight / (problem.redundancy or 1.0)
    trust = min(1.0, rows / (ROWS_PER_FEATURE * problem.n_features))
    return problem.tol * max(1.0, trust * (rows - STRICT_ROWS) / ROWS_PER_TOL)


def held_tolerance(problem: Problem) -> float:
    """Predicted change of the evidence in nats by the trusted groups at which a fit is done."""
    rows = problem.total_weight / (problem.redundancy or 1.0)
    return max(problem.tol, MIN_HELD_TOL) * rows / HELD_ROWS_PER_TOL


def certify(
    problem: Problem,
    point: Point,
    terms: GroupTerms | None,
    ratio: float | None,
    *,
    exact: bool = True,
    error: float | None = None,
) -> Certificate:
    """Compute the certificate of a point.

    Parameters
    ----------
    problem : Problem
        The problem.
    point : Point
        The point.
    terms : GroupTerms or None
        Group terms at the point. None: one noise parameter for all groups.
    ratio : float or None
        Moment ratio of the redundancy. None if c is fixed.
    exact : bool, default True
        Whether the terms are exact.
    error : float, optional
        Precision error of the point, if it is known already.

    Raises
    ------
    PrecisionError
        If the arithmetic of the products is not precise enough.
    """
    error = problem.precision_error(point) if error is None else error
    if error > MAX_PRECISION_ERROR * gain_tolerance(problem):
        raise PrecisionError(point.params)
    noise, scales = problem.gradient(point, terms)
    fisher_noise, fisher_scales = problem.fisher(point.params.redundancy)
    log_noise = problem.noise.values(point.params.log_noise)
    if noise.size < log_noise.size:
        log_noise, fisher_noise = log_noise[:1], fisher_noise.sum(keepdims=True)
    noise = _project(noise, log_noise, *problem.noise_bounds)
    scales = _project(scales, point.params.log_scales, *problem.scale_bounds)
    fisher = np.concatenate([fisher_noise, fisher_scales])
    scaled = np.concatenate([noise, scales]) / np.sqrt(fisher)
    return Certificate(
        projected_gradient=float(np.abs(scaled).max()),
        gain=0.5 * float(scaled @ scaled),
        shift=_rank_shift(log_noise, noise / fisher_noise),
        ratio=bounded_ratio(problem, point.params.redundancy, ratio),
        precision_error=error,
        exact=exact,
        held_change=problem.held_change(point),
        held_gradient=_held_gradient(problem, point, terms),
        held_move=_held_move(problem, point, noise / fisher_noise),
    )


def scale_gain(problem: Problem, point: Point) -> float:
    """The part of the predicted gain, in nats, of the scales: it is known without a read."""
    gradient = evidence.scale_gradient(point.features, problem.n_targets)
    gradient = _project(gradient, point.params.log_scales, *problem.scale_bounds)
    _, fisher = problem.fisher(point.params.redundancy)
    return 0.5 * float(np.sum(gradient**2 / fisher))


def bounded_ratio(problem: Problem, redundancy: float, ratio: float | None) -> float | None:
    """The moment ratio, or 1 if it would only push c beyond its bounds."""
    if ratio is None:
        return None
    lower, upper = problem.redundancy_bounds
    at_bound = (redundancy <= lower and ratio < 1) or (redundancy >= upper and ratio > 1)
    return 1.0 if at_bound else ratio


def is_converged(problem: Problem, certificate: Certificate) -> bool:
    """Whether hardly any gain is left, the ranking is stable and the redundancy is solved for."""
    tolerance = gain_tolerance(problem)
    return certificate.exact and _is_within(problem, certificate, tolerance, RATIO_TOLERANCE)


def is_worth_certifying(problem: Problem, expected: Certificate, share: float) -> bool:
    """Whether an expected certificate is good enough for a read that computes the exact one.

    ``share`` is the share of the gain tolerance that the expected gain may have.
    """
    tolerance = share * gain_tolerance(problem)
    return _is_within(problem, expected, tolerance, EXPECTED_RATIO_TOLERANCE)


def _is_within(
    problem: Problem, certificate: Certificate, gain: float, ratio_tolerance: float
) -> bool:
    ratio = certificate.ratio
    if ratio is not None and not (ratio > 0 and abs(np.log(ratio)) <= ratio_tolerance):
        return False
    held_gain = certificate.held_gradient * certificate.held_move
    if certificate.held_change > HELD_TOLERANCE or held_gain > held_tolerance(problem):
        return False
    return certificate.gain <= gain and certificate.shift <= SHIFT_TOLERANCE


def _held_gradient(problem: Problem, point: Point, terms: GroupTerms | None) -> float:
    held, c = problem.noise.held, point.params.redundancy
    if held is None or terms is None:
        return 0.0
    gradient = evidence.noise_gradient(
        problem.group_weight(c), terms.residual, terms.leverage, problem.n_targets
    )
    return abs(float(gradient[held].sum()))


def _held_move(problem: Problem, point: Point, move: Array) -> float:
    """Distance of the trusted groups from the good groups after the parameters moved by −move."""
    log_noise, held = point.params.log_noise, problem.noise.held
    if held is None:
        return 0.0
    moved = problem.noise.per_group(problem.noise.values(log_noise) - move, log_noise)
    return abs(problem.noise.good_noise(moved) - float(log_noise[held][0]))


def _rank_shift(log_noise: Array, move: Array) -> float:
    """Largest change of the rank of a parameter, as a share of all, if it moved alone.

    Moves of up to MOVE_TOLERANCE do not count, so that ties are not broken. With few parameters
    ranks are far apart, so that every larger move counts in full.
    """
    moves = np.abs(move) > MOVE_TOLERANCE
    if not moves.any():
        return 0.0
    if log_noise.size < MANY_GROUPS:
        return 1.0
    order = np.sort(log_noise)
    old = np.searchsorted(order, log_noise[moves])
    new = np.searchsorted(order, (log_noise - move)[moves])
    return float(np.abs(new - old).max()) / log_noise.size


def _project(gradient: Array, x: Array, lower: Any, upper: Any) -> Array:
    """The gradient without components that only push beyond a bound."""
    blocked = ((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0))
    return np.where(blocked, 0.0, gradient)
