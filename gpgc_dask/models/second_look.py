"""The second look: after a fit, rows whose labels are probably wrong lose their weight.

One noise variance per group cannot express that a part of a mask is wrong. The prediction for a
row by the model without its group is independent of the labels of that group. Each round weights
every row by the probability of its label under this prediction, and every group by the agreement of
its labels with it, and computes the posterior of the weights again. Noise variances, scales and
redundancy stay those of the fit. The read that certified the optimum has usually computed the
predictions for the first round, which then takes one read of the data, otherwise two. Its
calibration and class weights serve the later rounds too, so that each of these takes one read if
the rows of every group are adjacent. Without rounds, the predictions may still serve to calibrate
probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.core.metrics import group_agreement
from gpgc_dask.core.progress import SECOND_LOOK
from gpgc_dask.gp.evidence import Posterior, posterior
from gpgc_dask.gp.fit import FitResult, OpenSweeps
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.rows import RowSweeps
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.gp.solvers.run import algebra
from gpgc_dask.gp.training import Training
from gpgc_dask.quality.calibration import Calibration, calibrate

__all__ = [
    "MIN_GROUPS",
    "ClassRule",
    "Rounds",
    "RowRule",
    "SecondLook",
    "calibrate_fit",
    "look_again",
]

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
    age : float, default 0
        Share of the rows whose groups have changed since the weights of the others were computed.
    """

    post: Posterior
    row_weight: Features
    class_weight: Array
    calibration: Calibration
    rounds: int
    age: float = 0.0


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
    together : (N,) array of int, optional
        What each row is left out with; by default its group.
    calibrates : bool
        Whether probabilities are calibrated if there are no rounds.
    kept : callable, optional
        Computes the result from that of an earlier fit, in place of the rounds. It returns None if
        that is not possible.
    look : SecondLook or None
        The result, as of :func:`look_again`.
    calibration : Calibration or None
        Probabilities with natural class frequencies.
    """

    training: Training
    class_rule: ClassRule
    n_rounds: int
    together: Index | None = None
    calibrates: bool = False
    kept: Callable[[FitResult, OpenSweeps, Index | None], SecondLook | None] | None = None
    look: SecondLook | None = None
    calibration: Calibration | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do: it is asked for, and there are enough groups."""
        asked = self.n_rounds > 0 or self.calibrates
        return asked and self.training.rows.n_groups >= MIN_GROUPS

    @property
    def uses_groups(self) -> bool:
        """Whether predictions of rows without their group are needed, and nothing else."""
        return self.wanted and self.together is None and self.kept is None

    def __call__(self, result: FitResult, open_sweeps: OpenSweeps) -> None:
        if self.n_rounds:
            look = None if self.kept is None else self.kept(result, open_sweeps, self.together)
            if look is None:
                look = look_again(
                    result,
                    open_sweeps,
                    self.training,
                    self.class_rule,
                    self.n_rounds,
                    self.together,
                )
            self.look, self.calibration = look, None if look is None else look.calibration
        else:
            self.calibration = calibrate_fit(result, open_sweeps, self.training, self.together)


def calibrate_fit(
    result: FitResult, open_sweeps: OpenSweeps, training: Training, together: Index | None = None
) -> Calibration | None:
    """Calibrate the probabilities of a finished fit, without another look at the rows.

    It takes a read of the data only if the last one of the fit has computed no predictions.

    Parameters
    ----------
    result, open_sweeps, training, together
        As of :func:`look_again`.

    Returns
    -------
    Calibration or None
        None with groups that are too large for the memory of a task.
    """
    rows = replace(training.rows, given_weights=training.sample_weight)
    sweeps = open_sweeps(rows)
    if not sweeps.holds_groups:
        return None
    values = result.solution.left_out
    if values is None:
        params, history = result.point.params, result.history
        noise = (params.log_noise, params.redundancy)
        leave_out, left_out_noise = without(open_sweeps, sweeps, rows, noise, together)
        history.change_oracle(leave_out)
        with history.timed("sweep"):
            values = leave_out.leave_out(result.point.post, *left_out_noise)
    return calibrate_rows(values, rows)


def look_again(
    result: FitResult,
    open_sweeps: OpenSweeps,
    training: Training,
    class_rule: ClassRule,
    rounds: int,
    together: Index | None = None,
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
    together : (N,) array of int, optional
        What each row is left out with, numbered from 0; by default its group. A round then takes
        two reads.

    Returns
    -------
    SecondLook or None
        None if there is nothing to look at: with fewer than 10 groups, groups that are too large
        for the memory of a task, or if a class would lose all its weight.
    """
    params, history = result.point.params, result.history
    rows = replace(training.rows, given_weights=training.sample_weight)
    sweeps = open_sweeps(rows)
    if rows.n_groups < MIN_GROUPS or not sweeps.holds_groups:
        return None
    scales = np.exp(0.5 * params.log_scales)[training.feature_index]
    noise = (params.log_noise, params.redundancy)
    post, known = result.point.post, result.solution.left_out
    last, rule, moments = None, None, None
    for number in range(1, rounds + 1):
        leave_out, left_out_noise = without(open_sweeps, sweeps, rows, noise, together)
        history.change_oracle(leave_out)
        if rule is not None and sweeps.whole_groups and leave_out is sweeps:
            with history.timed("sweep"):
                values, weights, moments = sweeps.reweight(post, *noise, rule)
        else:
            with history.timed("sweep"):
                if known is None:
                    known = leave_out.leave_out(post, *left_out_noise)
                values = known
            with history.timed("solve"):
                rule = rule or RowRule.from_values(values, rows, class_rule, training.trusted)
                weights, known = rule(values, rows), None
        if not keeps_classes(weights, training):
            break
        rows = replace(rows, weights=weights.astype(np.float64))
        sweeps = open_sweeps(rows)
        if moments is None:
            history.change_oracle(sweeps)
            with history.timed("sweep"):
                moments = sweeps.moments(*noise)
        with algebra(history, scales.size):
            post, moments = posterior(moments, scales), None
        last = rule, values, rows, number
        history.append_round(f"{SECOND_LOOK} {number}")
    if last is None:
        return None
    rule, values, rows, number = last
    calibration = calibrate_rows(values, rows)
    return SecondLook(post, rule.unscaled(rows), rule.class_weight, calibration, number)


def without(
    open_sweeps: OpenSweeps,
    sweeps: RowSweeps,
    rows: Rows,
    noise: tuple[Array, float],
    together: Index | None,
) -> tuple[RowSweeps, tuple[Array, float]]:
    """Sweeps that leave out what belongs together, and their noise.

    Only precisions matter: rows have the noise of their own group in their weights. Units that are
    too large for the memory of a task are ignored.
    """
    if together is None:
        return sweeps, noise
    log_noise, redundancy = noise
    weights = rows.weights * np.exp(-log_noise[rows.groups])
    n_units = int(together.max()) + 1
    units = open_sweeps(replace(rows, weights=weights, groups=together, n_groups=n_units))
    if n_units < 2 or not units.holds_groups:
        return sweeps, noise
    return units, (np.zeros(n_units), redundancy)


@dataclass(frozen=True)
class RowRule:
    """Computes weights of rows from predictions without their groups: w P(y) ρ class weight.

    P(y) is the probability of the given label, and ρ the agreement of the group: IoU of the second
    of two classes; with more classes, the share of the rows that are predicted right. Rows count
    the same there, as superpixels are of about the same size, and arrays have no areas.

    Attributes
    ----------
    calibration : Calibration
        Turns predictions into probabilities; balanced for two classes.
    class_weight : (classes,) array
        Factor of the weights of each class.
    trusted : (J,) array of bool or None
        Groups whose labels are known to be right: P(y) ρ is 1 there.
    """

    calibration: Calibration
    class_weight: Array
    trusted: Mask | None = None

    @classmethod
    def from_values(
        cls, values: Array, rows: Rows, class_rule: ClassRule, trusted: Mask | None = None
    ) -> RowRule:
        """The rule for predictions (N, t) of all rows."""
        calibration = calibrate_rows(values, rows, balanced=rows.n_classes == 2)
        plain = cls(calibration, np.ones(rows.n_classes), trusted)
        return replace(plain, class_weight=class_rule(plain(values, rows).astype(np.float64)))

    def __call__(self, values: Array, rows: Rows) -> Features:
        """(n,) weights, as float32, of rows of whole groups with predictions (n, t)."""
        given = _given_weights(rows)
        predicted = np.empty(len(rows), dtype=np.intp)
        weight = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            predicted[part] = _hard(values[part], rows.n_classes, self.calibration)
            shares = self.calibration.probabilities(values[part])
            weight[part] = np.take_along_axis(shares, rows.codes[part, None], axis=1)[:, 0]
        rho = np.clip(_agreement(predicted, rows), MIN_AGREEMENT, 1.0)
        if self.trusted is not None:
            rho[self.trusted] = 1.0
            weight[self.trusted[rows.groups]] = 1.0
        weight *= given * rho[rows.groups] * self.class_weight[rows.codes]
        return weight.astype(np.float32)

    def unscaled(self, rows: Rows) -> Features:
        """(N,) weights of rows without the class weights, as float32."""
        factor = self.class_weight[rows.codes]
        weight = np.divide(rows.weights, factor, out=np.zeros(len(rows)), where=factor > 0)
        return weight.astype(np.float32)


def _given_weights(rows: Rows) -> Array:
    return rows.weights if rows.given_weights is None else rows.given_weights


def _hard(values: Array, n_classes: int, calibration: Calibration) -> Index:
    if n_classes == 2:
        return (values[:, 0] > 0).astype(np.intp)
    return np.asarray(calibration.logits(values).argmax(1))


def calibrate_rows(values: Array, rows: Rows, *, balanced: bool = False) -> Calibration:
    area = (_given_weights(rows) > 0).astype(np.float64)
    return calibrate(
        values, rows.codes, area, rows.groups, rows.n_groups, rows.n_classes, balanced=balanced
    )


def _agreement(predicted: Index, rows: Rows) -> Array:
    """(J,) agreement of predicted with given labels; groups without rows have 0 or 1."""
    area = (_given_weights(rows) > 0).astype(np.float64)
    if rows.n_classes == 2:
        names = np.arange(rows.n_groups)
        return group_agreement(rows.codes, predicted, rows.groups, area, 2, names).iou
    right = group_sums(rows.groups, area * (predicted == rows.codes), rows.n_groups)
    total = group_sums(rows.groups, area, rows.n_groups)
    return np.divide(right, total, out=np.zeros(rows.n_groups), where=total > 0)


def keeps_classes(weight: Features, training: Training) -> bool:
    """Whether every class that has weight in the fit still has some."""
    codes, n_classes = training.rows.codes, training.rows.n_classes
    before = group_sums(codes, training.rows.weights, n_classes)
    return bool(np.all((group_sums(codes, weight, n_classes) > 0) | (before == 0)))
