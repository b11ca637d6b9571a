"""The second look of the model that a fit starts at, corrected for the few groups that differ.

After a few verdicts among thousands of images the others have nearly the weights that they had.
They keep these, and only the rows of trusted images, whose weights are known, are read: their part
of the moments is replaced. If more images have changed, one round follows: all rows are predicted
again without their groups, and those whose weights have changed are read. The posterior belongs
exactly to the weights that the model reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.progress import SECOND_LOOK
from gpgc_dask.core.threads import algebra_threads
from gpgc_dask.gp.evidence import Moments, Posterior, posterior, posterior_moments
from gpgc_dask.gp.fit import FitResult, OpenSweeps
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.solvers.run import algebra
from gpgc_dask.gp.training import Training
from gpgc_dask.models.row_weights import RowWeights
from gpgc_dask.models.second_look import (
    RowRule,
    SecondLook,
    calibrate_rows,
    keeps_classes,
    without,
)
from gpgc_dask.quality.calibration import Calibration

__all__ = ["KeptLook", "LookedModel", "keep_look"]

MAX_CHANGED = 0.0025
"""Share of the rows whose groups may have changed since the weights of the others were computed."""

MAX_RENEWED = 0.2
"""Share of the rows whose groups may have changed since a second look that began at the fit."""

MIN_ROWS = 10_000
"""With fewer rows a complete second look costs next to nothing."""

WEIGHT_TOLERANCE = 0.05
"""Change up to which a row keeps its weight, in units of the weight of a row of a trusted group."""


class LookedModel(Protocol):
    """What is used of a model with a second look."""

    class_weight_: Array
    groups_: Labels
    coef_: Array
    covariance_factor_: Array
    noise_variance_: Array
    redundancy_: float
    feature_scales_: dict[Any, float]
    look_age_: float

    @property
    def row_weights(self) -> RowWeights | None: ...
    @property
    def trusted_groups(self) -> Labels: ...
    @property
    def calibration(self) -> Calibration | None: ...


@dataclass(frozen=True)
class KeptLook:
    """A second look at a model's rows, to be corrected for some groups.

    Attributes
    ----------
    training : Training
        Training data.
    changed : array of int
        Groups whose labels are other ones now, or trusted for the first time; all are trusted.
    before : Rows
        Classes and weights of all rows in the model.
    log_noise : (J,) array
        ln ε² of the groups in the model.
    redundancy : float
        Redundancy of the model.
    moments : Moments
        Moments of the model's posterior.
    class_weight : (classes,) array
        Factor of the weights of each class.
    calibration : Calibration
        Probabilities with natural class frequencies.
    age : float
        Share of the rows whose groups have changed since the last complete second look.
    """

    training: Training
    changed: Index
    before: Rows
    log_noise: Array
    redundancy: float
    moments: Moments
    class_weight: Array
    calibration: Calibration
    age: float

    def __call__(
        self, result: FitResult, open_sweeps: OpenSweeps, together: Index | None = None
    ) -> SecondLook | None:
        """Correct the second look at the end of a fit: one read of the rows that have changed.

        Renewed weights take one read of all rows, and one of those whose weights have changed.
        ``together`` is that of :func:`~gpgc_dask.models.second_look.look_again`. None if rounding
        made the moments indefinite, or if the other weights cannot be renewed.
        """
        history = result.history
        scales = np.exp(0.5 * result.point.params.log_scales)[self.training.feature_index]
        rows, calibration = self._rows(result.point.params.log_noise), self.calibration
        moments = self._correct(result, open_sweeps, rows)
        try:
            with algebra(history, scales.size):
                post = posterior(moments, scales)
            if self.age > MAX_CHANGED:
                values = self._predict(result, open_sweeps, rows, post, together)
                if values is None:
                    return None
                with history.timed("solve"):
                    change, calibration = self._reweight(values, rows)
                rows = replace(rows, weights=rows.weights + change)
                moments = moments + self._read(result, open_sweeps, replace(rows, weights=change))
                with algebra(history, scales.size):
                    post = posterior(moments, scales)
        except np.linalg.LinAlgError:
            return None
        if not keeps_classes(rows.weights, self.training):
            return None
        history.append_round(f"{SECOND_LOOK} 1")
        factor = self.class_weight[rows.codes]
        weight = np.divide(rows.weights, factor, out=np.zeros(len(rows)), where=factor > 0)
        return SecondLook(
            post, weight.astype(np.float32), self.class_weight, calibration, 1, self.age
        )

    def _rows(self, log_noise: Array) -> Rows:
        """Rows with the weights of now, for other ln ε² (J,): precisions of all others remain."""
        rows = self.training.rows
        weights = self.before.weights * np.exp(log_noise - self.log_noise)[rows.groups]
        own = np.isin(rows.groups, self.changed)
        weights[own] = (self.training.sample_weight * self.class_weight[rows.codes])[own]
        return replace(rows, weights=weights, given_weights=self.training.sample_weight)

    def _correct(self, result: FitResult, open_sweeps: OpenSweeps, rows: Rows) -> Moments:
        """The moments with the new labels and weights of the groups that have changed."""
        params, history = result.point.params, result.history
        moments = self.moments.scale(self.redundancy / params.redundancy)
        for each, log_noise, sign in (
            (self.before, self.log_noise, -1.0),
            (rows, params.log_noise, 1.0),
        ):
            if self.changed.size:
                own = open_sweeps(each).select_groups(self.changed)
                history.change_oracle(own)
                with history.timed("sweep"):
                    part = own.moments(log_noise[self.changed], params.redundancy)
                moments = moments + part.scale(sign)
        return moments

    def _predict(
        self,
        result: FitResult,
        open_sweeps: OpenSweeps,
        rows: Rows,
        post: Posterior,
        together: Index | None,
    ) -> Array | None:
        """(N, t) predictions without the own group; None if groups are too large for a task."""
        params, history = result.point.params, result.history
        sweeps = open_sweeps(rows)
        if not sweeps.holds_groups:
            return None
        noise = (params.log_noise, params.redundancy)
        leave_out, own_noise = without(open_sweeps, sweeps, rows, noise, together)
        history.change_oracle(leave_out)
        with history.timed("sweep"):
            return leave_out.leave_out(post, *own_noise)

    def _reweight(self, values: Array, rows: Rows) -> tuple[Array, Calibration]:
        """(N,) changes of the weights by predictions (N, t), and calibrated probabilities.

        Small changes are left out. The class weights stay, as they concern all rows.
        """
        training, full = self.training, self.training.sample_weight * self.class_weight[rows.codes]
        balanced = calibrate_rows(values, rows, balanced=rows.n_classes == 2)
        change = RowRule(balanced, self.class_weight, training.trusted)(values, rows) - rows.weights
        change[np.abs(change) <= WEIGHT_TOLERANCE * full] = 0.0
        return change, calibrate_rows(values, rows)

    def _read(self, result: FitResult, open_sweeps: OpenSweeps, rows: Rows) -> Moments:
        """The moments of rows at the noise of the fit."""
        params, history = result.point.params, result.history
        sweeps = open_sweeps(rows)
        history.change_oracle(sweeps)
        with history.timed("sweep"):
            return sweeps.moments(params.log_noise, params.redundancy)


def keep_look(model: LookedModel, training: Training) -> KeptLook | None:
    """The second look of a model, if it can serve a fit with the same settings.

    Parameters
    ----------
    model : GPGC
        The model that the fit starts at.
    training : Training
        Training data.

    Returns
    -------
    KeptLook or None
        None unless groups and rows are those of the model, all groups with other labels are
        trusted, and few rows have changed since the last complete second look.
    """
    kept, calibration = model.row_weights, model.calibration
    scales = np.array([model.feature_scales_[name] for name in training.feature_groups.tolist()])
    if kept is None or kept.codes is None or calibration is None or not scales.all():
        return None
    place, known = find_labels(model.groups_, training.groups)
    if place.size != model.groups_.size or not known.all():
        return None
    trusted = np.zeros(place.size, dtype=bool) if training.trusted is None else training.trusted
    before = np.isin(training.groups, model.trusted_groups)
    rows = training.rows
    other = kept.differ(place, rows, training.sample_weight) | (before != trusted)
    changed = np.flatnonzero(other)
    age = model.look_age_ + float(rows.group_sizes[changed].sum()) / len(rows)
    fits = np.array_equal(rows.group_sizes, kept.sizes[place]) and trusted[changed].all()
    limit = MAX_RENEWED if len(rows) >= MIN_ROWS else MAX_CHANGED
    if not fits or age > limit:
        return None
    weights, codes = kept.at(place, rows)
    scales = scales[training.feature_index]
    with algebra_threads(scales.size):
        post = Posterior.from_factor(model.covariance_factor_, model.coef_.T, scales)
        moments = posterior_moments(post, scales)
    return KeptLook(
        training,
        changed,
        replace(rows, codes=codes, weights=weights * model.class_weight_[codes]),
        np.log(model.noise_variance_[place]),
        model.redundancy_,
        moments,
        model.class_weight_,
        calibration,
        age,
    )
