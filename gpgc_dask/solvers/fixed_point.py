"""MacKay's fixed point for the noise, one read of the data a step."""

from __future__ import annotations

from dataclasses import replace

from gpgc_dask.noise import FixedPointRule
from gpgc_dask.oracle.base import GroupTerms
from gpgc_dask.solvers.collective import tune
from gpgc_dask.solvers.history import History
from gpgc_dask.solvers.problem import Certificate, Point, Problem
from gpgc_dask.solvers.redundancy import RedundancySearch, moment_ratio

__all__ = ["fixed_point"]

SLOW_RATE = 0.6
"""A step that leaves more than this share of the predicted gain counts as slow."""

PATIENCE = 4
"""Slow steps in a row after which the fixed point gives up."""


def fixed_point(
    problem: Problem, point: Point, history: History, search: RedundancySearch, *, patient: bool
) -> tuple[Point, Certificate]:
    """Step until certified, slow (unless ``patient``) or out of iterations.

    Each step: (1) one read gives the group terms at ``point``, so its exact gradient, and the
    moments at the next noise; (2) scales are tuned at the driver; (3) a step that lowered the
    evidence is redone as EM, which cannot; (4) c moves towards its moment equation.
    """
    slow = 0
    previous: Certificate | None = None
    while True:
        state = point.state
        rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, state.redundancy)
        with history.phase("sweep"):
            result = problem.oracle.step(
                point.post,
                state.log_noise,
                state.redundancy,
                rule,
                leave_out=problem.solves_redundancy,
            )
        ratio = moment_ratio(result.terms, problem.n_targets) if problem.solves_redundancy else None
        certificate = problem.certify(point, result.terms, ratio)
        history.append("fixed-point", problem, point, certificate)
        if problem.is_converged(certificate) or history.left(problem) <= 0:
            break
        if previous is not None and certificate.gain > SLOW_RATE * previous.gain:
            slow += 1
        else:
            slow = 0
        if slow >= PATIENCE and not patient:
            break
        previous = certificate

        with history.phase("solve"):
            proposal = problem.evaluate(replace(state, log_noise=result.log_noise), result.moments)
            if proposal.value > point.value:
                proposal = _tuned(problem, proposal)
        if proposal.value > point.value + _slack(point, certificate):
            proposal = _redo_as_em(problem, point, result.terms, history)
        with history.phase("solve"):
            if ratio is not None:
                c = search.next(state.redundancy, ratio)
                proposal = problem.with_redundancy(proposal, c)
            point = _tuned(problem, proposal)
    return point, certificate


def _redo_as_em(problem: Problem, point: Point, terms: GroupTerms, history: History) -> Point:
    """The monotone step from the same terms; costs one more read."""
    state = point.state
    rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, state.redundancy, monotone=True)
    log_noise = rule(state.log_noise, problem.oracle.group_weight, terms.residual, terms.leverage)
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
