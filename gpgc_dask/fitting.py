"""One fit from validated data to the optimum: arithmetic, first read, solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.arrays import Array, Features, Index, group_sums
from gpgc_dask.checkpoint import Checkpoint, Saved, digest
from gpgc_dask.noise import NoiseModel
from gpgc_dask.oracle.dask import DaskSweeps, is_dask, sample_rows
from gpgc_dask.oracle.kernels import Arithmetic
from gpgc_dask.oracle.numpy import NumpySweeps
from gpgc_dask.oracle.precision import PrecisionProbe
from gpgc_dask.oracle.rows import STATISTICS_BYTES, RowSweeps, Survey, survey
from gpgc_dask.solvers import History, Problem, Solution, SolverName, State, pooled, solve
from gpgc_dask.solvers.problem import Point, PrecisionError
from gpgc_dask.validation import Training

__all__ = ["Fitted", "Options", "fit", "fit_surveyed", "sample_offset"]


MIN_GROUPS_FOR_REDUNDANCY = 10
"""With fewer groups the moment equation for c is mostly chance: c stays 1."""

MAX_NOISE = 1e4
"""Largest noise variance, in units of the ±1 labels."""

FLOAT32_RANGE = (1e-12, 1e12)
"""Sizes of features whose squares float32 holds with room to spare."""

SAMPLE_ROWS = 2048
"""Rows looked at to choose the offset and to judge float32."""


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
    keeps_checkpoint: bool = False
    """Whether the checkpoint of a finished fit stays: somebody removes it later."""
    listeners: tuple[Callable[[dict[str, Any]], None], ...] = ()


@dataclass(frozen=True)
class Fitted:
    """A finished fit: the optimum and how it was reached."""

    problem: Problem
    solution: Solution
    history: History

    @property
    def point(self) -> Point:
        return self.solution.point


def fit(training: Training, options: Options) -> Fitted:
    """Fit in the data's own precision; in float64 where float32 products turn out unsafe."""
    index, sample = _sample(training.X)
    checkpoint = _checkpoint(training, options, sample)
    begin = (checkpoint and checkpoint.load()) or Saved(None, [], 0.0)
    inherited = len(begin.entries)
    offset = sample_offset(sample)
    for dtype in _precisions(training.X, sample, options):
        found = _attempt(
            training,
            options,
            PrecisionProbe(sample, training.rows.take(index), Arithmetic(dtype, offset)),
            checkpoint,
            begin,
            inherited,
        )
        if isinstance(found, Fitted):
            break
        begin = found
    else:
        raise ValueError(
            "X cannot be solved for even in float64: its columns are too large, or differ too much "
            "in size; scale them (StandardScaler) or give columns of other size a feature group"
        )
    if checkpoint is not None and found.solution.converged and not options.keeps_checkpoint:
        checkpoint.remove()
    return found


def fit_surveyed(training: Training, options: Options, first: Survey) -> Fitted:
    """A fit with one noise for all and a fixed c, whose only read is done: ``first`` in float64."""
    nothing = np.zeros(0, dtype=np.intp)
    sample = np.empty((0, training.feature_index.size))
    probe = PrecisionProbe(sample, training.rows.take(nothing), Arithmetic(np.dtype(np.float64)))
    history = History(first.oracle, probe.arithmetic.name, listeners=list(options.listeners))
    problem = _problem(training, options, first, probe)
    solution = solve(problem, pooled(problem, first.moments), history, options.solver)
    return Fitted(problem, solution, history)


def sample_offset(sample: Features) -> Array:
    """About the column means, exactly representable in float32: what products subtract first."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sample.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(mean), mean, 0.0)


def _precisions(X: Any, sample: Features, options: Options) -> list[np.dtype[Any]]:
    """The precisions to try, in order."""
    wide = np.dtype(np.float64)
    if (X.dtype if options.dtype is None else options.dtype) == wide:
        return [wide]
    size = np.abs(sample).max(0).astype(np.float64)
    low, high = FLOAT32_RANGE
    safe = np.all((size == 0) | ((size > low) & (size < high)))
    return [np.dtype(np.float32), wide] if safe else [wide]


def _sweeps(training: Training, arithmetic: Arithmetic) -> RowSweeps:
    kind = DaskSweeps if is_dask(training.X) else NumpySweeps
    return kind(training.X, training.rows, arithmetic)


def _sample(X: Any) -> tuple[Index, Features]:
    """Numbers and features of some rows spread over X."""
    if is_dask(X):
        return sample_rows(X, SAMPLE_ROWS)
    index = np.arange(0, len(X), max(len(X) // SAMPLE_ROWS, 1))
    return index, np.asarray(X[index])


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


def _attempt(
    training: Training,
    options: Options,
    probe: PrecisionProbe,
    checkpoint: Checkpoint | None,
    begin: Saved,
    inherited: int,
) -> Fitted | Saved:
    """The fit in the probe's arithmetic, or where it stopped because that was not enough."""
    arithmetic = probe.arithmetic
    sweeps = _sweeps(training, arithmetic)
    history = History(
        sweeps,
        arithmetic.name,
        earlier_reads=begin.reads,
        inherited=inherited,
        listeners=list(options.listeners),
        keep_state=None if checkpoint is None else checkpoint.save,
        entries=list(begin.entries),
    )
    try:
        first = _first_read(training, options, sweeps, probe.sample)
        history.oracle = first.oracle
        problem = _problem(training, options, first, probe)
        start = _start(problem, first, begin.state, history)
        solution = solve(problem, start, history, options.solver)
        if not solution.converged and history.left(problem) > 0 and arithmetic.dtype == np.float32:
            # The solver gave up, not the user: rounding hides what is left to win.
            raise PrecisionError(solution.point.state)
    except PrecisionError as stopped:
        return Saved(stopped.state, history.entries, history.reads)
    except np.linalg.LinAlgError:
        return Saved(begin.state, history.entries, history.reads)
    return Fitted(problem, solution, history)


def _first_read(
    training: Training, options: Options, sweeps: RowSweeps, sample: Features
) -> Survey:
    # One noise for all and a fixed c: the moments say everything, groups are never asked for.
    asks_groups = options.noise.separable or _redundancy(training, options) is None
    budget = STATISTICS_BYTES if asks_groups and training.rows.n_groups > 1 else 0
    with np.errstate(over="ignore", invalid="ignore"):
        first = survey(sweeps, budget)
    if not np.all(np.isfinite(first.moments.gram)):
        raise np.linalg.LinAlgError("the squares of X overflow")
    mean_square = np.diagonal(first.moments.gram) / training.rows.weights.sum()
    still = first.column_variance <= 1e-12 * mean_square
    if np.all(still) and not np.ptp(sample, axis=0).any():
        raise ValueError(
            "X has constant features only: every column has the same value in all rows, "
            "so no model can tell the classes apart; add features that vary"
        )
    return first


def _start(problem: Problem, first: Survey, state: State | None, history: History) -> Point:
    """The pooled fit, or the state that an earlier attempt had reached."""
    if state is None:
        with history.phase("solve"):
            return pooled(problem, first.moments)
    with history.phase("sweep"):
        moments = problem.oracle.moments(state.log_noise, state.redundancy)
    return problem.evaluate(state, moments)


def _redundancy(training: Training, options: Options) -> float | None:
    """c, or None to solve for it."""
    few = training.rows.n_groups < MIN_GROUPS_FOR_REDUNDANCY
    return 1.0 if options.redundancy is None and few else options.redundancy


def _problem(training: Training, options: Options, first: Survey, probe: PrecisionProbe) -> Problem:
    n = training.feature_groups.size
    energy = group_sums(training.feature_index, np.diagonal(first.moments.gram), n)
    return Problem(
        oracle=first.oracle,
        noise=options.noise,
        feature_index=training.feature_index,
        feature_energy=energy / training.rows.weights.sum(),
        noise_bounds=(float(np.log(options.noise_floor)), float(np.log(MAX_NOISE))),
        redundancy=_redundancy(training, options),
        tol=options.tol,
        max_iter=options.max_iter,
        probe=probe,
    )
