"""The start of a fit at what another model has learned."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Labels
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.text import preview
from gpgc_dask.data.dataset import check_same_features, is_dataset
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.options import Start
from gpgc_dask.gp.solvers import Hyperparameters
from gpgc_dask.gp.training import Training

__all__ = ["StartModel", "check_start", "start_at"]


class StartModel(Protocol):
    """What is used of a model that a fit starts at."""

    redundancy: Any
    classes_: Labels
    groups_: Labels
    coef_: Array
    noise_variance_: Array
    leverage_share_: Array | None
    typical_noise_: float
    redundancy_: float
    feature_scales_: dict[Any, float]

    @property
    def is_fitted(self) -> bool: ...
    @property
    def fit_posterior(self) -> tuple[Features, Array] | None: ...
    @property
    def dataset_info(self) -> dict[str, Any] | None: ...


def check_start(model: StartModel, wanted: Any, X: Any) -> None:
    """Raise an error if a fit cannot start at a model. Nothing is read.

    Parameters
    ----------
    model : GPGC
        The model.
    wanted : GPGC
        The estimator to fit.
    X : array or dataset
        What it is fitted to.
    """
    if not isinstance(model, type(wanted)):
        raise InputTypeError(
            f"warm_start must be a fitted {type(wanted).__name__}, got {type(model).__name__}"
        )
    if not model.is_fitted:
        raise InputError("warm_start is not fitted: fit it first, or load a model")
    if model.redundancy != wanted.redundancy:
        raise InputError(
            "the model of warm_start=model (--from) was fitted with redundancy "
            f"{model.redundancy!r}, and this fit has redundancy {wanted.redundancy!r}: use the "
            "same, or fit without that model"
        )
    if is_dataset(X) and model.dataset_info is not None:
        check_same_features(X, model.dataset_info, model.coef_.shape[1])


def start_at(model: StartModel, training: Training, bounds: tuple[float, float]) -> Start | None:
    """The noise, scales and redundancy of a model for the groups and features of a fit.

    Parameters
    ----------
    model : GPGC
        The model.
    training : Training
        Training data.
    bounds : tuple of float
        Lower and upper bound of ln ε².

    Returns
    -------
    Start or None
        None if all groups share one noise variance: such a fit takes few reads anyway.
    """
    _check_same(model, training)
    place, known = find_labels(model.groups_, training.groups)
    if not known.any():
        raise InputError(
            f"warm_start has none of the groups of this fit ({preview(training.groups)}; its own "
            f"are {preview(model.groups_)}): name them in the same way, or fit without warm_start"
        )
    noise = training.noise
    if noise.pooled:
        return None
    variance = np.where(known, model.noise_variance_[place], model.typical_noise_)
    log_noise = np.clip(np.log(variance), *bounds)
    log_noise = noise.per_group(noise.values(log_noise), log_noise)
    if noise.held is not None:
        log_noise = np.where(noise.held, noise.good_noise(log_noise), log_noise)
    scales = np.array([model.feature_scales_[name] for name in training.feature_groups.tolist()])
    with np.errstate(divide="ignore"):
        params = Hyperparameters(log_noise, 2.0 * np.log(scales), float(model.redundancy_))
    if model.fit_posterior is None:
        return Start(params)
    factor, mean = model.fit_posterior
    post = Posterior.from_factor(factor.astype(np.float64), mean, scales[training.feature_index])
    before = np.where(known, np.log(variance), np.inf)
    share = None
    if model.leverage_share_ is not None:
        share = np.where(before == log_noise, model.leverage_share_[place], np.nan)
    return Start(params, post, before, share)


def _check_same(model: StartModel, training: Training) -> None:
    """Raise an InputError if features or classes are not those of the model."""
    k, features = training.X.shape[1], training.feature_groups.tolist()
    if k != model.coef_.shape[1]:
        problem = f"{model.coef_.shape[1]} features, and X has {k}"
    elif set(features) != set(model.feature_scales_):
        problem = f"the feature groups {preview(list(model.feature_scales_))}, not {features}"
    elif not np.array_equal(model.classes_, training.classes):
        problem = f"the classes {preview(model.classes_)}, not {preview(training.classes)}"
    else:
        return
    raise InputError(f"warm_start was fitted with {problem}: fit without warm_start")
