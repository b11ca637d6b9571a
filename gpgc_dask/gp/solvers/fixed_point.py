"""MacKay's fixed point for the noise and Newton's step for the weights, one read per step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.noise import FixedPointRule, PooledRule
from gpgc_dask.gp.oracle.base import GroupTerms, StepResult, TermsRequest
from gpgc_dask.gp.solvers.convergence import (
    Certificate,
    bounded_ratio,
    certify,
    gain_tolerance,
    held_tolerance,
    is_worth_certifying,
    scale_gain,
)
from gpgc_dask.gp.solvers.newton import expected_terms, newton_mean
from gpgc_dask.gp.solvers.polish import can_polish, polish
from gpgc_dask.gp.solvers.probes import leverage_directions, select_gradient_groups
from gpgc_dask.gp.solvers.problem import Point, Problem
from gpgc_dask.gp.solvers.redundancy import RedundancySearch
from gpgc_dask.gp.solvers.run import Run
from gpgc_dask.gp.solvers.scales import optimise_scales
from gpgc_dask.gp.solvers.state import Expectation, SolverState

__all__ = ["solve_fixed_point"]

SLOW_RATE = 0.6
"""A step that leaves more than this share of the predicted gain is slow."""

PATIENCE = 4
"""Number of slow steps in a row after which the solver gives up."""

CERTIFY_DECAY = 0.8
"""Factor of the share of the tolerance that is worth a certificate, after each failed one."""

SMALL_GAIN = 1e-3
"""Expected gain in nats per row below which moments are corrected instead of summed again."""

SETTLED_GAIN = 1e-5
"""Expected gain in nats per row below which the moment ratio depends on c alone."""

UNCHANGED_SHARE = 0.2
"""Share of the tolerance that all groups whose noise is left unchanged may be worth together."""


def solve_fixed_point(run: Run, point: Point, *, patient: bool) -> tuple[Point, Certificate]:
    """Step until the optimum is certified or no iteration is left.

    Each step has five parts:

    1. One read gives every group its new noise, and the moments there.
    2. The scales are optimised at the driver.
    3. If the step lowered the evidence, it is repeated with the monotone EM rule.
    4. c moves towards the solution of its moment equation, and trusted groups get the noise of good
       groups.
    5. The gradients of the groups predict the certificate of the new point. If it is good enough,
       one read computes it with exact leverages.

    Parameters
    ----------
    run : Run
        Problem, history and state.
    point : Point
        Where to start.
    patient : bool
        Whether to continue after several slow steps.
    """
    problem, state = run.problem, run.state
    if state.near:
        with run.algebra():
            point = _optimise(problem, point)
    while True:
        run.save(point)
        expected = state.expectation.certificate
        if expected is not None and is_worth_certifying(problem, expected, state.certify_share):
            certificate = run.certify("fixed-point", point, run.exact_terms(point, final=True))
            if run.is_done(certificate):
                break
            state.certify_share *= CERTIFY_DECAY
            state.exact_leverages = True
            state.expectation = Expectation()
            run.save(point)
        result, certificate = _certify_first(run, point) if state.near else _sweep(run, point)
        if result is None or run.is_done(certificate):
            break
        _count_slow_steps(state, certificate)
        if state.slow_steps >= PATIENCE and not patient:
            break
        proposal = _propose(run, point, result, certificate)
        mean = state.expectation.mean
        if proposal is None and mean is not None:
            run.history.annotate(rejected=True)
            state.expectation = Expectation()
            continue
        if proposal is None:
            proposal = _em_step(run, point, result.terms)
        with run.algebra():
            proposal = _update_redundancy(run, point, proposal, certificate)
            proposal = problem.with_held_noise(proposal)
            proposal = _optimise(problem, proposal)
            state.expectation = _expect(problem, point, mean, result.terms, proposal, certificate)
        point = proposal
    return point, certificate


def _certify_first(run: Run, point: Point) -> tuple[StepResult | None, Certificate]:
    """A step from a point that may be the optimum: one read certifies it, others move on.

    No result means that it is the optimum.
    """
    problem, params, state = run.problem, point.params, run.state
    state.near = False
    polishes = can_polish(problem)
    groups = None
    if polishes:
        groups = np.ones(problem.n_groups, dtype=bool)
    elif problem.noise.separable:
        groups = select_gradient_groups(problem)
    # The gradient of the scales, which is known without a read, may show that it is no optimum.
    likely = scale_gain(problem, point) <= gain_tolerance(problem)
    terms = run.exact_terms(point, final=likely, gradient_groups=groups)
    # The error of the arithmetic only matters where the fit may end.
    certificate = run.certify("fixed-point", point, terms, error=None if likely else 0.0)
    if run.is_done(certificate):
        return None, certificate
    if polishes:
        c = _next_redundancy(run, replace(state.search), point, certificate)
        polished = polish(run, params, point.post, terms, c)
        state.expectation = Expectation(polished.mean)
        terms, log_noise = polished.terms, polished.log_noise
    else:
        rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, params.redundancy)
        log_noise = PooledRule(rule, problem.noise)(
            params.log_noise, problem.oracle.group_weight, terms.residual, terms.leverage
        )
    with run.sweep():
        moments = problem.oracle.moments(log_noise, params.redundancy)
    return StepResult(terms, log_noise, moments), certificate


def _sweep(run: Run, point: Point) -> tuple[StepResult, Certificate]:
    """One read: the next noise and its moments, and the certificate as far as it is known."""
    problem, state, params = run.problem, run.state, point.params
    mean, expected = state.expectation.mean, state.expectation.certificate
    small = expected is not None and expected.gain < SMALL_GAIN * problem.total_weight
    min_gain = 0.0
    if small and expected is not None:
        share = UNCHANGED_SHARE * state.certify_share
        min_gain = share * gain_tolerance(problem) / problem.n_groups
        if expected.held_gradient > 0:
            # One unchanged group can decide the noise of all trusted ones.
            move = 0.5 * held_tolerance(problem) / expected.held_gradient
            weight = problem.group_weight(params.redundancy).mean()
            min_gain = min(min_gain, 0.25 * problem.n_targets * float(weight) * move**2)
    rule = FixedPointRule(
        problem.n_targets, *problem.noise_bounds, params.redundancy, min_gain=min_gain
    )
    directions = None
    held_noise = problem.noise.held_noise(params.log_noise)
    if problem.noise.separable:
        if not state.exact_leverages:
            gain = float("inf") if expected is None else expected.gain
            directions = leverage_directions(problem, point, gain)
        with run.sweep():
            result = problem.oracle.step(
                point.post,
                params.log_noise,
                params.redundancy,
                rule,
                leave_out=problem.estimates_redundancy,
                request=TermsRequest(
                    mean, directions, select_gradient_groups(problem), held_noise=held_noise
                ),
                current=point.moments if small else None,
            )
    else:
        with run.sweep():
            result = problem.oracle.step_with_all_groups(
                point.post,
                params.log_noise,
                params.redundancy,
                PooledRule(rule, problem.noise),
                leave_out=problem.estimates_redundancy,
            )
    ratio = run.ratio(result.terms)
    if mean is not None and expected is not None:
        certificate = replace(expected, ratio=bounded_ratio(problem, params.redundancy, ratio))
    else:
        certificate = certify(problem, point, result.terms, ratio, exact=directions is None)
    run.history.append("fixed-point", problem, point, certificate)
    return result, certificate


def _count_slow_steps(state: SolverState, certificate: Certificate) -> None:
    slow = certificate.gain > SLOW_RATE * state.last_gain
    state.slow_steps = state.slow_steps + 1 if slow else 0
    state.last_gain = certificate.gain


def _propose(run: Run, point: Point, result: StepResult, certificate: Certificate) -> Point | None:
    """The point that a step leads to; None if the evidence is lower there."""
    problem = run.problem
    with run.algebra():
        params = replace(point.params, log_noise=result.log_noise)
        proposal = problem.evaluate(params, result.moments)
        if proposal.value > point.value:
            proposal = _optimise(problem, proposal)
    better = proposal.value <= point.value + _rounding(point, certificate)
    return proposal if better else None


def _em_step(run: Run, point: Point, terms: GroupTerms) -> Point:
    """The monotone step from the same terms, which takes one more read."""
    problem, params = run.problem, point.params
    rule = FixedPointRule(
        problem.n_targets, *problem.noise_bounds, params.redundancy, monotone=True
    )
    log_noise = PooledRule(rule, problem.noise)(
        params.log_noise, problem.oracle.group_weight, terms.residual, terms.leverage
    )
    with run.sweep():
        moments = problem.oracle.moments(log_noise, params.redundancy)
    run.history.annotate(redone=True)
    return problem.evaluate(replace(params, log_noise=log_noise), moments)


def _update_redundancy(run: Run, point: Point, proposal: Point, certificate: Certificate) -> Point:
    """The proposal with the next c, from the moment ratio at ``point``."""
    if certificate.ratio is None:
        return proposal
    c = _next_redundancy(run, run.state.search, point, certificate)
    return run.problem.with_redundancy(proposal, c)


def _next_redundancy(
    run: Run, search: RedundancySearch, point: Point, certificate: Certificate
) -> float:
    """The next c, which ``search`` remembers; that of the point if it is fixed."""
    c = point.params.redundancy
    if certificate.ratio is None:
        return c
    settled = certificate.gain < SETTLED_GAIN * run.problem.total_weight
    return search.next(c, certificate.ratio, settled=settled)


def _expect(
    problem: Problem,
    before: Point,
    mean: Array | None,
    terms: GroupTerms,
    point: Point,
    certificate: Certificate,
) -> Expectation:
    """What the sweep at ``before``, with residuals of ``mean``, predicts for the new point."""
    if terms.weight_gradients is None:
        return Expectation()
    mean = before.post.mu if mean is None else mean
    groups = select_gradient_groups(problem)
    expected = certify(
        problem,
        point,
        expected_terms(terms, groups, before.params, mean, point),
        certificate.ratio,
        exact=False,
        # The error is computed again for the final certificate; until then the last one will do.
        error=certificate.precision_error,
    )
    return Expectation(newton_mean(problem, terms, groups, before.params, mean, point), expected)


def _rounding(point: Point, certificate: Certificate) -> float:
    """How much the objective may rise by rounding alone, in nats."""
    return 1e-9 * abs(point.value) + 1e-6 + 4.0 * certificate.precision_error


def _optimise(problem: Problem, point: Point) -> Point:
    """The best scales for the current noise and c, without a read."""
    return optimise_scales(problem, point, noise=False, gain=0.1 * gain_tolerance(problem))
