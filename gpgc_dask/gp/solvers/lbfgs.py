"""scipy's L-BFGS-B on the logs, scaled by their Fisher information: reference and certificate."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.problem import Certificate, Point, Problem
from gpgc_dask.gp.solvers.redundancy import moment_ratio
from gpgc_dask.gp.solvers.state import Course

__all__ = ["lbfgs"]


class _StopError(Exception):
    """Raised out of scipy's loop once a point is certified or no iteration is left."""


def lbfgs(
    problem: Problem, point: Point, history: History, course: Course
) -> tuple[Point, Certificate]:
    """Minimise at fixed c; where c is solved for, alternate with its moment equation."""
    course.phase = "lbfgs"
    while True:
        point, certificate = _minimise(problem, point, history, course)
        done = problem.is_converged(certificate) or history.left(problem) <= 0
        if certificate.ratio is None or done:
            return point, certificate
        with history.phase("solve"):
            c = course.search.next(point.state.redundancy, certificate.ratio)
            point = problem.with_redundancy(point, c)


def _minimise(
    problem: Problem, start: Point, history: History, course: Course
) -> tuple[Point, Certificate]:
    """L-BFGS-B at the start's c: two reads an evaluation (moments, then group terms).

    The best point so far is what is kept: scipy's memory of earlier ones cannot be.
    """
    oracle, c = problem.oracle, start.state.redundancy
    fisher_noise, fisher_scales = problem.fisher(c)
    root = np.sqrt(np.concatenate([fisher_noise, fisher_scales]))
    n_noise = len(fisher_noise)
    low, high = problem.noise_bounds
    scale_low, scale_high = problem.scale_bounds
    lower = np.append(np.full(n_noise, low), scale_low)
    upper = np.append(np.full(n_noise, high), scale_high)
    best: list[tuple[Point, Certificate]] = []

    def evaluate(z: Array) -> tuple[float, Array]:
        x = np.clip(z / root, lower, upper)
        state = replace(
            start.state, log_noise=problem.noise.per_group(x[:n_noise]), log_scales=x[n_noise:]
        )
        with history.phase("sweep"):
            # The start's moments are known already: its first evaluation costs one read.
            moments = oracle.moments(state.log_noise, c) if best else start.moments
        with history.phase("solve"):
            found = problem.evaluate(state, moments)
        with history.phase("sweep"):
            terms = oracle.terms(
                found.post, state.log_noise, c, leave_out=problem.solves_redundancy
            )
        ratio = moment_ratio(terms, problem.n_targets) if problem.solves_redundancy else None
        certificate = problem.certify(found, terms, ratio)
        history.append("lbfgs", problem, found, certificate)
        certified = problem.is_converged(replace(certificate, ratio=None))
        if not best or certified or found.value < best[0][0].value:
            best[:] = [(found, certificate)]
        history.keep(best[0][0], course)
        if certified or history.left(problem) <= 0:
            raise _StopError
        gradient = np.concatenate(problem.gradient(found, terms))
        return found.value, gradient / root

    x = np.empty(n_noise + len(fisher_scales))
    x[:n_noise] = problem.noise.values(start.state.log_noise)
    x[n_noise:] = start.state.log_scales
    with suppress(_StopError):
        minimize(
            evaluate,
            np.clip(x, lower, upper) * root,
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack([lower * root, upper * root]),
            options={
                "gtol": 0.0,
                "ftol": 1e-14,
                "maxcor": 20,
                "maxiter": problem.max_iter,
                "maxfun": 4 * problem.max_iter,
            },
        )
    return best[0]
