"""SciPy's L-BFGS-B on the logarithms, scaled by their Fisher information.

It is the reference for the other solvers, and takes over where they are slow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.solvers.convergence import Certificate, is_converged
from gpgc_dask.gp.solvers.problem import Hyperparameters, Point
from gpgc_dask.gp.solvers.run import Run

__all__ = ["solve_lbfgs"]


class _StopError(Exception):
    """Raised to leave SciPy's loop: the optimum is certified or no iteration is left."""


def solve_lbfgs(run: Run, point: Point) -> tuple[Point, Certificate]:
    """Minimise at fixed c; if c is estimated, alternate with its moment equation.

    The noise of trusted groups is fixed in the same way.
    """
    run.state.phase = "lbfgs"
    problem = run.problem
    while True:
        point, certificate = _minimise(run, point)
        fixed = certificate.ratio is None and problem.noise.held is None
        if fixed or run.is_done(certificate):
            return point, certificate
        with run.algebra():
            if certificate.ratio is not None:
                c = run.state.search.next(point.params.redundancy, certificate.ratio)
                point = problem.with_redundancy(point, c)
            point = problem.with_held_noise(point)


def _minimise(run: Run, start: Point) -> tuple[Point, Certificate]:
    """Minimise at the c of the start."""
    objective = _Objective(run, start)
    max_iter = run.problem.max_iter
    with suppress(_StopError):
        minimize(
            objective,
            objective.start,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds,
            options={
                "gtol": 0.0,
                "ftol": 1e-14,
                "maxcor": 20,
                "maxiter": max_iter,
                "maxfun": 4 * max_iter,
            },
        )
    return objective.best


class _Objective:
    """Value and gradient for SciPy, in two reads per evaluation: moments, then group terms.

    The variables z are ln ε² (M,) and ln σ² (n_g,), multiplied by the root of their Fisher
    information. The best point so far is remembered, and saved: a resumed run starts there,
    without SciPy's memory of earlier points.
    """

    def __init__(self, run: Run, start: Point) -> None:
        problem = run.problem
        self.run = run
        self.initial = start
        fisher_noise, fisher_scales = problem.fisher(start.params.redundancy)
        self.n_noise = len(fisher_noise)
        self.root = np.sqrt(np.concatenate([fisher_noise, fisher_scales]))
        low, high = problem.noise_bounds
        scale_low, scale_high = problem.scale_bounds
        self.lower = np.append(np.full(self.n_noise, low), scale_low)
        self.upper = np.append(np.full(self.n_noise, high), scale_high)
        self._best: tuple[Point, Certificate] | None = None

    @property
    def start(self) -> Array:
        """z of the initial point."""
        params = self.initial.params
        x = np.append(self.run.problem.noise.values(params.log_noise), params.log_scales)
        return np.clip(x, self.lower, self.upper) * self.root

    @property
    def bounds(self) -> Array:
        """(n, 2) bounds of z."""
        return np.column_stack([self.lower * self.root, self.upper * self.root])

    @property
    def best(self) -> tuple[Point, Certificate]:
        """The best point so far, or the one that is certified."""
        assert self._best is not None  # SciPy evaluates the start first.
        return self._best

    def _params(self, z: Array) -> Hyperparameters:
        x = np.clip(z / self.root, self.lower, self.upper)
        before = self.initial.params.log_noise
        log_noise = self.run.problem.noise.per_group(x[: self.n_noise], before)
        return replace(self.initial.params, log_noise=log_noise, log_scales=x[self.n_noise :])

    def __call__(self, z: Array) -> tuple[float, Array]:
        run, problem, params = self.run, self.run.problem, self._params(z)
        with run.sweep():
            # The moments of the initial point are known: its evaluation takes one read.
            moments = self.initial.moments
            if self._best is not None:
                moments = problem.oracle.moments(params.log_noise, params.redundancy)
        with run.algebra():
            point = problem.evaluate(params, moments)
        terms = run.exact_terms(point)
        certificate = run.certify("lbfgs", point, terms)
        certified = is_converged(problem, replace(certificate, ratio=None, held_change=0.0))
        if self._best is None or certified or point.value < self._best[0].value:
            self._best = point, certificate
        run.save(self._best[0])
        if certified or run.iterations_left <= 0:
            raise _StopError
        return point.value, np.concatenate(problem.gradient(point, terms)) / self.root
