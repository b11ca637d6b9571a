"""One fit from validated data to the optimum: arithmetic, first read, solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.arrays import Features, group_sums
from gpgc_dask.checkpoint import Checkpoint, digest
from gpgc_dask.noise import NoiseModel
from gpgc_dask.oracle.dask import DaskSweeps, is_dask, sample_rows
from gpgc_dask.oracle.kernels import Arithmetic, Projection, probe_product
from gpgc_dask.oracle.numpy import NumpySweeps
from gpgc_dask.oracle.rows import RowSweeps, Survey, survey
from gpgc_dask.solvers import History, Problem, Solution, SolverName, pooled, solve
from gpgc_dask.solvers.problem import Point
from gpgc_dask.validation import Training

__all__ = ["Fitted", "Options", "fit"]


MIN_GROUPS_FOR_REDUNDANCY = 10
"""With fewer groups the moment equation for c is mostly chance: c stays 1."""

MAX_LOG_NOISE = float(np.log(1e4))
SAMPLE_ROWS = 2048
"""Rows looked at to choose the offset and to judge float32."""

MAX_PRECISION_ERROR = 2e-3
"""Error of the evidence from float32 products, in nats, up to which they are trusted; more with
more rows, as ``PRECISION_ERROR_A_ROW``."""

PRECISION_ERROR_A_ROW = 2e-7


class _PrecisionError(Exception):
    """float32 products are not good enough for this data."""


@dataclass(frozen=True)
class Options:
    """The part of an estimator's parameters that the fit needs, validated."""

    noise: NoiseModel
    solver: SolverName
    tol: float
    max_iter: int
    dtype: np.dtype[Any] | None
    redundancy: float | None
    noise_floor: float
    checkpoint: Path | None = None
    listeners: tuple[Callable[[dict[str, Any]], None], ...] = ()


@dataclass(frozen=True)
class Fitted:
    """A finished fit: the optimum and how it was reached."""

    problem: Problem
    solution: Solution
    history: History
    reads: float
    arithmetic: Arithmetic

    @property
    def point(self) -> Point:
        return self.solution.point


def fit(training: Training, options: Options) -> Fitted:
    """Fit in the data's own precision; in float64 where float32 products turn out unsafe."""
    X = training.X
    dtype = options.dtype or np.dtype(np.float64 if X.dtype == np.float64 else np.float32)
    sample = _sample(X)
    checkpoint = _checkpoint(training, options, sample)
    spent = 0.0
    found: Fitted | None = None
    if dtype == np.float32:
        offset = sample.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
        sweeps = _sweeps(training, Arithmetic(dtype, offset))
        try:
            found = _fit(training, options, sweeps, sample, checkpoint, spent)
        except (_PrecisionError, np.linalg.LinAlgError):
            spent = sweeps.reads
    if found is None:
        sweeps = _sweeps(training, Arithmetic(np.dtype(np.float64)))
        try:
            found = _fit(training, options, sweeps, sample, checkpoint, spent)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "X cannot be solved for even in float64: its columns differ too much in size; "
                "scale them (StandardScaler) or give columns of other size a feature group"
            ) from error
    if checkpoint is not None:
        checkpoint.remove()
    return found


def _sweeps(training: Training, arithmetic: Arithmetic) -> RowSweeps:
    kind = DaskSweeps if is_dask(training.X) else NumpySweeps
    return kind(training.X, training.rows, arithmetic)


def _sample(X: Any) -> Features:
    if is_dask(X):
        return sample_rows(X, SAMPLE_ROWS)
    return np.asarray(X[:: max(len(X) // SAMPLE_ROWS, 1)])


def _checkpoint(training: Training, options: Options, sample: Features) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    rows = training.rows
    identity = {
        "noise model": type(options.noise).__name__,
        "shape of X": list(training.X.shape),
        "values of X": digest(sample),
        "y and weights": digest(rows.codes, rows.weights),
        "groups": digest(rows.groups),
        "feature groups": digest(training.feature_index),
        "redundancy": options.redundancy,
        "noise_floor": options.noise_floor,
    }
    return Checkpoint(options.checkpoint, identity)


def _fit(
    training: Training,
    options: Options,
    sweeps: RowSweeps,
    sample: Features,
    checkpoint: Checkpoint | None,
    reads: float,
) -> Fitted:
    saved = None if checkpoint is None else checkpoint.load()
    with np.errstate(over="ignore", invalid="ignore"):
        first = survey(sweeps)
    if not np.all(np.isfinite(first.moments.gram)):
        raise np.linalg.LinAlgError("the squares of X overflow")
    _check_varying(first, training)
    problem = _problem(training, options, first)
    history = History(
        problem.oracle,
        sweeps.arithmetic.name,
        earlier_reads=reads,
        listeners=list(options.listeners),
        keep_state=None if checkpoint is None else checkpoint.save,
    )
    with history.phase("solve"):
        start = pooled(problem, first.moments)
    error = _precision_error(problem, start, sample, sweeps.arithmetic)
    if error > max(MAX_PRECISION_ERROR, PRECISION_ERROR_A_ROW * len(training.rows)):
        raise _PrecisionError
    history.precision_error = error
    if saved is not None:
        history.entries += saved.entries
        history.earlier_reads += saved.entries[-1]["reads"]
        moments = problem.oracle.moments(saved.state.log_noise, saved.state.redundancy)
        start = problem.evaluate(saved.state, moments)
    solution = solve(problem, start, history, options.solver)
    return Fitted(problem, solution, history, history.reads, sweeps.arithmetic)


def _problem(training: Training, options: Options, first: Survey) -> Problem:
    n = training.feature_groups.size
    energy = group_sums(training.feature_index, np.diagonal(first.moments.gram), n)
    redundancy = options.redundancy
    if redundancy is None and training.rows.n_groups < MIN_GROUPS_FOR_REDUNDANCY:
        redundancy = 1.0
    return Problem(
        oracle=first.oracle,
        noise=options.noise,
        feature_index=training.feature_index,
        feature_energy=energy / training.rows.weights.sum(),
        noise_bounds=(float(np.log(options.noise_floor)), MAX_LOG_NOISE),
        redundancy=redundancy,
        tol=options.tol,
        max_iter=options.max_iter,
    )


def _check_varying(first: Survey, training: Training) -> None:
    weight = training.rows.weights.sum()
    mean_square = np.diagonal(first.moments.gram) / weight
    if np.all(first.column_variance <= 1e-12 * mean_square):
        raise ValueError(
            "X has constant features only: every column has the same value in all rows, "
            "so no model can tell the classes apart; add features that vary"
        )


def _precision_error(
    problem: Problem, point: Point, sample: Features, arithmetic: Arithmetic
) -> float:
    """Nats that the products' arithmetic costs, seen on a sample of rows at the pooled fit."""
    precision = np.exp(-point.state.log_noise.mean()) / point.state.redundancy
    error = probe_product(
        Projection(point.post, arithmetic), sample, np.full(len(sample), precision)
    )
    return error * problem.total_weight / len(sample)
