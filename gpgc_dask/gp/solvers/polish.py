"""Better noise near the optimum, from reads without products of the features.

Where most groups are as in an earlier fit, the labels of a few change the weights of the features,
and so the residuals of all groups. A read that only predicts the rows and sums the gradients of
the groups costs a fraction of one that computes leverages or moments. A few of them, with Newton's
step for the weights and MacKay's step for the noise in between, end so near the optimum that the
moments there, and one certificate, are all that is left to compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.noise import FixedPointRule, PooledRule
from gpgc_dask.gp.oracle.base import GroupTerms, TermsRequest
from gpgc_dask.gp.solvers.convergence import bounded_ratio, gain_tolerance
from gpgc_dask.gp.solvers.newton import newton_step
from gpgc_dask.gp.solvers.probes import probe_directions, select_gradient_groups
from gpgc_dask.gp.solvers.problem import Hyperparameters, Problem
from gpgc_dask.gp.solvers.redundancy import RedundancySearch
from gpgc_dask.gp.solvers.run import Run

__all__ = ["Polished", "approach", "can_polish", "polish"]

MAX_GRADIENT_BYTES = 1 << 26
"""Maximum size of the gradients of all groups."""

MAX_READS = 4
"""Maximum number of reads."""

LAST_GAIN = 3.0
"""Predicted gain of the last step, in units of the tolerance: an eighth of it or less is left."""


@dataclass(frozen=True)
class Polished:
    """Result of the reads.

    Attributes
    ----------
    log_noise : array of shape (J,)
        New ln ε² of each group.
    redundancy : float
        Redundancy that this noise is for.
    mean : array of shape (k, t)
        Weights of the features that it belongs to.
    terms : GroupTerms
        Terms with these weights, at the noise and redundancy of the start, with the gradients of
        the groups that :func:`~gpgc_dask.gp.solvers.probes.select_gradient_groups` selects.
    """

    log_noise: Array
    redundancy: float
    mean: Array
    terms: GroupTerms


def can_polish(problem: Problem) -> bool:
    """Whether reads are cheap, and the gradients of all groups fit into memory."""
    size = 8 * problem.n_groups * problem.n_features * problem.n_targets
    cheap = problem.oracle.in_memory and size <= MAX_GRADIENT_BYTES
    return cheap and problem.noise.separable


def polish(
    run: Run,
    start: Hyperparameters,
    post: Posterior,
    terms: GroupTerms,
    redundancy: float,
    *,
    search: RedundancySearch | None = None,
) -> Polished:
    """Improve the noise of all groups for another redundancy.

    Parameters
    ----------
    run : Run
        Problem, history and state.
    start : Hyperparameters
        Where to start.
    post : Posterior
        The posterior there, or one near it: it serves all steps.
    terms : GroupTerms
        Exact terms there, with the gradients of all groups.
    redundancy : float
        The redundancy c of the new noise.
    search : RedundancySearch, optional
        Improves c at the end. By default it stays.
    """
    problem, c = run.problem, redundancy
    params = replace(start, redundancy=c)
    ratio = start.redundancy / c
    terms = _scale(terms, np.full(problem.n_groups, ratio))
    exact, mean = terms, post.mu
    everything = np.ones(problem.n_groups, dtype=bool)
    tolerance = gain_tolerance(problem)
    for number in range(MAX_READS):
        new = replace(params, log_noise=_next_noise(problem, params.log_noise, terms, c))
        with run.algebra():
            mean, gain = newton_step(problem, terms, params, mean, new, post)
        last = gain <= LAST_GAIN * tolerance or number == MAX_READS - 1
        with run.sweep():
            request = TermsRequest(mean, np.empty((len(mean), 0)), everything)
            terms = problem.oracle.terms(
                post, new.log_noise, c, leave_out=last and search is not None, request=request
            )
        # The covariance of the weights hardly changes, so leverages change as the precisions do.
        change = np.exp(start.log_noise - new.log_noise)
        terms, params = replace(terms, leverage=exact.leverage * change), new
        if last:
            break
    at_start = _scale(terms, np.exp(params.log_noise - start.log_noise) / ratio)
    assert at_start.weight_gradients is not None
    selected = at_start.weight_gradients[select_gradient_groups(problem)]
    at_start = replace(at_start, weight_gradients=selected)
    if search is not None:
        c = search.next(c, bounded_ratio(problem, c, run.ratio(terms)) or 1.0, settled=False)
        terms = _scale(terms, np.full(problem.n_groups, redundancy / c))
    log_noise = _next_noise(problem, params.log_noise, terms, c)
    return Polished(log_noise, c, mean, at_start)


def approach(
    run: Run,
    start: Hyperparameters,
    post: Posterior,
    before: Posterior,
    leverage_share: Array | None = None,
) -> Hyperparameters:
    """Hyperparameters near the optimum, before any moments are known.

    Parameters
    ----------
    run : Run
        Problem, history and state.
    start : Hyperparameters
        Hyperparameters of another fit.
    post : Posterior
        The posterior there, or one near it.
    before : Posterior
        The posterior of the other fit.
    leverage_share : array of shape (J,), optional
        Leverages of the groups in the other fit, as shares of their weights; NaN where they are
        not known. By default all leverages are computed exactly.
    """
    problem, c = run.problem, start.redundancy
    with run.sweep():
        terms = _first_terms(problem, start, post, before, leverage_share)
    search = run.state.search if problem.estimates_redundancy else None
    polished = polish(run, start, post, terms, c, search=search)
    new = replace(start, log_noise=polished.log_noise, redundancy=polished.redundancy)
    return new if np.all(np.isfinite(new.log_noise)) else start


def _first_terms(
    problem: Problem,
    start: Hyperparameters,
    post: Posterior,
    before: Posterior,
    leverage_share: Array | None,
) -> GroupTerms:
    """Terms at the start, with the gradients of all groups.

    Known leverages change as their estimates do by the same random directions at the two
    posteriors: then the errors of both estimates are the same, and cancel.
    """
    oracle, c = problem.oracle, start.redundancy
    request = TermsRequest(gradient_groups=np.ones(problem.n_groups, dtype=bool))
    if leverage_share is None:
        return oracle.terms(post, start.log_noise, c, leave_out=False, request=request)
    request = replace(request, directions=probe_directions(post))
    terms = oracle.terms(post, start.log_noise, c, leave_out=False, request=request)
    known = leverage_share * problem.group_weight(c)
    if post is not before:
        request = TermsRequest(directions=probe_directions(before))
        old = oracle.terms(before, start.log_noise, c, leave_out=False, request=request).leverage
        known *= np.divide(terms.leverage, old, out=np.ones(old.size), where=old > 0)
    return replace(terms, leverage=np.where(np.isnan(known), terms.leverage, known))


def _next_noise(problem: Problem, log_noise: Array, terms: GroupTerms, redundancy: float) -> Array:
    """(J,) ln ε² by MacKay's rule; trusted groups have the noise of good groups."""
    rule = FixedPointRule(problem.n_targets, *problem.noise_bounds, redundancy)
    new = PooledRule(rule, problem.noise)(
        log_noise, problem.oracle.group_weight, terms.residual, terms.leverage
    )
    if problem.noise.held is None:
        return new
    return np.where(problem.noise.held, problem.noise.good_noise(new), new)


def _scale(terms: GroupTerms, factor: Array) -> GroupTerms:
    """The terms with the precisions of each group multiplied by ``factor`` (J,)."""
    gradients = terms.weight_gradients
    return GroupTerms(
        terms.residual * factor,
        terms.leverage * factor,
        weight_gradients=None if gradients is None else gradients * factor[:, None, None],
    )
