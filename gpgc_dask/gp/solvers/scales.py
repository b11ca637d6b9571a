"""Optimisation without a read: the feature scales and a common factor of all noise variances.

Multiplying every ε² by τ divides G and b by τ, so that one read of the data serves any number of
evaluations in (τ, σ). For a single noise variance that is the whole fit. An evaluation factorises a
k×k matrix, so Newton steps are used, of which few are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp import evidence
from gpgc_dask.gp.solvers.problem import Point, Problem

__all__ = ["optimise_scales"]

MAX_MOVE = 4.0
"""Largest change of a ln σ² or of ln τ in one step."""

MIN_CURVATURE = 1e-3
"""Smallest absolute value of a negative curvature, in units of the Fisher information."""

MIN_POSITIVE_CURVATURE = 1e-6
"""Smallest positive curvature. As a scale approaches 0 gradient and curvature vanish alike: steps
of one in ln σ² remain right, and shorter ones would take dozens of evaluations."""

REUSE = 0.03
"""The curvature is used for the next step too if the last step left less than this share."""

SHRINK = 0.2
"""Factor of a step that was too long."""

MAX_SHRINKS = 6


def optimise_scales(
    problem: Problem, point: Point, *, noise: bool, gain: float, max_evals: int = 60
) -> Point:
    """Optimise σ, and τ if ``noise``, with all ratios of noise variances fixed.

    Parameters
    ----------
    problem : Problem
        The problem.
    point : Point
        Where to start. The result is never worse.
    noise : bool
        Whether to optimise the common factor τ of the noise variances too.
    gain : float
        Predicted gain in nats at which to stop.
    max_evals : int, default 60
        Maximum number of evaluations.
    """
    lower, upper = _bounds(problem, point, noise=noise)
    log_scales = point.params.log_scales
    x = np.clip(np.append(log_scales, 0.0)[: lower.size], lower, upper)
    origin, best = point, point
    if not np.array_equal(x[: log_scales.size], log_scales):
        best = _evaluate(problem, origin, x)
    evals_left = max_evals
    curvature: Array | None = None
    last = np.inf
    while evals_left > 0:
        gradient = _gradient(problem, best, x.size)
        step, expected = _newton_step(problem, best, x, gradient, curvature, lower, upper)
        if curvature is None or (expected > gain and expected > REUSE * last):
            curvature = _curvature(problem, best, x.size)
            step, expected = _newton_step(problem, best, x, gradient, curvature, lower, upper)
        if expected <= gain:
            break
        last = expected
        for shorter in _shorter_steps(step):
            evals_left -= 1
            trial_x = np.clip(x + shorter, lower, upper)
            trial = _evaluate(problem, origin, trial_x)
            if trial.value < best.value:
                break
        else:
            break
        x, best = trial_x, trial
    return best


def _shorter_steps(step: Array) -> Iterator[Array]:
    """Steps to try until one lowers the objective.

    A step is first cut to the largest move in each variable. With a direction of negative curvature
    this may lead uphill in the others, so the last ones keep the direction.
    """
    cut = np.clip(step, -MAX_MOVE, MAX_MOVE)
    whole = step * (MAX_MOVE / max(float(np.abs(step).max()), MAX_MOVE))
    for start in (cut,) if np.array_equal(cut, whole) else (cut, whole):
        for n in range(MAX_SHRINKS):
            yield SHRINK**n * start


def _bounds(problem: Problem, point: Point, *, noise: bool) -> tuple[Array, Array]:
    """Bounds of ln σ², and of ln τ if ``noise``."""
    lower, upper = problem.scale_bounds
    if noise:
        low, high = problem.noise_bounds
        lower = np.append(lower, low - point.params.log_noise.min())
        upper = np.append(upper, high - point.params.log_noise.max())
    return lower, upper


def _evaluate(problem: Problem, origin: Point, x: Array) -> Point:
    """The point with these ln σ² (and ln τ), from the moments of the origin."""
    n = origin.params.log_scales.size
    shift = float(x[n]) if x.size > n else 0.0
    params = replace(origin.params, log_scales=x[:n], log_noise=origin.params.log_noise + shift)
    moments = origin.moments.scale(float(np.exp(-shift))) if shift else origin.moments
    return problem.evaluate(params, moments)


def _newton_step(
    problem: Problem,
    point: Point,
    x: Array,
    gradient: Array,
    curvature: Array | None,
    lower: Array,
    upper: Array,
) -> tuple[Array, float]:
    """The step within the bounds, and its expected gain in nats.

    Without a curvature the Fisher information is used, which shows whether any gain is left.
    """
    noise, scales = problem.fisher(point.params.redundancy)
    root = np.sqrt(np.append(scales, noise.sum())[: x.size])
    free = ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))
    step = np.zeros(x.size)
    if not free.any():
        return step, 0.0
    own = root[free]
    scaled = np.eye(own.size)
    if curvature is not None:
        scaled = curvature[np.ix_(free, free)] / np.multiply.outer(own, own)
    values, vectors = np.linalg.eigh(scaled)
    smallest = np.where(values > 0, MIN_POSITIVE_CURVATURE, MIN_CURVATURE)
    values = np.maximum(np.abs(values), smallest)
    along = vectors.T @ (gradient[free] / own)
    step[free] = -(vectors @ (along / values)) / own
    return step, 0.5 * float(np.sum(along**2 / values))


def _gradient(problem: Problem, point: Point, n: int) -> Array:
    """(n,) gradient in ln σ², and in ln τ if ``n`` is one more."""
    by_noise, by_scale = problem.gradient(point, None)
    return np.append(by_scale, by_noise)[:n]


def _curvature(problem: Problem, point: Point, n: int) -> Array:
    """(n, n) Hessian in the same variables."""
    scales = np.exp(0.5 * point.params.log_scales)[problem.feature_index]
    hessian = evidence.scale_hessian(point.post, scales, problem.feature_index)
    if n == len(hessian):
        return hessian
    # In u = ln σ² − ln τ the evidence is ½[fit(u)/τ + t ln|B(u)| + t W ln τ]: its mixed derivative
    # is ½ energy, its second one ½ fit. Back to (ln σ², ln τ) by the chain rule.
    terms = point.features
    mixed = 0.5 * terms.energy
    second = 0.5 * (terms.residual + terms.energy.sum())
    column = (mixed - hessian.sum(1))[:, None]
    corner = second - 2.0 * mixed.sum() + hessian.sum()
    return np.block([[hessian, column], [column.T, np.full((1, 1), corner)]])
