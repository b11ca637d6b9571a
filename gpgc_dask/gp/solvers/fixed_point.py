"""MacKay's fixed point for the noise and Newton's step for the weights, one read a step."""

from __future__ import annotations

from dataclasses import replace

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.noise import FixedPointRule, PooledRule
from gpgc_dask.gp.oracle.base import GroupTerms, StepResult, TermsRequest
from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.newton import expected_terms, newton_mean
from gpgc_dask.gp.solvers.problem import Certificate, Point, Problem
from gpgc_dask.gp.solvers.redundancy import moment_ratio
from gpgc_dask.gp.solvers.scales import tune
from gpgc_dask.gp.solvers.state import Course, Promise

__all__ = ["DOUBT", "fixed_point"]

SLOW_RATE = 0.6
"""A step that leaves more than this share of the predicted gain counts as slow."""

PATIENCE = 4
"""Slow steps in a row after which the fixed point gives up."""

DOUBT = 0.8
"""A point is worth a certificate where its expected gain is below this share of the tolerance."""

MORE_DOUBT = 0.8
"""Factor of that share after each certificate that was not given."""

SMALL_GAIN = 1e-3
"""Expected gain in nats a row from which on moments are corrected, not summed anew."""

SETTLED_GAIN = 1e-5
"""Expected gain in nats a row from which on the redundancy's ratio tells of c alone."""

STILL_SHARE = 0.2
"""Share of that gain which all groups left as they are may be worth together."""


def fixed_point(
    problem: Problem, point: Point, history: History, course: Course, *, patient: bool
) -> tuple[Point, Certificate]:
    """Step until certified, slow (unless ``patient``) or out of iterations.

    Each step: (1) one read judges the rows, so gives every group its new noise, and the moments
    there; (2) scales are tuned at the driver; (3) a step that lowered the evidence is redone;
    (4) c moves towards its moment equation; (5) the pulls say what to expect of the new point.
    Where that is good enough one read certifies it by exact leverages.
    """
    while True:
        history.keep(point, course)
        promise = course.promise
        expected = promise.certificate
        if expected is not None and problem.is_promising(expected, course.doubt):
            certificate = _certify(problem, point, history)
            if problem.is_converged(certificate) or history.left(problem) <= 0:
                break
            course.doubt *= MORE_DOUBT
            course.exactly, promise = True, Promise()
            course.promise = promise
            history.keep(point, course)
        gain = float("inf") if promise.certificate is None else promise.certificate.gain
        exactly = course.exactly or not problem.noise.separable
        directions = None if exactly else problem.directions(point, gain)
        result, certificate = _step(problem, point, promise, directions, course.doubt, history)
        if problem.is_converged(certificate) or history.left(problem) <= 0:
            break
        course.slow = course.slow + 1 if certificate.gain > SLOW_RATE * course.last_gain else 0
        course.last_gain = certificate.gain
        if course.slow >= PATIENCE and not patient:
            break
        proposal = _proposal(problem, point, result, certificate, history)
        if proposal is None and promise.mean is not None:
            history.note(rejected=True)
            course.promise = Promise()
            continue
        if proposal is None:
            proposal = _redo_as_em(problem, point, result.terms, history)
        with history.phase("solve"):
            if certificate.ratio is not None:
                settled = certificate.gain < SETTLED_GAIN * problem.total_weight
                c = course.search.next(point.state.redundancy, certificate.ratio, settled=settled)
                proposal = problem.with_redundancy(proposal, c)
            proposal = _tuned(problem, proposal)
            course.promise = _promise(
                problem, point, promise.mean, result.terms, proposal, certificate
            )
        point = proposal
    return point, certificate


def _step(
    problem: Problem,
    point: Point,
    promise: Promise,
    directions: Array | None,
    doubt: float,
    history: History,
) -> tuple[StepResult, Certificate]:
    """One read: the next noise and its moments, and how good the point is, as far as is known."""
    state, expected = point.state, promise.certificate
    small = expected is not None and expected.gain < SMALL_GAIN * problem.total_weight
    still = STILL_SHARE * doubt * problem.gain_tolerance / problem.n_groups if small else 0.0
    rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, state.redundancy, still=still)
    with history.phase("sweep"):
        if problem.noise.separable:
            found = problem.oracle.step(
                point.post,
                state.log_noise,
                state.redundancy,
                rule,
                leave_out=problem.solves_redundancy,
                request=TermsRequest(
                    promise.mean, directions, gradient_groups=problem.gradient_groups()
                ),
                current=point.moments if small else None,
            )
        else:
            found = problem.oracle.step_with_all_groups(
                point.post,
                state.log_noise,
                state.redundancy,
                PooledRule(rule, problem.noise),
                leave_out=problem.solves_redundancy,
            )
    ratio = _ratio(problem, found.terms)
    if promise.mean is not None and expected is not None:
        certificate = replace(expected, ratio=problem.projected_ratio(state.redundancy, ratio))
    else:
        certificate = problem.certify(point, found.terms, ratio, exact=directions is None)
    history.append("fixed-point", problem, point, certificate)
    return found, certificate


def _certify(problem: Problem, point: Point, history: History) -> Certificate:
    """One read: the exact gradient at a point."""
    state = point.state
    with history.phase("sweep"):
        terms = problem.oracle.terms(
            point.post, state.log_noise, state.redundancy, leave_out=problem.solves_redundancy
        )
    certificate = problem.certify(point, terms, _ratio(problem, terms))
    history.append("fixed-point", problem, point, certificate)
    return certificate


def _ratio(problem: Problem, terms: GroupTerms) -> float | None:
    return moment_ratio(terms, problem.n_targets) if problem.solves_redundancy else None


def _proposal(
    problem: Problem, point: Point, result: StepResult, certificate: Certificate, history: History
) -> Point | None:
    """The point that a step leads to; None where the evidence is lower there."""
    with history.phase("solve"):
        state = replace(point.state, log_noise=result.log_noise)
        proposal = problem.evaluate(state, result.moments)
        if proposal.value > point.value:
            proposal = _tuned(problem, proposal)
    better = proposal.value <= point.value + _slack(point, certificate)
    return proposal if better else None


def _promise(
    problem: Problem,
    before: Point,
    mean: Array | None,
    terms: GroupTerms,
    point: Point,
    certificate: Certificate,
) -> Promise:
    """What the sweep at ``before`` lets expect of the new point."""
    if terms.weight_gradients is None:
        return Promise()
    judged = before.post.mu if mean is None else mean
    gradient_groups = problem.gradient_groups()
    terms_there = expected_terms(terms, gradient_groups, before.state, judged, point)
    expected = problem.certify(
        point,
        terms_there,
        certificate.ratio,
        exact=False,
        # Told again for what is to be certified; until then the last point's will do.
        error=certificate.precision_error,
    )
    return Promise(
        newton_mean(problem, terms, gradient_groups, before.state, judged, point), expected
    )


def _redo_as_em(problem: Problem, point: Point, terms: GroupTerms, history: History) -> Point:
    """The monotone step from the same terms; costs one more read."""
    state = point.state
    rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, state.redundancy, monotone=True)
    log_noise = PooledRule(rule, problem.noise)(
        state.log_noise, problem.oracle.group_weight, terms.residual, terms.leverage
    )
    with history.phase("sweep"):
        moments = problem.oracle.moments(log_noise, state.redundancy)
    history.note(redone=True)
    return problem.evaluate(replace(state, log_noise=log_noise), moments)


def _slack(point: Point, certificate: Certificate) -> float:
    """How much an objective may rise by rounding alone, in nats."""
    return 1e-9 * abs(point.value) + 1e-6 + 4.0 * certificate.precision_error


def _tuned(problem: Problem, point: Point) -> Point:
    """The best scales for the noise and c at hand; costs no read."""
    return tune(problem, point, noise=False, gain=0.1 * problem.gain_tolerance)
