"""Optimisation that needs no data: the feature scales and a common factor of all noise.

Multiplying every ε² by τ divides G and b by τ, so one read of the data serves any number of
evaluations in (τ, σ). For a single noise variance that is the whole fit. An evaluation factorises a
k×k matrix, so the steps are Newton's: few.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp import evidence
from gpgc_dask.gp.solvers.problem import Point, Problem

__all__ = ["tune"]

MAX_MOVE = 4.0
"""Largest change of a ln σ² or of ln τ in one step."""

MIN_CURVATURE = 1e-3
"""Of a downward curvature, in units of the Fisher information: a step is not stretched further."""

MIN_UPWARD = 1e-6
"""The same of an upward one. Towards a scale of 0 gradient and curvature fade alike: steps of one
in ln σ² stay right, and shorter ones would take dozens of evaluations."""

REUSE = 0.03
"""A curvature serves the next step too where the last one left less than this of its gain."""

SHRINK = 0.2
"""Factor of a step that was too long."""

MAX_SHRINKS = 6


def tune(problem: Problem, point: Point, *, noise: bool, gain: float, max_evals: int = 60) -> Point:
    """The best point over σ (and τ where ``noise``) with the noise pattern held.

    ``gain`` is the predicted gain in nats at which to stop. The result is never worse.
    """
    state = point.state
    lower, upper = problem.scale_bounds
    if noise:
        low, high = problem.noise_bounds
        lower = np.append(lower, low - state.log_noise.min())
        upper = np.append(upper, high - state.log_noise.max())
    x = np.clip(np.append(state.log_scales, 0.0)[: lower.size], lower, upper)
    origin, best = point, point
    if not np.array_equal(x[: state.log_scales.size], state.log_scales):
        best = _at(problem, origin, x)
    left = max_evals
    curvature: Array | None = None
    last = np.inf
    while left > 0:
        gradient = _gradient(problem, best, x.size)
        step, expected = _newton_step(problem, best, x, gradient, curvature, lower, upper)
        if curvature is None or (expected > gain and expected > REUSE * last):
            curvature = _curvature(problem, best, x.size)
            step, expected = _newton_step(problem, best, x, gradient, curvature, lower, upper)
        if expected <= gain:
            break
        last = expected
        for _ in range(MAX_SHRINKS):
            left -= 1
            tried = np.clip(x + step, lower, upper)
            found = _at(problem, origin, tried)
            if found.value < best.value:
                break
            step = SHRINK * step
        else:
            break
        x, best = tried, found
    return best


def _at(problem: Problem, origin: Point, x: Array) -> Point:
    """The point with these ln σ² (and ln τ), from the origin's moments."""
    n = origin.state.log_scales.size
    shift = float(x[n]) if x.size > n else 0.0
    state = replace(origin.state, log_scales=x[:n], log_noise=origin.state.log_noise + shift)
    moments = origin.moments.scale(float(np.exp(-shift))) if shift else origin.moments
    return problem.evaluate(state, moments)


def _newton_step(
    problem: Problem,
    point: Point,
    x: Array,
    gradient: Array,
    curvature: Array | None,
    lower: Array,
    upper: Array,
) -> tuple[Array, float]:
    """The step within the bounds, and the nats it is expected to win.

    Without a curvature the Fisher information stands in, and only says whether anything is left.
    """
    noise, scales = problem.fisher(point.state.redundancy)
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
    values = np.maximum(np.abs(values), np.where(values > 0, MIN_UPWARD, MIN_CURVATURE))
    along = vectors.T @ (gradient[free] / own)
    step[free] = -(vectors @ (along / values)) / own
    return np.clip(step, -MAX_MOVE, MAX_MOVE), 0.5 * float(np.sum(along**2 / values))


def _gradient(problem: Problem, point: Point, n: int) -> Array:
    """In ln σ², and in ln τ where ``n`` asks for one more."""
    by_noise, by_scale = problem.gradient(point, None)
    return np.append(by_scale, by_noise)[:n]


def _curvature(problem: Problem, point: Point, n: int) -> Array:
    """The Hessian in the same variables."""
    scales = np.exp(0.5 * point.state.log_scales)[problem.feature_index]
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
