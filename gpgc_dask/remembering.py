"""What all models have in common: where their rows came from, a review, a file, a look."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from os import PathLike, fspath
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from gpgc_dask.frames import gathered
from gpgc_dask.validation import to_vector

__all__ = ["DatasetModel"]


class DatasetModel:
    """Mixin of estimators that take datasets."""

    def review(self, dataset: Any) -> Any:
        """What the model thinks of each image of the dataset it was fitted on: a DataFrame.

        A row an image: ``image``, ``agreement`` (leave-image-out, see ``leave_group_out``),
        ``noise_variance``, ``confidence``, ``flags``, ``superpixels`` and the paths of its files.
        One read of the data. Kept as ``review_`` and saved with the model; rank it with
        :func:`gpgc_dask.ranking.rank`.
        """
        from gpgc_dask.ranking import review

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
        from gpgc_dask.persistence import save

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
        from gpgc_dask.showing.labelled import to_pandas

        check_is_fitted(self)
        return to_pandas(self)

    def to_xarray(self) -> Any:
        """What was learned as an xarray.Dataset with dimensions group, feature, target, iteration.

        Numbers of the whole fit are its attributes. Needs nothing but the model.
        """
        from gpgc_dask.showing.labelled import to_xarray

        check_is_fitted(self)
        return to_xarray(self)

    def plot_noise(self, ax: Any = None) -> Any:
        """Plot the groups' noise variances: dots, or a histogram of many. Returns the axes."""
        from gpgc_dask.showing.plots import plot_noise

        check_is_fitted(self)
        return plot_noise(self, ax)

    def plot_convergence(self, ax: Any = None) -> Any:
        """Plot the evidence still to be gained by reads of the data. Returns the axes."""
        from gpgc_dask.showing.plots import plot_convergence

        check_is_fitted(self)
        return plot_convergence(self, ax)

    def plot_gallery(
        self,
        dataset: Any = None,
        n: int = 6,
        which: Literal["worst", "best"] | Sequence[str] = "worst",
        *,
        by: Literal["agreement", "confidence"] = "agreement",
        side: int = 240,
    ) -> Any:
        """Show images: the given mask, the prediction made without the image, the difference.

        Reads the rows of these images, and all of them once where there was no :meth:`review`.

        Parameters
        ----------
        dataset : that of the fit; default it is opened where it was
        n : images, a column each
        which : "worst", "best", or names of images
        by : the measure that says which are worst, "agreement" or "confidence"
        side : pixels of a picture's longer side

        Returns
        -------
        (3, n) matplotlib axes
        """
        from gpgc_dask.showing.plots import plot_gallery

        check_is_fitted(self)
        return plot_gallery(self, dataset, n, which, by=by, side=side)

    def plot_tradeoff(
        self,
        dataset: Any = None,
        test: Any = None,
        *,
        shares: Sequence[float] | None = None,
        by: Literal["agreement", "confidence"] = "agreement",
        ax: Any = None,
    ) -> Any:
        """Plot accuracy against the share of images kept, the most reliable first.

        With ``test``, a dataset of other images whose masks are right: a GP with this model's
        redundancy is learned from each share and judged by the test's pixels; one read of the data
        serves them all. Without: the mean agreement of the images that are kept.

        Parameters
        ----------
        dataset : that of the fit; default it is opened where it was, if needed
        shares : of the images, above 0 up to 1
        by : the measure that says which images are kept, "agreement" or "confidence"

        Returns
        -------
        matplotlib axes
        """
        from gpgc_dask.showing.plots import SHARES, plot_tradeoff

        check_is_fitted(self)
        return plot_tradeoff(self, dataset, test, shares=shares or SHARES, by=by, ax=ax)

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
        from gpgc_dask.showing.cards import model_card

        return model_card(self)

    def _remember(self, origin: dict[str, Any] | None) -> None:
        """Keep where the data came from, and nothing of an earlier fit's."""
        for name in ("dataset_", "review_"):
            self.__dict__.pop(name, None)
        if origin is not None:
            self.dataset_ = origin
