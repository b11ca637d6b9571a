"""scipy's L-BFGS-B on the logs, scaled by their Fisher information: reference and certificate."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from gpgc_dask.arrays import Array
from gpgc_dask.redundancy import RedundancySearch, moment_ratio
from gpgc_dask.solvers.history import History
from gpgc_dask.solvers.problem import Certificate, Point, Problem

__all__ = ["lbfgs"]


MAX_REDUNDANCY_ROUNDS = 12


class _CertifiedError(Exception):
    """Raised out of scipy's loop once a point is certified."""


def lbfgs(
    problem: Problem, point: Point, history: History, search: RedundancySearch
) -> tuple[Point, Certificate]:
    """Minimise at fixed c; where c is solved for, alternate with its moment equation."""
    rounds = MAX_REDUNDANCY_ROUNDS if problem.solves_redundancy else 1
    for _ in range(rounds):
        point, certificate = _minimise(problem, point, history)
        if certificate.ratio is None or problem.is_converged(certificate):
            break
        with history.phase("solve"):
            c = search.next(point.state.redundancy, certificate.ratio)
            point = problem.with_redundancy(point, c)
    return point, certificate


def _minimise(problem: Problem, start: Point, history: History) -> tuple[Point, Certificate]:
    """L-BFGS-B at the start's c: two reads an evaluation (moments, then group terms)."""
    oracle, c = problem.oracle, start.state.redundancy
    fisher_noise, fisher_scales = problem.fisher(c)
    index = problem.noise_index
    root = np.sqrt(np.concatenate([fisher_noise, fisher_scales]))
    n_noise = len(fisher_noise)
    low, high = problem.noise_bounds
    scale_low, scale_high = problem.scale_bounds
    lower = np.append(np.full(n_noise, low), scale_low)
    upper = np.append(np.full(n_noise, high), scale_high)
    best: list[tuple[Point, Certificate]] = []
    first = start

    def evaluate(z: Array) -> tuple[float, Array]:
        nonlocal first
        x = np.clip(z / root, lower, upper)
        state = replace(start.state, log_noise=x[:n_noise][index], log_scales=x[n_noise:])
        with history.phase("sweep"):
            # The start's moments are known already: its first evaluation costs one read.
            known = first is start and np.allclose(
                state.log_noise, start.state.log_noise, atol=1e-12
            )
            moments = start.moments if known else oracle.moments(state.log_noise, c)
        with history.phase("solve"):
            found = problem.evaluate(state, moments)
        with history.phase("sweep"):
            terms = oracle.terms(
                found.post, state.log_noise, c, leave_out=problem.solves_redundancy
            )
        ratio = moment_ratio(terms, problem.n_targets) if problem.solves_redundancy else None
        certificate = problem.certify(found, terms, ratio)
        history.append("lbfgs", problem, found, certificate)
        if not best or found.value < best[0][0].value:
            best[:] = [(found, certificate)]
        if problem.is_converged(replace(certificate, ratio=None)):
            best[:] = [(found, certificate)]
            raise _CertifiedError
        first = found
        gradient = np.concatenate(problem.gradient(found, terms))
        return found.value, gradient / root

    x = np.empty(n_noise + len(fisher_scales))
    x[index] = start.state.log_noise
    x[n_noise:] = start.state.log_scales
    with suppress(_CertifiedError):
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
