"""The second look of the model that a fit starts at, corrected for the few groups that differ.

After a few verdicts among thousands of images the others have nearly the weights that they had.
They keep these, and only the rows of trusted images, whose weights are known, are read: their part
of the moments is replaced. The posterior belongs exactly to the weights that the model reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.progress import SECOND_LOOK
from gpgc_dask.gp.evidence import Moments, Posterior, posterior, posterior_moments
from gpgc_dask.gp.fit import FitResult, OpenSweeps
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.solvers.run import algebra
from gpgc_dask.gp.training import Training
from gpgc_dask.models.row_weights import RowWeights
from gpgc_dask.models.second_look import SecondLook
from gpgc_dask.quality.calibration import Calibration

__all__ = ["KeptLook", "LookedModel", "keep_look"]

MAX_CHANGED = 0.0025
"""Largest share of the rows whose groups may have changed since the last complete second look."""


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

    def __call__(self, result: FitResult, open_sweeps: OpenSweeps) -> SecondLook | None:
        """Correct the second look at the end of a fit: one read of the rows that have changed.

        None if rounding made the moments indefinite.
        """
        params, history = result.point.params, result.history
        c = params.redundancy
        rows = self._rows(params.log_noise)
        moments = self.moments.scale(self.redundancy / c)
        for each, log_noise, sign in (
            (self.before, self.log_noise, -1.0),
            (rows, params.log_noise, 1.0),
        ):
            if self.changed.size:
                own = open_sweeps(each).select_groups(self.changed)
                history.change_oracle(own)
                with history.timed("sweep"):
                    part = own.moments(log_noise[self.changed], c)
                moments = moments + part.scale(sign)
        scales = np.exp(0.5 * params.log_scales)[self.training.feature_index]
        try:
            with algebra(history, scales.size):
                post = posterior(moments, scales)
        except np.linalg.LinAlgError:
            return None
        history.append_round(f"{SECOND_LOOK} 1")
        factor = self.class_weight[rows.codes]
        weight = np.divide(rows.weights, factor, out=np.zeros(len(rows)), where=factor > 0)
        return SecondLook(
            post, weight.astype(np.float32), self.class_weight, self.calibration, 1, self.age
        )

    def _rows(self, log_noise: Array) -> Rows:
        """Rows with the weights of now, for other ln ε² (J,): precisions of all others remain."""
        rows = self.training.rows
        weights = self.before.weights * np.exp(log_noise - self.log_noise)[rows.groups]
        own = np.isin(rows.groups, self.changed)
        weights[own] = (self.training.sample_weight * self.class_weight[rows.codes])[own]
        return replace(rows, weights=weights)


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
    if not fits or age > MAX_CHANGED:
        return None
    weights, codes = kept.at(place, rows)
    scales = scales[training.feature_index]
    post = Posterior.from_factor(model.covariance_factor_, model.coef_.T, scales)
    return KeptLook(
        training,
        changed,
        replace(rows, codes=codes, weights=weights * model.class_weight_[codes]),
        np.log(model.noise_variance_[place]),
        model.redundancy_,
        posterior_moments(post, scales),
        model.class_weight_,
        calibration,
        age,
    )
