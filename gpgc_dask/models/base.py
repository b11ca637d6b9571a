"""The base class of the models: what they have in common, as :class:`FittedModel` lists it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from os import PathLike, fspath
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.display import notebook_module, render_card
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.models.objects import empty_table, require_objects
from gpgc_dask.models.persistence import save
from gpgc_dask.models.protocol import Listener
from gpgc_dask.models.review import rank, require_review, review
from gpgc_dask.models.tables import to_pandas, to_xarray
from gpgc_dask.models.validation import load_vectors, to_vector
from gpgc_dask.quality.calibration import Calibration
from gpgc_dask.quality.scorer import QualityScorer

__all__ = ["DatasetModel"]

TABLES = ("review_", "reviewed_objects_")
"""Attributes that are tables of the last review."""


class DatasetModel(ClassifierMixin, BaseEstimator, ABC):
    """Base class of classifiers that take arrays or datasets.

    The properties are those of :class:`gpgc_dask.models.protocol.FittedModel`; a subclass overrides
    those of what it learns.
    """

    saved_arrays: ClassVar[tuple[str, ...]] = ()
    saved_values: ClassVar[tuple[str, ...]] = ()
    session_parameters: ClassVar[tuple[str, ...]] = (
        "progress",
        "checkpoint",
        "random_state",
        "n_jobs",
        "warm_start",
    )
    classes_: Labels
    groups_: Labels
    coef_: Array
    converged_: bool
    n_iter_: int
    n_reads_: int
    dataset_: dict[str, Any]
    review_: pd.DataFrame
    leave_out_: KeptPredictions
    calibration_: Calibration
    reviewed_objects_: pd.DataFrame
    scorer_: QualityScorer

    @abstractmethod
    def decision_function(self, X: Any) -> Any:
        """Decision values of the rows of X: (N,) for two classes, (N, classes) for more."""

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """Labels of the rows of X."""

    @abstractmethod
    def leave_group_out(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        area: Any = None,
        return_agreement: bool = False,
    ) -> Any:
        """Decision values of the rows, from models that never saw the row's group."""

    @property
    @abstractmethod
    def fit_summary(self) -> dict[str, Any]:
        """The outcome of the fit as plain values, for printing."""

    def set_session(
        self, *, checkpoint: PathLike[str], progress: bool | Listener | None = None
    ) -> None:
        """Set where an unfinished fit is kept and what listens to it, where the model can.

        Parameters
        ----------
        checkpoint : path-like
            File that holds the state of the fit. It remains after the fit, until the caller
            removes it.
        progress : bool or callable, optional
            As the parameter of :class:`gpgc_dask.GPGC`.
        """

    # -- what only some models learn -------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether the model has been fitted."""
        return "coef_" in vars(self)

    @property
    def group_noise(self) -> Array | None:
        """(J,) noise variance per group; None where all groups share one, or there is none."""
        return None

    @property
    def typical_noise(self) -> float | None:
        """Weighted median noise variance of the training groups."""
        return None

    @property
    def group_confidence(self) -> Array | None:
        """(J,) share of the groups that are estimated less reliable."""
        return None

    @property
    def group_margin(self) -> Array | None:
        """(J,) mean margin of the group's labels."""
        return None

    @property
    def covariance_factor(self) -> Array | None:
        """(k, k) T with posterior covariance TᵀT of the weights."""
        return None

    @property
    def log_evidence(self) -> float | None:
        """Logarithm of the probability of the labels."""
        return None

    @property
    def learned_redundancy(self) -> float | None:
        """How many rows of a group count as one."""
        return None

    @property
    def feature_scales(self) -> dict[Any, float]:
        """{feature group: prior standard deviation}; empty where there are none."""
        return {}

    @property
    def feature_names(self) -> Labels | None:
        """(k,) names of the columns, of a fit on a DataFrame."""
        return vars(self).get("feature_names_in_")

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per iteration; empty where there are none."""
        return []

    @property
    def cost(self) -> float | None:
        """C of an SVM."""
        return None

    @property
    def dataset_info(self) -> dict[str, Any] | None:
        """Where the rows come from; None where the model was fitted on arrays."""
        return vars(self).get("dataset_")

    @property
    def verdicts_(self) -> list[str]:
        """Ids of the verdicts that the dataset of the fit had."""
        return list((self.dataset_info or {}).get("verdicts", ()))

    @property
    def calibration(self) -> Calibration | None:
        """Probabilities of decision values; None without a second look or a :meth:`review`."""
        return vars(self).get("calibration_")

    @property
    def leave_out(self) -> KeptPredictions | None:
        """Leave-image-out decision values of the last :meth:`review`; None without one."""
        return vars(self).get("leave_out_")

    @property
    def review_table(self) -> pd.DataFrame | None:
        """The table of the last :meth:`review`; None where there was none."""
        return vars(self).get("review_")

    @property
    def scorer(self) -> QualityScorer | None:
        """Estimates the quality of masks of other photos; None without a :meth:`review`."""
        return vars(self).get("scorer_")

    @property
    def objects_table(self) -> pd.DataFrame | None:
        """Annotations and regions of the last :meth:`review`; None where there was none."""
        return vars(self).get("reviewed_objects_")

    @property
    def objects_(self) -> pd.DataFrame:
        """Annotations and regions of the last :meth:`review`, the most suspicious first.

        See :func:`gpgc_dask.models.objects.objects_table` for the columns.
        """
        check_is_fitted(self)
        return require_objects(self)

    # -- review, score, files --------------------------------------------------------------

    def review(self, dataset: Any) -> pd.DataFrame:
        """Assess each image of the dataset that the model was fitted on. Reads the data once.

        The result is kept as ``review_`` and saved with the model, together with the decision
        values that reports and exports need (``leave_out_``) and the probabilities that follow from
        them (``calibration_``, if there are 10 labelled images or more). Sort it with
        :func:`gpgc_dask.rank`.

        Parameters
        ----------
        dataset : xarray.Dataset
            The dataset of the fit, from :func:`gpgc_dask.open_dataset`.

        Returns
        -------
        DataFrame
            One row per image: ``image``, ``quality`` (estimated IoU with a correct mask) with
            ``quality_low``, ``quality_high`` and ``bad_probability``, ``agreement``
            (leave-image-out, see :meth:`leave_group_out`), ``noise_variance``, ``confidence``,
            ``flags``, ``superpixels`` and the paths of its files.
        """
        check_is_fitted(self)
        done = review(self, dataset)
        self.leave_out_, self.scorer_ = done.leave_out, done.scorer
        self.review_, self.reviewed_objects_ = done.table, done.objects
        if done.calibration is not None:
            self.calibration_ = done.calibration
        return self.review_

    @property
    def quality_(self) -> pd.DataFrame:
        """The last :meth:`review`, sorted by the estimated quality: see :func:`gpgc_dask.rank`."""
        check_is_fitted(self)
        return rank(require_review(self))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy of ``predict(X)``, as of scikit-learn's classifiers.

        Parameters
        ----------
        X : (N, k) array, dask array, DataFrame or dataset
            Features. Those of a dask array are computed immediately.
        y : (N,) array
            True labels.
        sample_weight : (N,) array, optional
            Weights of the rows.

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score

        predicted = self.predict(X)
        predicted, y, sample_weight = load_vectors(
            predicted=predicted, y=y, sample_weight=sample_weight
        )
        y = np.asarray(to_vector("y", y, len(predicted)))
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def save(
        self, path: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted model as a Zarr group, which :func:`gpgc_dask.load` reads.

        Parameters
        ----------
        path : str or path-like
            A local folder or any fsspec URL. An older model there is replaced.
        storage_options : dict, optional
            Options of fsspec for a URL.
        """
        check_is_fitted(self)
        save(self, path, storage_options)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle, joblib and skops, as plain values.

        A fitted model loses what belongs to the session: a callable ``progress``, the
        credentials of a ``checkpoint``, and the model that it started at.
        """
        state: dict[str, Any] = {**super().__getstate__()}
        for table in TABLES:
            if table in state:
                state[table] = {
                    name: np.array(values.tolist()) for name, values in state[table].items()
                }
        if "leave_out_" in state:
            kept = state["leave_out_"]
            state["leave_out_"] = {"rows": kept.rows, "values": kept.values}
        if "calibration_" in state:
            state["calibration_"] = state["calibration_"].to_array()
        if "scorer_" in state:
            state["scorer_"] = state["scorer_"].to_arrays()
        if self.is_fitted:
            if "warm_start" in state:
                state["warm_start"] = None
            if callable(state.get("progress")):
                state["progress"] = None
            if state.get("checkpoint") is not None:
                state["checkpoint"] = fspath(state["checkpoint"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for table in TABLES:
            if table in state:
                restored = pd.DataFrame(state[table])
                state = state | {table: empty_table() if restored.empty else restored}
        if "leave_out_" in state:
            state = state | {"leave_out_": KeptPredictions(**state["leave_out_"])}
        if "calibration_" in state:
            state = state | {"calibration_": Calibration.from_array(state["calibration_"])}
        if "scorer_" in state:
            state = state | {"scorer_": QualityScorer.from_arrays(state["scorer_"])}
        super().__setstate__(state)

    # -- tables, plots and cards ------------------------------------------------------------

    def to_pandas(self) -> pd.DataFrame:
        """Table of the groups, the least reliable first.

        Returns
        -------
        DataFrame
            One row per group with its noise variance, confidence or margin and, after a
            :meth:`review`, rank, quality, agreement, flags and files of the image.
        """
        check_is_fitted(self)
        return to_pandas(self)

    def to_xarray(self) -> xr.Dataset:
        """Learned values with labels.

        Returns
        -------
        xarray.Dataset
            Dimensions are group, feature, feature_group, target and iteration; numbers of the
            whole fit are attributes.
        """
        check_is_fitted(self)
        return to_xarray(self)

    @property
    def plot(self) -> Any:
        """Plots of the fitted model: :class:`gpgc_dask.notebook.plots.Plots`.

        ``model.plot.noise()``, ``convergence()``, ``gallery()`` and ``tradeoff()`` draw with
        matplotlib (``pip install "gpgc_dask[plot]"``) and return its axes.
        """
        check_is_fitted(self)
        return notebook_module("plots").Plots(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """A card if the model is fitted, otherwise scikit-learn's diagram."""
        if not self.is_fitted:
            default: dict[str, Any] = super()._repr_mimebundle_(**options)
            return default
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        if not self.is_fitted:
            diagram: dict[str, Any] = super()._repr_mimebundle_()
            return str(diagram.get("text/html", f"<pre>{escape(repr(self))}</pre>"))
        return render_card("model", self)

    def _remember(self, origin: dict[str, Any] | None) -> None:
        """Keep where the rows come from, and drop what an earlier fit has left."""
        for name in ("dataset_", *TABLES, "leave_out_", "calibration_", "scorer_"):
            self.__dict__.pop(name, None)
        if origin is not None:
            self.dataset_ = origin
