"""One fit from validated data to the optimum: arithmetic, first read, solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from os import PathLike
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, group_sums
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Listener, Progress, following
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.checkpoint import Checkpoint, Saved, digest
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.noise import FirstNoiseRule, NoiseModel, groupwise, homoscedastic
from gpgc_dask.gp.oracle.base import SweepOracle, TermsRequest
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.precision import PrecisionProbe
from gpgc_dask.gp.oracle.rows import STATISTICS_BYTES, RowSweeps, Survey, survey
from gpgc_dask.gp.solvers import History, Problem, Solution, SolverName, State, pooled, solve
from gpgc_dask.gp.solvers.problem import Point, PrecisionError, probe_directions
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.gp.training import Training
from gpgc_dask.gp.warm_start import Sample, draw_sample, sample_offset

__all__ = ["Fitted", "Options", "fit", "fit_surveyed"]


MAX_NOISE = 1e4
"""Largest noise variance, in units of the ±1 labels."""

FLOAT32_RANGE = (1e-12, 1e12)
"""Sizes of features whose squares float32 holds with room to spare."""

WARM_STEPS = 2
"""Steps of a warm start's fit to its sample, at most."""

WARM_GAIN = 1e-2
"""Predicted gain in nats a row at which that fit is good enough."""


@dataclass(frozen=True)
class Options:
    """The part of an estimator's parameters that the fit needs, validated."""

    solver: SolverName
    tol: float
    max_iter: int
    dtype: np.dtype[Any] | None
    redundancy: float | None
    noise_floor: float
    checkpoint: str | PathLike[str] | None = None
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
    with following(options.listeners) as shown:
        found = _fit(training, options)
        for each in shown:
            each.settled = found.solution.converged
    return found


def _fit(training: Training, options: Options) -> Fitted:
    sample = draw_sample(training.X, training.rows, warm=training.noise.separable)
    index, looked = sample.thin()
    checkpoint = _checkpoint(training, options, looked)
    begin = (checkpoint and checkpoint.load()) or Saved(None, [], 0.0)
    numbers = count(1 + int(begin.reads))
    begin = replace(begin, reads=begin.reads + sample.share)
    inherited = len(begin.entries)
    offset = sample_offset(looked)
    for dtype in _precisions(training.X, looked, options):
        if begin.arithmetic not in (None, Arithmetic(dtype, offset).name):
            continue  # it was found not to do
        found = _attempt(
            training,
            options,
            PrecisionProbe(looked, training.rows.take(index), Arithmetic(dtype, offset)),
            sample,
            checkpoint,
            begin,
            inherited,
            numbers,
        )
        if isinstance(found, Fitted):
            break
        begin = found
    else:
        raise InputError(
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
    history = History(
        first.oracle,
        probe.arithmetic.name,
        training.feature_index.size,
        listeners=list(options.listeners),
    )
    problem = replace(
        _problem(training, options, first.oracle, first.moments, probe),
        noise=NoiseModel(homoscedastic(first.oracle.group_weight.size)),
    )
    solution = solve(problem, pooled(problem, first.moments), history, options.solver)
    return Fitted(problem, solution, history)


def _precisions(X: Any, sample: Features, options: Options) -> list[np.dtype[Any]]:
    """The precisions to try, in order."""
    wide = np.dtype(np.float64)
    if (X.dtype if options.dtype is None else options.dtype) == wide:
        return [wide]
    size = np.abs(sample).max(0).astype(np.float64)
    low, high = FLOAT32_RANGE
    safe = np.all((size == 0) | ((size > low) & (size < high)))
    return [np.dtype(np.float32), wide] if safe else [wide]


def _sweeps(
    training: Training, options: Options, arithmetic: Arithmetic, numbers: Iterator[int]
) -> RowSweeps:
    """``numbers`` of the reads, from one attempt to the next."""
    if not is_dask(training.X):
        return NumpySweeps(training.X, training.rows, arithmetic)
    hearing = [each.reading for each in options.listeners if hasattr(each, "reading")]
    return DaskSweeps(
        training.X,
        training.rows,
        arithmetic,
        numbers=numbers,
        listener=partial(_tell, hearing) if hearing else None,
    )


def _tell(hearing: Sequence[Listener], progress: Progress) -> None:
    for hear in hearing:
        hear(progress)


def _checkpoint(training: Training, options: Options, sample: Features) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    rows = training.rows
    identity = {
        "noise model": digest(training.noise.index),
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
    sample: Sample,
    checkpoint: Checkpoint | None,
    begin: Saved,
    inherited: int,
    numbers: Iterator[int],
) -> Fitted | Saved:
    """The fit in the probe's arithmetic, or where it stopped because that was not enough."""
    arithmetic = probe.arithmetic
    sweeps = _sweeps(training, options, arithmetic, numbers)
    history = History(
        sweeps,
        arithmetic.name,
        training.feature_index.size,
        earlier_reads=begin.reads,
        inherited=inherited,
        listeners=list(options.listeners),
        checkpoint=None if checkpoint is None else checkpoint.save,
        entries=list(begin.entries),
    )
    try:
        problem, start = _begin(training, options, probe, sweeps, sample, begin, history)
        solution = solve(problem, start, history, options.solver, begin.course)
        if not solution.converged and history.left(problem) > 0 and arithmetic.dtype == np.float32:
            # The solver gave up, not the user: rounding hides what is left to win.
            raise PrecisionError(solution.point.state)
    except PrecisionError as stopped:
        return Saved(stopped.state, history.entries, history.reads)
    except np.linalg.LinAlgError:
        return Saved(begin.state, history.entries, history.reads)
    return Fitted(problem, solution, history)


def _begin(
    training: Training,
    options: Options,
    probe: PrecisionProbe,
    sweeps: RowSweeps,
    sample: Sample,
    begin: Saved,
    history: History,
) -> tuple[Problem, Point]:
    """The problem, and where to start: an earlier attempt's state, or what the first read says.

    The first read is a warm one where there is a sample of groups for it, else a survey.
    """
    state, moments = begin.state, begin.moments
    if state is not None:
        if moments is None:
            with history.phase("sweep"):
                moments = sweeps.moments(state.log_noise, state.redundancy)
        problem = _problem(training, options, sweeps, moments, probe)
        with history.phase("solve"):
            return problem, problem.evaluate(state, moments)
    if sample.groups is not None and sweeps.whole_groups:
        return _warm_start(training, options, probe, sweeps, sample, sample.groups, history)
    first = _first_read(training, options, sweeps, probe.sample)
    history.oracle = first.oracle
    problem = _problem(training, options, first.oracle, first.moments, probe)
    with history.phase("solve"):
        return problem, pooled(problem, first.moments)


def _warm_start(
    training: Training,
    options: Options,
    probe: PrecisionProbe,
    sweeps: RowSweeps,
    sample: Sample,
    groups: Index,
    history: History,
) -> tuple[Problem, Point]:
    """Scales, redundancy and a posterior from a few groups; then one read judges all groups by it.

    That read gives every group a noise of its own and the moments there.
    """
    with history.phase("sample"):
        small = _sample_fit(training, options, probe.arithmetic, sample, groups)
    state = small.state
    rule = FirstNoiseRule(
        training.rows.n_targets, *_noise_bounds(options), redundancy=state.redundancy
    )
    with history.phase("sweep"), np.errstate(over="ignore", invalid="ignore"):
        request = TermsRequest(directions=probe_directions(small.post))
        found = sweeps.first_step(small.post, state.redundancy, rule, request)
    if not np.all(np.isfinite(found.moments.gram)):
        raise np.linalg.LinAlgError("the squares of X overflow")
    problem = _problem(training, options, sweeps, found.moments, probe)
    with history.phase("solve"):
        start = State(found.log_noise, state.log_scales, state.redundancy)
        return problem, problem.evaluate(start, found.moments)


def _sample_fit(
    training: Training, options: Options, arithmetic: Arithmetic, sample: Sample, groups: Index
) -> Point:
    """The point that a few steps on the sample alone lead to."""
    _, rows = training.rows.select(groups)
    sweeps = NumpySweeps(sample.features, rows, arithmetic)
    first = survey(sweeps, 0)
    nothing = np.zeros(0, dtype=np.intp)
    probe = PrecisionProbe(sample.features[:0], rows.take(nothing), arithmetic)
    problem = replace(
        _problem(training, options, first.oracle, first.moments, probe),
        noise=NoiseModel(groupwise(rows.n_groups)),
        tol=WARM_GAIN * len(rows),
        max_iter=WARM_STEPS,
    )
    history = History(first.oracle, arithmetic.name, training.feature_index.size)
    with history.phase("solve"):
        start = pooled(problem, first.moments)
    return solve(problem, start, history, "fixed-point").point


def _first_read(
    training: Training, options: Options, sweeps: RowSweeps, sample: Features
) -> Survey:
    # One noise for all and a fixed c: the moments say everything, groups are never asked for.
    asks_groups = training.noise.n_parameters > 1 or _redundancy(training, options) is None
    budget = STATISTICS_BYTES if asks_groups and training.rows.n_groups > 1 else 0
    with np.errstate(over="ignore", invalid="ignore"):
        first = survey(sweeps, budget)
    if not np.all(np.isfinite(first.moments.gram)):
        raise np.linalg.LinAlgError("the squares of X overflow")
    mean_square = np.diagonal(first.moments.gram) / training.rows.weights.sum()
    still = first.column_variance <= 1e-12 * mean_square
    if np.all(still) and not np.ptp(sample, axis=0).any():
        raise InputError(
            "X has constant features only: every column has the same value in all rows, "
            "so no model can tell the classes apart; add features that vary"
        )
    return first


def _redundancy(training: Training, options: Options) -> float | None:
    """c, or None to solve for it."""
    few = training.rows.n_groups < MIN_GROUPS_FOR_REDUNDANCY
    return 1.0 if options.redundancy is None and few else options.redundancy


def _noise_bounds(options: Options) -> tuple[float, float]:
    return float(np.log(options.noise_floor)), float(np.log(MAX_NOISE))


def _problem(
    training: Training,
    options: Options,
    oracle: SweepOracle,
    moments: Moments,
    probe: PrecisionProbe,
) -> Problem:
    """``moments`` may be at any noise: the size of the features is read off them."""
    n = training.feature_groups.size
    energy = group_sums(training.feature_index, np.diagonal(moments.gram), n)
    return Problem(
        oracle=oracle,
        noise=training.noise,
        feature_index=training.feature_index,
        feature_energy=energy * (training.rows.n_targets / moments.yy),
        noise_bounds=_noise_bounds(options),
        redundancy=_redundancy(training, options),
        tol=options.tol,
        max_iter=options.max_iter,
        precision_error=partial(_precision_error, probe, oracle.group_weight),
    )


def _precision_error(probe: PrecisionProbe, group_weight: Array, point: Point) -> float:
    state = point.state
    return probe.total_error(point.post, state.log_noise, state.redundancy, group_weight)
