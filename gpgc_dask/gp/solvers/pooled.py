"""One noise variance for all groups: the start of every fit, and the whole fit of a plain GP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.solvers.convergence import Certificate, certify, gain_tolerance
from gpgc_dask.gp.solvers.problem import Hyperparameters, Point, Problem
from gpgc_dask.gp.solvers.run import Run
from gpgc_dask.gp.solvers.scales import optimise_scales

__all__ = ["pooled_start", "solve_pooled", "with_positive_scales"]

MIN_START_VARIANCE, START_VARIANCE = 1e-4, 0.1
"""Prior variance of f below which a start counts as no model, and the one that replaces it."""


def pooled_start(problem: Problem, moments: Moments) -> Point:
    """The optimum with one noise for all groups, at c = 1 or the fixed c, without a read.

    Parameters
    ----------
    problem : Problem
        The problem.
    moments : Moments
        Moments at unit noise and c = 1.
    """
    c = problem.redundancy or 1.0
    params = Hyperparameters(np.zeros(problem.n_groups), _even_scales(problem, 1.0), c)
    return _optimise(problem, problem.evaluate(params, moments.scale(1.0 / c)))


def solve_pooled(run: Run, point: Point) -> tuple[Point, Certificate]:
    """Solve for a single noise variance: only a new c takes a read, for its moment equation."""
    problem = run.problem
    while True:
        run.save(point)
        ratio = None
        if problem.estimates_redundancy:
            ratio = run.ratio(run.exact_terms(point))
        certificate = certify(problem, point, None, ratio)
        run.history.append("pooled", problem, point, certificate)
        if ratio is None or run.is_done(certificate):
            return point, certificate
        with run.algebra():
            c = run.state.search.next(point.params.redundancy, ratio)
            point = _optimise(problem, problem.with_redundancy(point, c))


def with_positive_scales(problem: Problem, point: Point) -> Point:
    """A start from which the scales can grow.

    If one noise for all groups explains the labels best without a model (σ = 0), every gradient is
    zero there, although one noise per group may well lead to a model.
    """
    if np.any(point.params.log_scales > _even_scales(problem, MIN_START_VARIANCE)):
        return point
    params = replace(point.params, log_scales=_even_scales(problem, START_VARIANCE))
    return problem.evaluate(params, point.moments)


def _optimise(problem: Problem, point: Point) -> Point:
    """The best common noise and scales; evaluations take no read, so there may be many."""
    evals = max(60, 10 * problem.max_iter)
    gain = 1e-2 * gain_tolerance(problem)
    return optimise_scales(problem, point, noise=True, gain=gain, max_evals=evals)


def _even_scales(problem: Problem, variance: float) -> Array:
    """(n_g,) ln σ² that give f this prior variance, in equal parts per feature group."""
    energy = np.where(problem.feature_energy > 0, problem.feature_energy, 1.0)
    return np.log(variance / (energy * energy.size))
