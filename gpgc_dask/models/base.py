"""What all models have in common: where their rows came from, a review, a file, a look."""

from __future__ import annotations

from html import escape
from os import PathLike, fspath
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from gpgc_dask.core.display import notebook_module, render_card
from gpgc_dask.models.frames import gathered
from gpgc_dask.models.persistence import save
from gpgc_dask.models.review import review
from gpgc_dask.models.tables import to_pandas, to_xarray
from gpgc_dask.models.validation import to_vector

__all__ = ["DatasetModel"]


class DatasetModel:
    """Mixin of estimators that take datasets."""

    def review(self, dataset: Any) -> Any:
        """What the model thinks of each image of the dataset it was fitted on: a DataFrame.

        A row an image: ``image``, ``agreement`` (leave-image-out, see ``leave_group_out``),
        ``noise_variance``, ``confidence``, ``flags``, ``superpixels`` and the paths of its files.
        One read of the data. Kept as ``review_`` and saved with the model; rank it with
        :func:`gpgc_dask.models.review.rank`.
        """
        check_is_fitted(self)
        self.review_ = review(self, dataset)
        return self.review_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy of ``predict(X)``, as scikit-learn's classifiers have it; at once."""
        from sklearn.metrics import accuracy_score

        predicted: Any = self.predict(X)  # type: ignore[attr-defined]
        _, predicted, y, sample_weight = gathered(None, predicted, y, sample_weight)
        y = np.asarray(to_vector("y", y, len(predicted)))
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def save(
        self, path: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted model to a path or URL as a Zarr group; ``gpgc_dask.load`` reads it."""
        check_is_fitted(self)
        save(self, path, storage_options)

    def __getstate__(self) -> dict[str, Any]:
        """What pickle, joblib and skops write: plain values, and of a fitted model those alone.

        A callable ``progress`` and the credentials of a ``checkpoint`` belong to the session.
        """
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if "review_" in state:
            state["review_"] = {
                name: np.array(values.tolist()) for name, values in state["review_"].items()
            }
        if hasattr(self, "coef_"):
            if callable(state.get("progress")):
                state["progress"] = None
            if state.get("checkpoint") is not None:
                state["checkpoint"] = fspath(state["checkpoint"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "review_" in state:
            state = state | {"review_": pd.DataFrame(state["review_"])}
        super().__setstate__(state)  # type: ignore[misc]

    # -- to look at ------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A DataFrame with a row a group, the least reliable first.

        What the model learned of each (noise variance, confidence, margin), and after a
        :meth:`review` the images' rank, agreement, flags and files.
        """
        check_is_fitted(self)
        return to_pandas(self)

    def to_xarray(self) -> Any:
        """What was learned as an xarray.Dataset with dimensions group, feature, target, iteration.

        Numbers of the whole fit are its attributes. Needs nothing but the model.
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

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Fitted, a card; else scikit-learn's diagram."""
        if not hasattr(self, "coef_"):
            usual: dict[str, Any] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
            return usual
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        if not hasattr(self, "coef_"):
            diagram: dict[str, Any] = super()._repr_mimebundle_()  # type: ignore[misc]
            return str(diagram.get("text/html", f"<pre>{escape(repr(self))}</pre>"))
        return render_card("model", self)

    def _remember(self, origin: dict[str, Any] | None) -> None:
        """Keep where the data came from, and nothing of an earlier fit's."""
        for name in ("dataset_", "review_"):
            self.__dict__.pop(name, None)
        if origin is not None:
            self.dataset_ = origin
