"""Predictions of rows without their own group, and how far they agree with the given labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.labels import code_labels, find_labels
from gpgc_dask.core.metrics import GroupAgreement, group_agreement
from gpgc_dask.core.text import preview
from gpgc_dask.data.training import TrainingArrays
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import lazy_leave_out
from gpgc_dask.gp.oracle.kernels import Arithmetic, Projection
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.tasks import Sweep
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.row_weights import RowWeights
from gpgc_dask.models.validation import check_weights, to_vector
from gpgc_dask.quality.calibration import Calibration

__all__ = ["code_rows", "find_classes", "leave_out_predictions", "measure_agreement"]


class GaussianProcess(Protocol):
    """What :func:`leave_out_predictions` uses of a fitted Gaussian process."""

    coef_: Array
    covariance_factor_: Array
    redundancy_: float


def find_classes(model: FittedModel, labels: Labels) -> Index:
    """Numbers of labels among a model's classes; raise an InputError if there are others."""
    place, known = find_labels(model.classes_, labels)
    if not known.all():
        raise InputError(
            f"y has label(s) {preview(labels[~known])} that the model was not fitted with; its "
            f"classes are {preview(model.classes_)}"
        )
    return place


def code_rows(
    model: FittedModel,
    X: Any,
    arrays: TrainingArrays,
    class_weight: Array,
    learned: RowWeights | None = None,
) -> tuple[Rows, Labels, Array]:
    """(rows with weights times class weights, names of the groups, (N,) weights of the caller).

    With ``learned`` weights the rows have these in place of those of the caller.
    """
    n = X.shape[0]
    labels, codes = code_labels("y", to_vector("y", arrays.y, n))
    codes = find_classes(model, labels)[codes]
    names, index = code_labels("groups", to_vector("groups", arrays.groups, n))
    weight = check_weights("sample_weight", arrays.weight, n)
    rows = Rows(codes, weight * class_weight[codes], index, model.classes_.size, names.size)
    if learned is not None:
        found = learned.find(model.groups_, names, rows, weight)
        rows = replace(rows, weights=found * class_weight[codes])
    return rows, names, weight


def leave_out_predictions(model: GaussianProcess, X: Any, rows: Rows, noise: Array) -> Any:
    """Decision values (N, 1) or (N, classes) without the row's own group; lazy for a dask X.

    Parameters
    ----------
    model : GaussianProcess
        The fitted model.
    X : (N, k) array or dask array
        Features of the fit.
    rows : Rows
        Classes, weights and groups of the rows.
    noise : (J,) array
        Noise variances of the groups; NaN for groups that were not in the fit, whose rows get the
        ordinary prediction.
    """
    unseen = np.isnan(noise)
    rows = replace(rows, weights=np.where(unseen[rows.groups], 0.0, rows.weights))
    mu, nothing = np.ascontiguousarray(model.coef_.T), np.empty(0)
    post = Posterior(model.covariance_factor_, mu, 0.0, nothing, nothing)
    arithmetic = Arithmetic(np.dtype(np.float64))
    log_noise = np.log(np.where(unseen, 1.0, noise))
    sweep = Sweep(Projection(post, arithmetic), log_noise, model.redundancy_, leave_out=True)
    if is_dask(X):
        return lazy_leave_out(X, rows, sweep)
    return NumpySweeps(X, rows, arithmetic).map_rows(sweep.predict_left_out)


def measure_agreement(
    values: Array,
    rows: Rows,
    names: Labels,
    area: Array,
    calibration: Calibration | None,
) -> GroupAgreement:
    """Agreement per group of the labels that decision values (N,) or (N, classes) predict."""
    predicted = decide(values, np.arange(rows.n_classes), calibration)
    return group_agreement(rows.codes, predicted, rows.groups, area, rows.n_classes, names)
