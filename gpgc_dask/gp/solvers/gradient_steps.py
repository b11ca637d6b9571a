"""Steps without moments, by which a fit comes near the optimum after its first sum of moments.

Such a step is a read that predicts the rows, gives every group its new noise, and sums the gradient
there. It takes a fraction of the time of a Gram product. The curvature that Newton's step for the
weights needs is that of the moments before: as the noise of most groups was about right there, it
differs by a few percent, and so does the step. The moments are summed again once, at the end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.oracle.base import GradientResult, TermsRequest
from gpgc_dask.gp.solvers.convergence import Certificate, certify, gain_tolerance
from gpgc_dask.gp.solvers.newton import expected_terms, newton_step, precision_ratio
from gpgc_dask.gp.solvers.probes import leverage_directions, select_gradient_groups
from gpgc_dask.gp.solvers.problem import Point, Problem
from gpgc_dask.gp.solvers.run import Run
from gpgc_dask.gp.solvers.scales import optimise_scales
from gpgc_dask.gp.solvers.state import Expectation

__all__ = ["take_gradient_steps"]

MAX_STEPS = 2
"""Maximum number of such steps."""

ENOUGH = 100.0
"""Expected gain, in units of the tolerance, that one step with moments reduces to the tolerance."""

LEAVE_OUT_SHARE = 0.25
"""Share of the groups by which the redundancy is estimated in the first of them."""


def take_gradient_steps(run: Run, point: Point) -> tuple[Point, Point]:
    """Come near the optimum from a point whose noise is about right.

    Parameters
    ----------
    run : Run
        Problem, history and state. What is expected after the steps is added to the state.
    point : Point
        Where to start.

    Returns
    -------
    point : Point
        The start with the redundancy and the scales after the steps.
    ahead : Point
        Where the steps lead to: its noise and its weights of the features are new, its posterior
        and moments estimated. The same as ``point`` if there was no step.
    """
    problem, ahead, gain = run.problem, point, float("inf")
    if not (problem.noise.separable and problem.oracle.has_gradient_steps):
        return point, point
    for number in range(MAX_STEPS):
        directions = leverage_directions(problem, ahead, gain)
        enough = gain <= ENOUGH * gain_tolerance(problem)
        if directions is None or enough or run.iterations_left <= 1:
            break
        first = number == 0
        result = _read(run, ahead, directions, leave_out=first and problem.estimates_redundancy)
        certificate = certify(
            problem,
            ahead,
            result.terms,
            run.ratio(result.terms) if result.terms.leave_out is not None else None,
            exact=False,
            error=0.0,
        )
        run.history.append("fixed-point", problem, replace(ahead, value=point.value), certificate)
        with run.algebra():
            if first:
                c = run.next_redundancy(run.state.search, point, certificate)
                point = problem.with_redundancy(point, c) if c != point.params.redundancy else point
                tolerance = max(0.1 * gain_tolerance(problem), 1e-3 * certificate.gain)
                point = optimise_scales(problem, point, noise=False, gain=tolerance)
            ahead, certificate = _next(problem, point, ahead, result, certificate)
        gain = certificate.gain
        run.state.expectation = Expectation(ahead.post.mu, certificate)
    return point, ahead


def _read(run: Run, ahead: Point, directions: Array, *, leave_out: bool) -> GradientResult:
    problem, params = run.problem, ahead.params
    request = TermsRequest(
        directions=directions,
        gradient_groups=select_gradient_groups(problem),
        held_noise=problem.noise.held_noise(params.log_noise),
        leave_out_share=LEAVE_OUT_SHARE,
    )
    rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, params.redundancy)
    with run.sweep():
        return problem.oracle.gradient_step(
            ahead.post,
            params.log_noise,
            params.redundancy,
            rule,
            leave_out=leave_out,
            request=request,
        )


def _next(
    problem: Problem, point: Point, ahead: Point, result: GradientResult, certificate: Certificate
) -> tuple[Point, Certificate]:
    """Where a step leads to from ``ahead``, with the curvature of ``point``; what to expect there.

    Redundancy and scales are those of ``point``. The curvature is multiplied by the mean change of
    the precisions, weighted by leverages: that is the mean change of its eigenvalues.
    """
    before, mean = ahead.params, ahead.post.mu
    params = replace(point.params, log_noise=result.log_noise)
    groups = select_gradient_groups(problem)
    leverage, at_point = result.terms.leverage, point.params
    own = leverage * precision_ratio(before, at_point)
    factor = float((own * precision_ratio(at_point, params)).sum() / own.sum())
    post = replace(point.post, T=point.post.T / np.sqrt(factor))
    gradient = result.gradient * (before.redundancy / params.redundancy)
    mean, _ = newton_step(
        problem, result.terms, before, mean, params, post, groups=groups, gradient=gradient
    )
    new = replace(
        point,
        params=params,
        moments=point.moments.scale(factor),
        post=replace(post, mu=mean),
    )
    expected = expected_terms(result.terms, groups, before, ahead.post.mu, new)
    return new, certify(problem, new, expected, certificate.ratio, exact=False, error=0.0)
