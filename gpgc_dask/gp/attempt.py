"""One attempt at a fit, with products of one precision: first read, problem, solver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.arrays import Index, group_sums
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.checkpoint import Checkpoint, SavedFit
from gpgc_dask.gp.evidence import Moments, Posterior, posterior, posterior_moments
from gpgc_dask.gp.noise import FirstNoiseRule, NoiseModel, groupwise
from gpgc_dask.gp.options import FitOptions, Start
from gpgc_dask.gp.oracle.base import SweepOracle, TermsRequest
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.precision import PrecisionProbe
from gpgc_dask.gp.oracle.rows import STATISTICS_BYTES, RowSweeps, Survey, survey
from gpgc_dask.gp.solvers import (
    History,
    Hyperparameters,
    Point,
    Problem,
    Solution,
    SolverState,
    pooled_start,
    solve,
)
from gpgc_dask.gp.solvers.convergence import PrecisionError
from gpgc_dask.gp.solvers.polish import approach, can_polish
from gpgc_dask.gp.solvers.probes import probe_directions
from gpgc_dask.gp.solvers.run import Run, algebra
from gpgc_dask.gp.training import Training
from gpgc_dask.gp.warm_start import Sample

__all__ = ["Attempt", "FitResult", "make_problem"]

WARM_STEPS = 2
"""Maximum number of steps of the fit of a warm start to its sample."""

WARM_GAIN = 1e-2
"""Predicted gain in nats per row at which that fit is done."""


@dataclass(frozen=True)
class FitResult:
    """Result of a fit.

    Attributes
    ----------
    problem : Problem
        The problem that was solved.
    solution : Solution
        The point where the solver stopped.
    history : History
        The history of the fit.
    """

    problem: Problem
    solution: Solution
    history: History

    @property
    def point(self) -> Point:
        """The point where the solver stopped."""
        return self.solution.point


@dataclass(frozen=True)
class Attempt:
    """One attempt at a fit, with products of one precision.

    Attributes
    ----------
    training : Training
        Training data.
    options : FitOptions
        Options of the fit.
    sample : Sample
        Some rows, whole groups of them if the fit can use a warm start.
    probe : PrecisionProbe
        Estimates the error of the evidence that the arithmetic causes.
    sweeps : RowSweeps
        Sweeps over the rows in this arithmetic.
    history : History
        Collects the entries of the fit.
    checkpoint : Checkpoint or None
        File that the state is saved to after every read.
    """

    training: Training
    options: FitOptions
    sample: Sample
    probe: PrecisionProbe
    sweeps: RowSweeps
    history: History
    checkpoint: Checkpoint | None

    def run(self, saved: SavedFit) -> FitResult | SavedFit:
        """Fit from where an earlier attempt or run stopped.

        Returns
        -------
        FitResult or SavedFit
            The result; or where the fit stopped because the arithmetic is not precise enough.
        """
        history = self.history
        try:
            problem, start = self._start(saved)
            with self._algebra():
                start = problem.with_held_noise(start)
            solution = solve(
                problem,
                start,
                history,
                self.options.solver,
                state=saved.solver_state,
                near=saved.params is None and self.options.start is not None,
                save_state=self._save,
                predict=self.options.left_out,
            )
            gave_up = not solution.converged and history.n_iterations < problem.max_iter
            if gave_up and self.probe.arithmetic.dtype == np.float32:
                # Rounding hides the gain that is left.
                raise PrecisionError(solution.point.params)
        except PrecisionError as error:
            return SavedFit(error.params, history.entries, history.reads)
        except np.linalg.LinAlgError:
            return SavedFit(saved.params, history.entries, history.reads)
        return FitResult(problem, solution, history)

    def _save(self, point: Point, state: SolverState) -> None:
        if self.checkpoint is not None:
            self.checkpoint.save(point, state, self.history)

    def _start(self, saved: SavedFit) -> tuple[Problem, Point]:
        """The problem, and where to start: at a saved point, or after a first read.

        The first read follows a warm start if there is a sample of groups, else it is a survey.
        """
        if saved.params is not None:
            return self._resume(saved.params, saved.moments)
        if self.options.start is not None:
            return self._start_at(self.options.start)
        if self.sample.groups is not None and self.sweeps.whole_groups:
            return self._warm_start(self.sample.groups)
        first = self._survey()
        self.history.oracle = first.oracle
        problem = self._problem(first.oracle, first.moments)
        with self._algebra():
            return problem, pooled_start(problem, first.moments)

    def _start_at(self, start: Start) -> tuple[Problem, Point]:
        """Start at what another model has learned, with a survey if most groups are large.

        Their sufficient statistics then serve all further steps.
        """
        params, sizes = start.params, self.training.rows.group_sizes
        large = sizes > self.training.feature_index.size
        if 2 * sizes[large].sum() < sizes.sum():
            return self._resume(self._approach(start), None)
        first = self._survey()
        self.history.oracle = first.oracle
        with self.history.timed("sweep"):
            moments = first.oracle.moments(params.log_noise, params.redundancy)
        problem = self._problem(first.oracle, moments)
        with self._algebra():
            return problem, problem.evaluate(params, moments)

    def _approach(self, start: Start) -> Hyperparameters:
        """Hyperparameters nearer to the optimum, if a posterior is known and reads are cheap."""
        problem = make_problem(self.training, self.options, self.sweeps)
        if start.post is None or not can_polish(problem):
            return start.params
        run = Run(problem, self.history, SolverState.initial(problem))
        post = self._correct(start, start.post)
        with np.errstate(over="ignore", invalid="ignore"):
            return approach(run, start.params, post, start.post, start.leverage_share)

    def _correct(self, start: Start, post: Posterior) -> Posterior:
        """The posterior with the labels and the noise that some groups have now.

        Only the rows of the groups whose noise has changed are read. Their labels in the model are
        not known: they are taken to be those of now, as most of them had little weight there.
        """
        params = start.params
        scales = np.exp(0.5 * params.log_scales)[self.training.feature_index]
        more = np.zeros(params.log_noise.size)
        if start.post_noise is not None and scales.all():
            more = np.exp(-params.log_noise) - np.exp(-start.post_noise)
        if not more.any():
            return post
        with self._algebra():
            moments = posterior_moments(post, scales)
        for sign in (1.0, -1.0):
            changed = np.flatnonzero(sign * more > 0)
            if changed.size:
                own = self.sweeps.select_groups(changed)
                with self.history.timed("sweep"):
                    part = own.moments(-np.log(sign * more[changed]), params.redundancy)
                self.history.reads_before += own.reads
                moments = moments + part.scale(sign)
        try:
            with self._algebra():
                return posterior(moments, scales)
        except np.linalg.LinAlgError:  # Subtracted rows had smaller class weights in the model.
            return post

    def _resume(self, params: Hyperparameters, moments: Moments | None) -> tuple[Problem, Point]:
        """Start at saved hyperparameters; their moments are read if they were not saved."""
        if moments is None:
            with self.history.timed("sweep"):
                moments = self.sweeps.moments(params.log_noise, params.redundancy)
        if not np.all(np.isfinite(moments.gram)):
            self._survey()  # names the rows that are not finite
        problem = self._problem(self.sweeps, moments)
        with self._algebra():
            return problem, problem.evaluate(params, moments)

    def _warm_start(self, groups: Index) -> tuple[Problem, Point]:
        """Start with scales, redundancy and a posterior from the sample of some groups.

        One read then gives every group a noise of its own by that posterior, and the moments
        there.
        """
        with self.history.timed("sample"):
            fitted, fitted_noise = self._fit_sample(groups)
        params = fitted.params
        rule = FirstNoiseRule(
            self.training.rows.n_targets, *self.options.noise_bounds, redundancy=params.redundancy
        )
        good = fitted_noise.good_noise(params.log_noise)
        held = self.training.noise.held_noise(np.full(self.training.rows.n_groups, good))
        request = TermsRequest(directions=probe_directions(fitted.post), held_noise=held)
        with self.history.timed("sweep"), np.errstate(over="ignore", invalid="ignore"):
            result = self.sweeps.first_step(fitted.post, params.redundancy, rule, request)
        _check_overflow(result.moments)
        problem = self._problem(self.sweeps, result.moments)
        with self._algebra():
            start = replace(params, log_noise=result.log_noise)
            return problem, problem.evaluate(start, result.moments)

    def _fit_sample(self, groups: Index) -> tuple[Point, NoiseModel]:
        """The point after a few steps on the sample alone, and the noise model there."""
        _, rows = self.training.rows.select(groups)
        arithmetic = self.probe.arithmetic
        sweeps = NumpySweeps(self.sample.features, rows, arithmetic)
        first = survey(sweeps, 0)
        held = self.training.noise.held
        noise = NoiseModel(groupwise(rows.n_groups), None if held is None else held[groups])
        problem = replace(
            make_problem(self.training, self.options, first.oracle, first.moments),
            noise=noise,
            held_moments=_held_moments(sweeps, noise),
            tol=WARM_GAIN * len(rows),
            max_iter=WARM_STEPS,
        )
        history = History(first.oracle, arithmetic.name)
        with algebra(history, problem.n_features):
            start = pooled_start(problem, first.moments)
        return solve(problem, start, history, "fixed-point").point, noise

    def _survey(self) -> Survey:
        """The first read; raise an InputError if no feature varies."""
        training = self.training
        n_groups = training.rows.n_groups
        # With one noise for all groups and a fixed c the moments are enough.
        needs_groups = not training.noise.pooled or self.options.redundancy_for(n_groups) is None
        budget = STATISTICS_BYTES if needs_groups and n_groups > 1 else 0
        with np.errstate(over="ignore", invalid="ignore"):
            first = survey(self.sweeps, budget)
        _check_overflow(first.moments)
        mean_square = np.diagonal(first.moments.gram) / training.rows.weights.sum()
        constant = first.column_variance <= 1e-12 * mean_square
        if np.all(constant) and not np.ptp(self.probe.sample, axis=0).any():
            raise InputError(
                "X has constant features only: every column has the same value in all rows, "
                "so no model can separate the classes; add features that vary"
            )
        return first

    def _problem(self, oracle: SweepOracle, moments: Moments) -> Problem:
        def precision_error(point: Point) -> float:
            params = point.params
            return self.probe.total_error(
                point.post, params.log_noise, params.redundancy, oracle.group_weight
            )

        noise, rows = self.training.noise, self.training.rows
        if noise.held is not None:
            self.history.reads_before += rows.group_sizes[noise.held].sum() / len(rows)
        with self.history.timed("sweep"):
            held = _held_moments(self.sweeps, noise)
        problem = make_problem(self.training, self.options, oracle, moments, precision_error)
        return replace(problem, held_moments=held)

    def _algebra(self) -> AbstractContextManager[None]:
        return algebra(self.history, self.training.feature_index.size)


def make_problem(
    training: Training,
    options: FitOptions,
    oracle: SweepOracle,
    moments: Moments | None = None,
    precision_error: Callable[[Point], float] = lambda point: 0.0,
) -> Problem:
    """The problem of a fit.

    Parameters
    ----------
    training : Training
        Training data.
    options : FitOptions
        Options of the fit.
    oracle : SweepOracle
        Sweeps over the data.
    moments : Moments, optional
        Moments at any noise, for the size of the features, which the bounds of scales depend on.
    precision_error : callable, optional
        Error of the evidence in nats that the arithmetic causes at a point. By default 0.
    """
    energy = np.ones(training.feature_groups.size)
    if moments is not None:
        energy = group_sums(training.feature_index, np.diagonal(moments.gram), energy.size)
        energy *= training.rows.n_targets / moments.yy
    return Problem(
        oracle=oracle,
        noise=training.noise,
        feature_index=training.feature_index,
        feature_energy=energy,
        noise_bounds=options.noise_bounds,
        redundancy=options.redundancy_for(training.rows.n_groups),
        tol=options.tol,
        max_iter=options.max_iter,
        precision_error=precision_error,
    )


def _held_moments(sweeps: RowSweeps, noise: NoiseModel) -> Moments | None:
    """Moments of the trusted groups at unit noise, from a read of their rows alone."""
    if noise.held is None:
        return None
    own = sweeps.select_groups(np.flatnonzero(noise.held))
    return own.moments(np.zeros(own.group_weight.size), 1.0)


def _check_overflow(moments: Moments) -> None:
    if not np.all(np.isfinite(moments.gram)):
        raise np.linalg.LinAlgError("the squares of X overflow")
