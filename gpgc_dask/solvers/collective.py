"""Optimisation that needs no data: the feature scales and a common factor of all noise.

Multiplying every ε² by τ divides G and b by τ, so one read of the data serves any number of
evaluations in (τ, σ). For a single noise variance that is the whole fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from gpgc_dask.arrays import Array
from gpgc_dask.solvers.problem import Point, Problem

__all__ = ["tune"]


def tune(problem: Problem, point: Point, *, noise: bool, gain: float, max_evals: int = 60) -> Point:
    """The best point over σ (and τ where ``noise``) with the noise pattern held.

    ``gain`` is the predicted gain in nats at which to stop. The result is never worse.
    """
    fisher_noise, fisher_scales = problem.fisher(point.state.redundancy)
    root = np.sqrt(np.append(fisher_scales, fisher_noise.sum())[: None if noise else -1])
    n_scales = len(fisher_scales)
    lower, upper = problem.scale_bounds
    start = point.state.log_scales
    if noise:
        low, high = problem.noise_bounds
        lower = np.append(lower, low - point.state.log_noise.min())
        upper = np.append(upper, high - point.state.log_noise.max())
        start = np.append(start, 0.0)
    best = point

    def evaluate(z: Array) -> tuple[float, Array]:
        nonlocal best
        x = np.clip(z / root, lower, upper)
        shift = float(x[n_scales]) if noise else 0.0
        state = replace(
            point.state, log_scales=x[:n_scales], log_noise=point.state.log_noise + shift
        )
        moments = point.moments.scaled(np.exp(-shift)) if shift else point.moments
        found = problem.evaluate(state, moments)
        if found.value < best.value:
            best = found
        g_noise, g_scales = problem.gradient(found, None)
        gradient = np.append(g_scales, g_noise)[: len(x)]
        return found.value, gradient / root

    start = np.clip(start, lower, upper)
    n = len(start)
    minimize(
        evaluate,
        start * root,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([lower * root, upper * root]),
        options={"gtol": np.sqrt(2 * gain / n), "ftol": 1e-15, "maxfun": max_evals},
    )
    return best
