"""A fit from validated training data to the optimum of the evidence.

:func:`fit` draws a sample of rows, opens the checkpoint, and makes one attempt in float32 and, if
that is not precise enough, another one in float64. :mod:`gpgc_dask.gp.attempt` has the steps of an
attempt, :mod:`gpgc_dask.gp.solvers` the solvers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Listener, Progress, open_listeners
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.attempt import Attempt, FitResult, make_problem
from gpgc_dask.gp.checkpoint import Checkpoint, SavedFit, digest
from gpgc_dask.gp.noise import NoiseModel, homoscedastic
from gpgc_dask.gp.options import FitOptions
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.precision import PrecisionProbe
from gpgc_dask.gp.oracle.rows import RowSweeps, Survey
from gpgc_dask.gp.solvers import History, pooled_start, solve
from gpgc_dask.gp.training import Training
from gpgc_dask.gp.warm_start import draw_sample, sample_offset

__all__ = ["Finish", "FitResult", "OpenSweeps", "fit", "fit_surveyed"]

OpenSweeps = Callable[[Rows], RowSweeps]
"""Sweeps over X with the classes, weights and groups of some rows, in the arithmetic of a fit."""

Finish = Callable[[FitResult, OpenSweeps], None]
"""Work on the result of a fit that belongs to the same run: its reads are displayed and counted."""

FLOAT32_RANGE = (1e-12, 1e12)
"""Absolute values of features whose squares float32 can hold."""


def fit(training: Training, options: FitOptions, finish: Finish | None = None) -> FitResult:
    """Fit in the precision of the data, or in float64 if float32 products are not precise enough.

    Parameters
    ----------
    training : Training
        Validated training data.
    options : FitOptions
        Options of the fit.
    finish : callable, optional
        Called with the result. The checkpoint remains until it returns, so that a run that is
        stopped in it does not repeat the fit.

    Raises
    ------
    InputError
        If X has constant features only, contains NaN or infinity, or cannot be solved for in
        float64; or if the checkpoint belongs to another fit.
    """
    with open_listeners(options.listeners) as displays:
        result = _fit(training, options, finish)
        for display in displays:
            display.settled = result.solution.converged
    return result


def _fit(training: Training, options: FitOptions, finish: Finish | None) -> FitResult:
    warm = training.noise.separable and options.start is None
    sample = draw_sample(training.X, training.rows, warm=warm)
    index, features = sample.thin()
    offset = sample_offset(features)
    checkpoint = _checkpoint(training, options, features)
    saved = (checkpoint and checkpoint.load()) or SavedFit()
    entries_before = len(saved.entries)
    read_numbers = count(1 + int(saved.reads))
    saved = replace(saved, reads=saved.reads + sample.share)
    for dtype in _dtypes(training.X, features, options):
        arithmetic = Arithmetic(dtype, offset)
        if saved.arithmetic not in (None, arithmetic.name):
            continue  # The saved fit has shown that it is not precise enough.
        sweeps = _sweeps(training, options, arithmetic, read_numbers)
        history = History(
            sweeps,
            arithmetic.name,
            reads_before=saved.reads,
            entries_before=entries_before,
            listeners=list(options.listeners),
            entries=list(saved.entries),
        )
        # A fit that starts near its optimum is short, and so is the probe.
        probed = slice(None, None, 4 if options.start is not None else 1)
        probe = PrecisionProbe(features[probed], training.rows.take(index[probed]), arithmetic)
        attempt = Attempt(training, options, sample, probe, sweeps, history, checkpoint)
        outcome = attempt.run(saved)
        if isinstance(outcome, FitResult):
            if finish is not None:
                finish(outcome, partial(_open_sweeps, training, options, arithmetic, read_numbers))
            if checkpoint and outcome.solution.converged and not options.keep_checkpoint:
                checkpoint.remove()
            return outcome
        saved = outcome
    raise InputError(
        "X cannot be solved for even in float64: its columns are too large, or differ too much "
        "in size; scale them (StandardScaler) or give columns of other size a feature group"
    )


def fit_surveyed(training: Training, options: FitOptions, first: Survey) -> FitResult:
    """Fit one noise variance for all groups and a fixed c, without a further read.

    Parameters
    ----------
    training : Training
        Validated training data.
    options : FitOptions
        Options of the fit.
    first : Survey
        The first read, in float64.
    """
    arithmetic = Arithmetic(np.dtype(np.float64))
    history = History(first.oracle, arithmetic.name, listeners=list(options.listeners))
    problem = replace(
        make_problem(training, options, first.oracle, first.moments),
        noise=NoiseModel(homoscedastic(first.oracle.group_weight.size)),
    )
    solution = solve(problem, pooled_start(problem, first.moments), history, options.solver)
    return FitResult(problem, solution, history)


def _dtypes(X: Any, sample: Features, options: FitOptions) -> list[np.dtype[Any]]:
    """The types of the products to try, in order."""
    wide = np.dtype(np.float64)
    if (X.dtype if options.dtype is None else options.dtype) == wide:
        return [wide]
    size = np.abs(sample).max(0).astype(np.float64)
    low, high = FLOAT32_RANGE
    safe = np.all((size == 0) | ((size > low) & (size < high)))
    return [np.dtype(np.float32), wide] if safe else [wide]


def _sweeps(
    training: Training, options: FitOptions, arithmetic: Arithmetic, read_numbers: Iterator[int]
) -> RowSweeps:
    """Sweeps over the training data; ``read_numbers`` name the reads in the dashboard."""
    if not is_dask(training.X):
        return NumpySweeps(training.X, training.rows, arithmetic)
    listeners = [each.reading for each in options.listeners if hasattr(each, "reading")]
    return DaskSweeps(
        training.X,
        training.rows,
        arithmetic,
        numbers=read_numbers,
        listener=partial(_notify, listeners) if listeners else None,
    )


def _open_sweeps(
    training: Training,
    options: FitOptions,
    arithmetic: Arithmetic,
    read_numbers: Iterator[int],
    rows: Rows,
) -> RowSweeps:
    return _sweeps(replace(training, rows=rows), options, arithmetic, read_numbers)


def _notify(listeners: Sequence[Listener], progress: Progress) -> None:
    for listener in listeners:
        listener(progress)


def _checkpoint(training: Training, options: FitOptions, sample: Features) -> Checkpoint | None:
    """The checkpoint of the fit, with everything that identifies the fit."""
    if options.checkpoint is None:
        return None
    rows = training.rows
    identity = {
        "noise model": digest(training.noise.index),
        "shape of X": list(training.X.shape),
        "values of X": digest(sample),
        "y and weights": digest(rows.codes, rows.weights),
        "groups": digest(rows.groups),
        "trusted groups": None if training.trusted is None else digest(training.trusted),
        "feature groups": digest(training.feature_index),
        "redundancy": options.redundancy,
        "noise_floor": options.noise_floor,
    }
    return Checkpoint(options.checkpoint, identity)
