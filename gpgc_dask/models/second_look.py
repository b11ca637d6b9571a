"""The second look: after a fit, rows whose labels are probably wrong lose their weight.

One noise variance per group cannot express that a part of a mask is wrong. The prediction for a
row by the model without its group is independent of the labels of that group. Each round weights
every row by the probability of its label under this prediction, and every group by the agreement of
its labels with it, and computes the posterior of the weights again. Noise variances, scales and
redundancy stay those of the fit, so that a round takes two reads of the data and one factorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, group_sums
from gpgc_dask.core.metrics import group_agreement
from gpgc_dask.core.progress import SECOND_LOOK
from gpgc_dask.gp.evidence import Posterior, posterior
from gpgc_dask.gp.fit import FitResult, OpenSweeps
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.gp.solvers.run import algebra
from gpgc_dask.gp.training import Training
from gpgc_dask.models.decisions import decide
from gpgc_dask.quality.calibration import Calibration, calibrate

__all__ = ["MIN_GROUPS", "ClassRule", "Rounds", "SecondLook", "look_again", "weigh_rows"]

MIN_GROUPS = MIN_GROUPS_FOR_REDUNDANCY
"""With fewer groups there is no second look: the others allow no judgement of each of them."""

MIN_AGREEMENT = 0.01
"""Weights of groups are their agreement, of at least this."""

BLOCK_ROWS = 1 << 18
"""Rows whose probabilities are computed at a time."""

ClassRule = Callable[[Array], Array]
"""Weights (N,) of the rows -> factors (classes,) of the weights by class."""


@dataclass(frozen=True)
class SecondLook:
    """Result of the rounds.

    Attributes
    ----------
    post : Posterior
        Posterior of the weights of the features.
    row_weight : (N,) array of float32
        Weights of the rows, without the class weights.
    class_weight : (classes,) array
        Factor of the weights of each class.
    calibration : Calibration
        Probabilities with natural class frequencies, from the decision values of the last round.
    rounds : int
        Number of rounds.
    """

    post: Posterior
    row_weight: Features
    class_weight: Array
    calibration: Calibration
    rounds: int


@dataclass
class Rounds:
    """The rounds of one fit, as :func:`gpgc_dask.gp.fit.fit` calls them at its end.

    Attributes
    ----------
    training : Training
        Training data.
    class_rule : callable
        Computes the class weights from the weights of the rows.
    n_rounds : int
        Number of rounds.
    look : SecondLook or None
        The result, as of :func:`look_again`.
    """

    training: Training
    class_rule: ClassRule
    n_rounds: int
    look: SecondLook | None = None

    def __call__(self, result: FitResult, open_sweeps: OpenSweeps) -> None:
        self.look = look_again(result, open_sweeps, self.training, self.class_rule, self.n_rounds)


def look_again(
    result: FitResult,
    open_sweeps: OpenSweeps,
    training: Training,
    class_rule: ClassRule,
    rounds: int,
) -> SecondLook | None:
    """Weight the rows of a finished fit and compute its posterior again.

    Parameters
    ----------
    result : FitResult
        The fit. Its history gets one entry per round.
    open_sweeps : callable
        Makes sweeps over the data for rows of other weights.
    training : Training
        Training data.
    class_rule : callable
        Computes the class weights from the weights of the rows.
    rounds : int
        Number of rounds.

    Returns
    -------
    SecondLook or None
        None if there is nothing to look at: with fewer than 10 groups, groups that are too large
        for the memory of a task, or if a class would lose all its weight.
    """
    rows, params = training.rows, result.point.params
    sweeps = open_sweeps(rows)
    if rows.n_groups < MIN_GROUPS or not sweeps.holds_groups:
        return None
    # Rows count the same, as superpixels are of about the same size, and arrays have no areas.
    area = (training.sample_weight > 0).astype(np.float64)
    scales = np.exp(0.5 * params.log_scales)[training.feature_index]
    history, post, look = result.history, result.point.post, None
    for number in range(1, rounds + 1):
        history.change_oracle(sweeps)
        with history.timed("sweep"):
            values = sweeps.leave_out(post, params.log_noise, params.redundancy)
        with history.timed("solve"):
            weight = weigh_rows(values, rows, training.sample_weight, area)
            factors = class_rule(weight.astype(np.float64))
        if not _keeps_classes(weight, training):
            break
        rows = replace(rows, weights=weight * factors[rows.codes])
        sweeps = open_sweeps(rows)
        history.change_oracle(sweeps)
        with history.timed("sweep"):
            moments = sweeps.moments(params.log_noise, params.redundancy)
        with algebra(history, scales.size):
            post = posterior(moments, scales)
            calibration = _calibrate(values, rows, area)
        look = SecondLook(post, weight, factors, calibration, number)
        history.append_round(f"{SECOND_LOOK} {number}")
    return look


def weigh_rows(values: Array, rows: Rows, sample_weight: Array, area: Array) -> Features:
    """Weights w P(y) ρ of the rows.

    Parameters
    ----------
    values : (N, 1) or (N, classes) array
        Decision values, each from a model that never saw the row's group.
    rows : Rows
        Labels and groups of the rows.
    sample_weight : (N,) array
        Weights w of the caller.
    area : (N,) array
        Size of each row in the agreement; 0 for rows that do not count.

    Returns
    -------
    (N,) array of float32
        w times the probability of the given label, times the agreement ρ of the group: IoU of the
        second of two classes; with more classes, the share of the area that is predicted right.
    """
    calibration = _calibrate(values, rows, area, balanced=rows.n_classes == 2)
    predicted = np.empty(len(rows), dtype=np.intp)
    given = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        predicted[part] = _hard(values[part], rows.n_classes, calibration)
        shares = calibration.probabilities(values[part])
        given[part] = np.take_along_axis(shares, rows.codes[part, None], axis=1)[:, 0]
    rho = np.clip(_agreement(predicted, rows, area), MIN_AGREEMENT, 1.0)
    weight: Features = (sample_weight * given * rho[rows.groups]).astype(np.float32)
    return weight


def _hard(values: Array, n_classes: int, calibration: Calibration) -> Index:
    columns = values[:, 0] if n_classes == 2 else values
    return np.asarray(decide(columns, np.arange(n_classes), calibration), dtype=np.intp)


def _calibrate(values: Array, rows: Rows, area: Array, *, balanced: bool = False) -> Calibration:
    return calibrate(
        values, rows.codes, area, rows.groups, rows.n_groups, rows.n_classes, balanced=balanced
    )


def _agreement(predicted: Index, rows: Rows, area: Array) -> Array:
    """(J,) agreement of predicted with given labels."""
    if rows.n_classes == 2:
        names = np.arange(rows.n_groups)
        return group_agreement(rows.codes, predicted, rows.groups, area, 2, names).iou
    right = group_sums(rows.groups, area * (predicted == rows.codes), rows.n_groups)
    total = group_sums(rows.groups, area, rows.n_groups)
    return np.divide(right, total, out=np.zeros(rows.n_groups), where=total > 0)


def _keeps_classes(weight: Features, training: Training) -> bool:
    """Whether every class that has weight in the fit still has some."""
    codes, n_classes = training.rows.codes, training.rows.n_classes
    before = group_sums(codes, training.sample_weight, n_classes)
    return bool(np.all((group_sums(codes, weight, n_classes) > 0) | (before == 0)))
