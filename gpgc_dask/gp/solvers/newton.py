"""Newton's step for the weights, and the terms to expect at a new point.

With the noise profiled out (ε²ⱼ optimal for the weights μ), the evidence is a robust regression in
μ. The fixed point is its iteratively reweighted least squares: solve C δ = Σⱼ gⱼ − Σ⁻¹μ with
C = G + Σ⁻¹ at the new noise, where gⱼ = Fⱼᵀ P (y − Fⱼμ) is the gradient of the log-likelihood of
group j with respect to the weights. Newton's matrix is C − 2E with E = Σⱼ gⱼ gⱼᵀ / (t Wⱼ): a group
whose residual decreases gets less noise, and so a larger gradient.

The gradients, J×k numbers from the same read, are all that is needed. Their products with any δ
also predict how the residuals change, and so the next gradient, before the data is read again.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from gpgc_dask.core.arrays import Array, Features, Mask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.oracle.base import GroupTerms
from gpgc_dask.gp.solvers.problem import Hyperparameters, Point, Problem

__all__ = ["expected_terms", "newton_mean", "newton_step"]

MIN_CURVATURE = 0.15
"""Share of the curvature of C below which Newton's matrix is not used: the step is then by C."""

MAX_STEPS = 50
TOLERANCE = 1e-4
"""Maximum number of steps and relative tolerance of conjugate gradients for Newton's step."""


def expected_terms(
    terms: GroupTerms, gradient_groups: Mask, before: Hyperparameters, mean: Array, point: Point
) -> GroupTerms:
    """Group terms to expect at a new point.

    Parameters
    ----------
    terms : GroupTerms
        Terms of the last sweep.
    gradient_groups : bool array of shape (J,)
        Groups whose gradients ``terms`` has. Each other group is taken to behave like the last of
        them before it.
    before : Hyperparameters
        Hyperparameters of that sweep.
    mean : array of shape (k, t)
        Weights that its residuals were computed with.
    point : Point
        The new point.
    """
    factor = _precision_ratio(before, point.params)
    leverage = terms.leverage * factor
    total = float(leverage.sum())
    if total > 0:
        leverage = leverage * (point.features.leverage / total)
    residual = terms.residual * factor
    if terms.weight_gradients is not None:
        along = np.einsum("jkt,kt->j", terms.weight_gradients, point.post.mu - mean)
        known = terms.residual[gradient_groups]
        change = np.divide(along, known, out=np.zeros_like(known), where=known > 0)
        similar = np.maximum(np.cumsum(gradient_groups) - 1, 0)
        residual = residual * np.maximum(1.0 - 2.0 * change[similar], 0.0)
    return GroupTerms(residual, leverage)


def newton_mean(
    problem: Problem,
    terms: GroupTerms,
    gradient_groups: Mask,
    before: Hyperparameters,
    mean: Array,
    point: Point,
) -> Array | None:
    """(k, t) weights after Newton's step, with which the next sweep should compute residuals.

    None stands for the posterior mean: if there are no gradients, or if Newton's matrix is nearly
    indefinite. Parameters are those of :func:`expected_terms`.
    """
    if terms.weight_gradients is None:
        return None
    T = point.post.T
    whitened = _whitened(
        problem, terms.weight_gradients, gradient_groups, before, point.params, point.post
    )
    change = solve_triangular(T, point.post.mu - mean, lower=True, trans=1, check_finite=False)
    z = _solve(whitened, change.T.ravel())
    return None if z is None else mean + T.T @ z.reshape(mean.shape[::-1]).T


def newton_step(
    problem: Problem,
    terms: GroupTerms,
    before: Hyperparameters,
    mean: Array,
    params: Hyperparameters,
    post: Posterior,
) -> tuple[Array, float]:
    """(k, t) weights after Newton's step from any weights, and its predicted gain in nats.

    Where Newton's matrix is nearly indefinite, the step is that by C.

    Parameters
    ----------
    problem : Problem
        The problem.
    terms : GroupTerms
        Terms with the gradients of all groups.
    before : Hyperparameters
        Hyperparameters of these terms.
    mean : array of shape (k, t)
        Weights of these terms.
    params : Hyperparameters
        Hyperparameters that the step is for.
    post : Posterior
        A posterior near theirs.
    """
    assert terms.weight_gradients is not None
    T = post.T
    ratio = _precision_ratio(before, params)
    pull = np.tensordot(ratio, terms.weight_gradients, axes=1)
    scales = np.exp(0.5 * params.log_scales)[problem.feature_index, None]
    prior = np.divide(mean, scales**2, out=np.zeros_like(mean), where=scales > 0)
    everything = np.ones(ratio.size, dtype=bool)
    whitened = _whitened(problem, terms.weight_gradients, everything, before, params, post)
    rhs = (T @ (pull - prior)).T.ravel()
    z = _solve(whitened, rhs)
    z = rhs if z is None else z
    return mean + T.T @ z.reshape(mean.shape[::-1]).T, 0.5 * float(z @ rhs)


def _whitened(
    problem: Problem,
    gradients: Features,
    gradient_groups: Mask,
    before: Hyperparameters,
    params: Hyperparameters,
    post: Posterior,
) -> Array:
    """(P, k·t) whitened gradients G of groups, with which Newton's matrix is I − 2 GᵀG."""
    weight = problem.n_targets * problem.group_weight(params.redundancy)
    low, high = problem.noise_bounds
    # A noise at its bound, or held, does not depend on the weights.
    free = (weight > 0) & (params.log_noise > low) & (params.log_noise < high)
    if problem.noise.held is not None:
        free &= ~problem.noise.held
    ratio = _precision_ratio(before, params)
    size = np.divide(ratio, np.sqrt(weight), where=free, out=0.0 * weight)
    # Groups with gradients represent the others.
    n_known = np.count_nonzero(gradient_groups)
    size = size[gradient_groups] * np.sqrt(gradient_groups.size / n_known)
    columns = np.moveaxis(gradients, 2, 0)
    T = post.T
    return np.concatenate([(column * size[:, None]) @ T.T for column in columns], axis=1)


def _precision_ratio(before: Hyperparameters, after: Hyperparameters) -> Array:
    """(J,) precision of the rows of each group after ÷ before."""
    change = before.log_noise - after.log_noise
    return np.exp(change) * (before.redundancy / after.redundancy)


def _solve(gradients: Array, rhs: Array) -> Array | None:
    """(I − 2 GᵀG)⁻¹ rhs by conjugate gradients; None if the matrix is nearly indefinite."""
    z, residual, direction = np.zeros_like(rhs), rhs.copy(), rhs.copy()
    square = start = float(rhs @ rhs)
    if not np.isfinite(start):
        return None
    for _ in range(MAX_STEPS):
        if square <= TOLERANCE**2 * start:
            break
        product = direction - 2.0 * ((gradients @ direction) @ gradients)
        curvature = float(direction @ product)
        if curvature < MIN_CURVATURE * float(direction @ direction):
            return None
        alpha = square / curvature
        z += alpha * direction
        residual -= alpha * product
        square, last = float(residual @ residual), square
        direction = residual + (square / last) * direction
    return z
