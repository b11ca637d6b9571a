"""Ways to the optimum of the evidence: ``solve`` is the only door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.solvers.fixed_point import DOUBT, fixed_point
from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.lbfgs import lbfgs
from gpgc_dask.gp.solvers.problem import Certificate, Point, Problem, State
from gpgc_dask.gp.solvers.redundancy import RedundancySearch, moment_ratio
from gpgc_dask.gp.solvers.scales import tune
from gpgc_dask.gp.solvers.state import Course

__all__ = [
    "SOLVERS",
    "Course",
    "History",
    "Problem",
    "Solution",
    "SolverName",
    "State",
    "pooled",
    "solve",
]


SolverName = Literal["auto", "fixed-point", "lbfgs"]
SOLVERS: tuple[SolverName, ...] = ("auto", "fixed-point", "lbfgs")

COLLAPSED, REVIVED = 1e-4, 0.1
"""Prior variance of f below which a start counts as no model, and the one it is given then."""


@dataclass(frozen=True)
class Solution:
    """The point where a solver stopped, and whether it is certified."""

    point: Point
    converged: bool


def solve(
    problem: Problem,
    start: Point,
    history: History,
    solver: SolverName = "auto",
    course: Course | None = None,
) -> Solution:
    """Maximise the evidence from ``start``, usually :func:`pooled`.

    From the pooled noise the useful optimum is reached also where constant-label groups make
    the evidence unbounded. ``course`` is that of a fit which was stopped at ``start``.
    """
    resumed = course is not None
    course = course or Course(RedundancySearch(*problem.redundancy_bounds), DOUBT)
    if course.finished is not None and problem.is_converged(course.finished):
        return Solution(start, True)
    course.finished = None
    if problem.noise.n_parameters == 1:
        point, certificate = _single_noise(problem, start, history, course)
        return _ended(problem, point, certificate, history, course)
    begin = start if resumed else _revived(problem, start)
    if solver == "lbfgs" or (solver == "auto" and course.phase == "lbfgs"):
        point, certificate = lbfgs(problem, begin, history, course)
    else:
        patient = solver == "fixed-point"
        point, certificate = fixed_point(problem, begin, history, course, patient=patient)
        unfinished = not problem.is_converged(certificate) and history.left(problem) > 0
        if solver == "auto" and unfinished:
            point, certificate = lbfgs(problem, point, history, course)
    if begin is not start and start.value < point.value and not problem.solves_redundancy:
        point, certificate = start, problem.certify(start, None, None)
    return _ended(problem, point, certificate, history, course)


def _ended(
    problem: Problem, point: Point, certificate: Certificate, history: History, course: Course
) -> Solution:
    converged = problem.is_converged(certificate)
    history.keep(point, replace(course, finished=certificate if converged else None))
    return Solution(point, converged)


def pooled(problem: Problem, moments: Moments) -> Point:
    """The single-noise optimum at c = 1 or the given c, from moments at unit noise; no read."""
    c = problem.redundancy or 1.0
    state = State(np.zeros(problem.n_groups), _modest_scales(problem, 1.0), c)
    point = problem.evaluate(state, moments.scale(1.0 / c))
    return _tuned(problem, point)


def _tuned(problem: Problem, point: Point) -> Point:
    """The best common noise and scales; evaluations cost no read, so there may be many."""
    evals = max(60, 10 * problem.max_iter)
    return tune(problem, point, noise=True, gain=1e-2 * problem.gain_tolerance, max_evals=evals)


def _modest_scales(problem: Problem, variance: float) -> Array:
    """ln σ² that give f this prior variance, shared evenly by the feature groups."""
    energy = np.where(problem.feature_energy > 0, problem.feature_energy, 1.0)
    return np.log(variance / (energy * energy.size))


def _revived(problem: Problem, point: Point) -> Point:
    """A start from which the scales can grow.

    Where one noise for all explains the labels best by no model at all (σ = 0), every gradient
    is zero there, though a noise a group may well find a model. Start beside it.
    """
    modest = _modest_scales(problem, COLLAPSED)
    if np.any(point.state.log_scales > modest):
        return point
    state = replace(point.state, log_scales=_modest_scales(problem, REVIVED))
    return problem.evaluate(state, point.moments)


def _single_noise(
    problem: Problem, point: Point, history: History, course: Course
) -> tuple[Point, Certificate]:
    """One variance for all: (τ, σ) cost no read, each new c one sweep for its moment equation."""
    while True:
        history.keep(point, course)
        ratio = None
        if problem.solves_redundancy:
            state = point.state
            with history.phase("sweep"):
                terms = problem.oracle.terms(
                    point.post, state.log_noise, state.redundancy, leave_out=True
                )
            ratio = moment_ratio(terms, problem.n_targets)
        certificate = problem.certify(point, None, ratio)
        history.append("pooled", problem, point, certificate)
        if ratio is None or problem.is_converged(certificate) or history.left(problem) <= 0:
            return point, certificate
        with history.phase("solve"):
            c = course.search.next(point.state.redundancy, ratio)
            point = _tuned(problem, problem.with_redundancy(point, c))
