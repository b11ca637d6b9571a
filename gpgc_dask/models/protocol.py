"""What the other packages may ask of a model: its type, in place of the estimators' own."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar, Protocol, Self

import pandas as pd

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.quality.calibration import Calibration
from gpgc_dask.quality.scorer import QualityScorer

__all__ = ["Estimator", "FittedModel", "Listener"]

Listener = Callable[[dict[str, Any]], None]
"""Called with each entry of ``history_``."""


class FittedModel(Protocol):
    """A fitted ``GPGC``, ``GP`` or ``MarginSVM``.

    Every model has every attribute: what a kind of model does not learn is None, or empty, as
    described below. Code outside :mod:`gpgc_dask.models` therefore needs no ``hasattr``.

    Attributes
    ----------
    classes_ : (classes,) array
        Labels of the classes, sorted.
    groups_ : (J,) array
        Labels of the groups, sorted.
    coef_ : (1, k) or (classes, k) array
        Weights of the features; one row for two classes.
    converged_ : bool
        Whether the fit reached its tolerance.
    n_iter_, n_reads_ : int
        Iterations of the fit, and full reads of the features.
    is_fitted : bool
        Whether the attributes above are there.
    group_noise : (J,) array or None
        Noise variance per group; None where all groups share one, or there is none.
    typical_noise : float or None
        Weighted median of the noise variances of the training groups; None without a noise model.
    group_confidence : (J,) array or None
        Share of the groups that are estimated less reliable.
    group_margin : (J,) array or None
        Mean margin of the group's labels, of an SVM.
    covariance_factor : (k, k) array or None
        T with posterior covariance TᵀT; None where the model has no posterior, and therefore no
        probabilities.
    log_evidence : float or None
        Logarithm of the probability of the labels.
    learned_redundancy : float or None
        How many rows of a group count as one.
    feature_scales : dict
        {feature group: prior standard deviation}, empty where the model has none.
    feature_names : (k,) array or None
        Names of the columns, of a fit on a DataFrame.
    history : list of dict
        One entry per iteration, empty where the model keeps none.
    cost : float or None
        C of an SVM.
    fit_summary : dict
        The outcome of the fit as plain values, for printing.
    dataset_info : dict or None
        Where the rows come from (:func:`gpgc_dask.data.dataset.provenance`); None where the model
        was fitted on arrays.
    calibration : Calibration or None
        Probabilities of decision values, from a second look or the last :meth:`review`; None where
        there was neither.
    leave_out : KeptPredictions or None
        Leave-image-out decision values of the last :meth:`review`; None where there are none.
    review_table : DataFrame or None
        What :meth:`review` returned last; None where it has not been called.
    objects_table : DataFrame or None
        Annotations and regions of the last :meth:`review`, the most suspicious first; None where
        there was none.
    scorer : QualityScorer or None
        Estimates the quality of masks of other photos, from the last :meth:`review`; None where
        there was none.
    session_parameters : tuple of str
        Parameters that belong to the session and not to the model.
    saved_arrays, saved_values : tuple of str
        Names of the attributes that are saved.
    """

    saved_arrays: ClassVar[tuple[str, ...]]
    saved_values: ClassVar[tuple[str, ...]]
    session_parameters: ClassVar[tuple[str, ...]]
    classes_: Labels
    groups_: Labels
    coef_: Array
    converged_: bool
    n_iter_: int
    n_reads_: int

    @property
    def is_fitted(self) -> bool: ...
    @property
    def group_noise(self) -> Array | None: ...
    @property
    def typical_noise(self) -> float | None: ...
    @property
    def group_confidence(self) -> Array | None: ...
    @property
    def group_margin(self) -> Array | None: ...
    @property
    def covariance_factor(self) -> Array | None: ...
    @property
    def log_evidence(self) -> float | None: ...
    @property
    def learned_redundancy(self) -> float | None: ...
    @property
    def feature_scales(self) -> dict[Any, float]: ...
    @property
    def feature_names(self) -> Labels | None: ...
    @property
    def history(self) -> list[dict[str, Any]]: ...
    @property
    def cost(self) -> float | None: ...
    @property
    def fit_summary(self) -> dict[str, Any]: ...
    @property
    def dataset_info(self) -> dict[str, Any] | None: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def leave_out(self) -> KeptPredictions | None: ...
    @property
    def review_table(self) -> pd.DataFrame | None: ...
    @property
    def objects_table(self) -> pd.DataFrame | None: ...
    @property
    def scorer(self) -> QualityScorer | None: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def decision_function(self, X: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...

    def leave_group_out(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        area: Any = None,
        together: Any = None,
        return_agreement: bool = False,
    ) -> Any: ...

    def review(self, dataset: Any) -> pd.DataFrame: ...

    def save(
        self, path: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> None: ...


class Estimator(FittedModel, Protocol):
    """A model before its fit: what :data:`gpgc_dask.models.registry.MODELS` makes."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        feature_groups: Any = None,
        sample_weight: Any = None,
        force: bool = False,
    ) -> Self: ...

    def set_session(
        self, *, checkpoint: PathLike[str], progress: bool | Listener | None = None
    ) -> None: ...
