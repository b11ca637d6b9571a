"""Predictions of rows without their own group, and how far they agree with the given labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import dask.array as da
import numpy as np

from gpgc_dask.core.arrays import Array, Index, Labels, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.labels import code_labels, find_labels
from gpgc_dask.core.metrics import GroupAgreement, group_agreement
from gpgc_dask.core.text import preview
from gpgc_dask.data.training import TrainingArrays
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import (
    MAX_GROUP_BYTES,
    DaskOracle,
    DaskSweeps,
    lazy_leave_out,
)
from gpgc_dask.gp.oracle.kernels import Arithmetic, Projection
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.tasks import Sweep
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.row_weights import RowWeights
from gpgc_dask.models.validation import check_weights, to_vector
from gpgc_dask.quality.calibration import Calibration

__all__ = [
    "code_rows",
    "code_units",
    "find_classes",
    "leave_out_predictions",
    "measure_agreement",
]


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


def code_units(together: Any, n_rows: int) -> Index | None:
    """(N,) numbers of what rows are left out with, from labels; None without labels."""
    if together is None:
        return None
    return code_labels("together", to_vector("together", together, n_rows))[1]


def leave_out_predictions(
    model: GaussianProcess, X: Any, rows: Rows, noise: Array, together: Index | None = None
) -> Any:
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
    together : (N,) array of int, optional
        What each row is left out with, numbered from 0 without gaps; by default its group.
    """
    unseen = np.isnan(noise)
    rows = replace(rows, weights=np.where(unseen[rows.groups], 0.0, rows.weights))
    noise = np.where(unseen, 1.0, noise)
    large = None
    if together is not None:
        # Only precisions matter: rows of a unit have the noise of their own group in the weights.
        weights = rows.weights / noise[rows.groups]
        if is_dask(X):
            large = _large_units(together, X.shape[1])
            units = _split(together, rows.groups, large)
        else:
            units = together
        noise = np.ones(int(units.max()) + 1)
        rows = replace(rows, weights=weights, groups=units, n_groups=noise.size)
    mu, nothing = np.ascontiguousarray(model.coef_.T), np.empty(0)
    post = Posterior(model.covariance_factor_, mu, 0.0, nothing, nothing)
    arithmetic = Arithmetic(np.dtype(np.float64))
    sweep = Sweep(Projection(post, arithmetic), np.log(noise), model.redundancy_, leave_out=True)
    if not is_dask(X):
        return NumpySweeps(X, rows, arithmetic).map_rows(sweep.predict_left_out)
    values = lazy_leave_out(X, rows, sweep)
    if large is None or together is None or not large.any():
        return values
    precise = replace(
        rows,
        weights=rows.weights / model.redundancy_,
        groups=together,
        n_groups=large.size,
    )
    return _replace_large(values, model, X, precise, large)


def _large_units(together: Index, n_features: int) -> Mask:
    """(units,) whether the rows of a unit are too many for the memory of a task."""
    return np.bincount(together) * n_features * 8 > MAX_GROUP_BYTES


def _split(together: Index, groups: Index, large: Mask) -> Index:
    """The units, with large ones split into their groups."""
    if not large.any():
        return together
    pieces = np.where(large[together], large.size + groups, together)
    return np.unique(pieces, return_inverse=True)[1]


def _replace_large(values: Any, model: GaussianProcess, X: Any, rows: Rows, large: Mask) -> Any:
    """Replace the predictions for rows of large units by those of models without the unit.

    With G = FᵀPF and b = FᵀPY of a unit and V = TᵀT, the weights without it are
    μ − Tᵀ (I − T G Tᵀ)⁻¹ T (b − G μ). G and b of all large units take one read, here.

    Parameters
    ----------
    values : (N, t) dask array
        Predictions that are right for the other rows.
    model : GaussianProcess
    X : (N, k) dask array
        Features.
    rows : Rows
        Rows with their precisions as weights, and units as groups.
    large : (units,) array of bool
        The large units.
    """
    arithmetic = Arithmetic(np.dtype(np.float64))
    sums = DaskSweeps(X, rows, arithmetic).group_sums(large)
    T, mu = model.covariance_factor_, np.ascontiguousarray(model.coef_.T)
    n_targets = mu.shape[1]
    place = np.full(large.size, -1)
    place[large] = np.arange(large.sum())
    without = np.empty((mu.shape[0], int(large.sum()), n_targets))
    for unit in np.flatnonzero(large).tolist():
        own = sums[unit].finish(arithmetic)
        system = np.eye(len(T)) - T @ own.gram @ T.T
        shift = np.linalg.solve(system, T @ (own.cross - own.gram @ mu))
        without[:, place[unit]] = mu - T.T @ shift
    predictions = DaskOracle(X).matvec(without.reshape(mu.shape[0], -1))
    return da.map_blocks(
        _choose,
        values.rechunk((predictions.chunks[0], -1)),
        predictions,
        da.from_array(place[rows.groups][:, None], chunks=(predictions.chunks[0], 1)),
        dtype=np.float64,
        chunks=(predictions.chunks[0], (n_targets,)),
    )


def _choose(values: Array, predictions: Array, place: Index) -> Array:
    """Predictions (n, units · t) of the own unit at ``place`` (n, 1), or values (n, t) where −1."""
    n, n_targets = values.shape
    own = predictions.reshape(n, -1, n_targets)[np.arange(n), place[:, 0]]
    return np.where(place < 0, values, own)


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
