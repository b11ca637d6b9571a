"""Where the weights are going: Newton's step for the mean, and what a point promises.

With the noise profiled out (ε²ⱼ the best for the weights μ), the evidence is a robust regression
in μ. The fixed point is its reweighted least squares: solve C δ = Σⱼ gⱼ − Σ⁻¹μ with C = G + Σ⁻¹ at
the new noise, where gⱼ = Fⱼᵀ P (y − Fⱼμ) is the pull of group j. Newton's matrix is C − 2E,
E = Σⱼ gⱼ gⱼᵀ / (t Wⱼ): a group whose residual shrinks will get less noise, so pull harder. The
pulls, J×k numbers of the same read, are all it needs; their products with any δ also tell how
the residuals will change, so what the next gradient will be, before the data is read again.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.gp.oracle.base import GroupTerms
from gpgc_dask.gp.solvers.problem import Point, Problem, State

__all__ = ["expected_terms", "newton_mean"]

MIN_CURVATURE = 0.15
"""Below this share of C's curvature Newton's matrix is not trusted: the weights step by C."""

MAX_STEPS = 50
TOLERANCE = 1e-4
"""Of conjugate gradients for Newton's step."""


def expected_terms(
    terms: GroupTerms, gradient_groups: Mask, before: State, mean: Array, point: Point
) -> GroupTerms:
    """The terms to be expected at a new point.

    terms, mean : of the sweep at the noise ``before``, and the weights it judged rows by
    gradient_groups : (J,) the groups with known gradients; the others are taken to be like the last
        before them
    """
    factor = _factor(before, point.state)
    leverage = terms.leverage * factor
    total = float(leverage.sum())
    if total > 0:
        leverage = leverage * (point.features.leverage / total)
    residual = terms.residual * factor
    if terms.weight_gradients is not None:
        along = np.einsum("jkt,kt->j", terms.weight_gradients, point.post.mu - mean)
        known = terms.residual[gradient_groups]
        change = np.divide(along, known, out=np.zeros_like(known), where=known > 0)
        like = np.maximum(np.cumsum(gradient_groups) - 1, 0)
        residual = residual * np.maximum(1.0 - 2.0 * change[like], 0.0)
    return GroupTerms(residual, leverage)


def newton_mean(
    problem: Problem,
    terms: GroupTerms,
    gradient_groups: Mask,
    before: State,
    mean: Array,
    point: Point,
) -> Array | None:
    """The weights that the next sweep should judge rows by; None: the posterior's own.

    None also where the pulls were not asked for, or where Newton's matrix is nearly indefinite.
    """
    if terms.weight_gradients is None:
        return None
    weight = problem.n_targets * problem.group_weight(point.state.redundancy)
    low, high = problem.noise_bounds
    # A noise at its bound does not answer to the weights.
    free = (weight > 0) & (point.state.log_noise > low) & (point.state.log_noise < high)
    size = np.divide(_factor(before, point.state), np.sqrt(weight), where=free, out=0.0 * weight)
    # Groups that were not asked are represented by those that were.
    size = size[gradient_groups] * np.sqrt(gradient_groups.size / np.count_nonzero(gradient_groups))
    T = point.post.T
    pull = np.concatenate(
        [
            (terms.weight_gradients[:, :, column] * size[:, None]) @ T.T
            for column in range(mean.shape[1])
        ],
        axis=1,
    )
    change = solve_triangular(T, point.post.mu - mean, lower=True, trans=1, check_finite=False)
    z = _solve(pull, change.T.ravel())
    return None if z is None else mean + T.T @ z.reshape(mean.shape[::-1]).T


def _factor(before: State, after: State) -> Array:
    """(J,) precision of each group's rows after ÷ before."""
    change = before.log_noise - after.log_noise
    return np.exp(change) * (before.redundancy / after.redundancy)


def _solve(pull: Array, rhs: Array) -> Array | None:
    """(I − 2 PᵀP)⁻¹ rhs by conjugate gradients; None where the matrix is nearly indefinite."""
    z, residual, direction = np.zeros_like(rhs), rhs.copy(), rhs.copy()
    square = start = float(rhs @ rhs)
    if not np.isfinite(start):
        return None
    for _ in range(MAX_STEPS):
        if square <= TOLERANCE**2 * start:
            break
        product = direction - 2.0 * ((pull @ direction) @ pull)
        curvature = float(direction @ product)
        if curvature < MIN_CURVATURE * float(direction @ direction):
            return None
        alpha = square / curvature
        z += alpha * direction
        residual -= alpha * product
        square, last = float(residual @ residual), square
        direction = residual + (square / last) * direction
    return z
