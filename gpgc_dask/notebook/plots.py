"""Plots of a fitted model as matplotlib axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.errors import InputError, MissingDependencyError
from gpgc_dask.core.progress import convergence_curve
from gpgc_dask.data.dataset import check_same_features
from gpgc_dask.data.subsets import best_photos
from gpgc_dask.experiments.accuracy import PixelCounts
from gpgc_dask.experiments.nested import fit_nested
from gpgc_dask.models.fitted_dataset import require_dataset_info
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import By, has_quality, rank
from gpgc_dask.notebook.overlays import Kind
from gpgc_dask.notebook.photos import (
    open_training_data,
    paint_photos,
    photo_numbers,
    photo_with_mask,
)

__all__ = ["SHARES", "Plots"]

MAX_DOTS = 40
"""Number of groups up to which each has its own dot; more are counted in a histogram."""

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the images that :meth:`Plots.tradeoff` keeps."""

BAR, GOAL, SOFT = "#4c78a8", "#2e9e4f", "#8b95a1"
PANELS: dict[Kind, str] = {
    "given": "given mask",
    "predicted": "predicted without it",
    "differ": "where they differ",
}


class Plots:
    """Plots of a fitted model, available as ``model.plot``.

    Parameters
    ----------
    model : FittedModel
        The model to plot.

    Examples
    --------
    >>> from gpgc_dask import load
    >>> ax = load("model.zarr").plot.noise()
    >>> ax.get_xlabel()
    'noise variance, large = unreliable'
    """

    def __init__(self, model: FittedModel) -> None:
        self._model = model

    def noise(self, ax: Any = None) -> Any:
        """Plot the noise variance of the groups.

        Up to 40 groups have one dot each, the largest variance on top; more groups are counted in
        a histogram.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. Default: new ones.

        Returns
        -------
        matplotlib.axes.Axes
        """
        noise = self._model.group_noise
        if noise is None:
            raise InputError(
                f"a {type(self._model).__name__} has no noise variance per group: fit a GPGC"
            )
        if noise.size > MAX_DOTS:
            ax = _axes(ax)
            _draw_histogram(ax, noise, self._model.typical_noise)
        else:
            ax = _axes(ax, height=1.0 + 0.24 * noise.size)
            _draw_dots(ax, noise, self._model)
        ax.set_xscale("log")
        ax.set(
            title="How noisy each group's labels are", xlabel="noise variance, large = unreliable"
        )
        return _style(ax)

    def convergence(self, ax: Any = None) -> Any:
        """Plot the evidence still to be gained, divided by the tolerance.

        The horizontal axis shows reads of the data, or steps if one read served all of them.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. Default: new ones.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if not self._model.history:
            raise InputError(f"a {type(self._model).__name__} has no history of its fit to plot")
        ax = _axes(ax)
        name, x, to_go = convergence_curve(self._model.history)
        ax.plot(x, 10.0 ** np.array(to_go), color=BAR, marker="o", ms=4)
        ax.axhline(1.0, color=GOAL, ls="--", lw=1.2)
        ax.annotate("tolerance ", (1, 1.0), xycoords=("axes fraction", "data"), ha="right",
                    va="bottom", color=GOAL, fontsize="small")  # fmt: skip
        ax.set_yscale("log")
        state = "converged" if self._model.converged_ else "not converged"
        ax.set(
            title=f"Convergence: {state} after {x[-1]:.3g} {name}",
            xlabel=name,
            ylabel="predicted gain ÷ tolerance",
        )
        return _style(ax)

    def gallery(
        self,
        dataset: xr.Dataset | None = None,
        n: int = 6,
        which: Literal["worst", "best"] | Sequence[str] = "worst",
        *,
        by: By = "quality",
        side: int = 240,
    ) -> Any:
        """Show images with the given mask, the prediction made without them, and the difference.

        Parameters
        ----------
        dataset : xarray.Dataset, optional
            The dataset of the fit. Default: it is opened where it was.
        n : int, default 6
            Number of images.
        which : {"worst", "best"} or sequence of str, default "worst"
            End of the ranking, or names of images.
        by : {"quality", "agreement", "confidence"}, default "quality"
            Order of the ranking.
        side : int, default 240
            Longer side of a picture in pixels.

        Returns
        -------
        (3, n) array of matplotlib.axes.Axes
            One column per image.
        """
        dataset = open_training_data(self._model) if dataset is None else dataset
        ranking = rank(self._review(dataset), by).set_index("image")
        names = _choose(ranking, which, n)
        photos = photo_numbers(dataset, names)
        pictures = paint_photos(self._model, dataset, photos, side)
        axes = _pyplot().subplots(
            len(PANELS), len(names), figsize=(2.1 * len(names) + 0.3, 5.4), squeeze=False,
            layout="constrained",
        )[1]  # fmt: skip
        for column, (name, photo) in enumerate(zip(names, photos.tolist(), strict=True)):
            for ax, kind in zip(axes[:, column], PANELS, strict=True):
                ax.imshow(photo_with_mask(dataset, pictures[photo], kind))
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
            row = ranking.loc[name]
            value = "unknown" if np.isnan(row[by]) else f"{row[by]:.2f}"
            axes[0, column].set_title(
                f"{row['rank']}. {_shorten(name)}\n{by} {value}", fontsize="small", linespacing=1.3
            )
        for ax, caption in zip(axes[:, 0], PANELS.values(), strict=True):
            ax.set_ylabel(caption)
        return axes

    def tradeoff(
        self,
        dataset: xr.Dataset | None = None,
        test: xr.Dataset | None = None,
        *,
        shares: Sequence[float] = SHARES,
        by: By = "quality",
        ax: Any = None,
    ) -> Any:
        """Plot accuracy against the share of images that are kept, most reliable first.

        With ``test``, a GP with the redundancy of the model is fitted to each share and evaluated
        on the pixels of the test images; one read of the data serves all fits. Without ``test``,
        the plot shows the mean quality of the images that are kept, for which the review is
        enough.

        Parameters
        ----------
        dataset : xarray.Dataset, optional
            The dataset of the fit. Default: it is opened where it was, if needed.
        test : xarray.Dataset, optional
            A dataset of other images whose masks are right.
        shares : sequence of float
            Shares of the images, above 0 and up to 1.
        by : {"quality", "agreement", "confidence"}, default "quality"
            Measure that decides which images are kept.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. Default: new ones.

        Returns
        -------
        matplotlib.axes.Axes
        """
        shares = sorted(shares)
        if not shares or not 0 < shares[0] <= shares[-1] <= 1:
            raise InputError(f"shares must be above 0 and up to 1, such as {SHARES}, got {shares}")
        table = self._model.review_table
        if dataset is None and (test is not None or table is None or not has_quality(table)):
            dataset = open_training_data(self._model)
        review = self._review(dataset)
        subsets = [best_photos(review[by].to_numpy(), share) for share in shares]
        if test is None:
            quality = review["quality"].to_numpy()
            values = [float(np.nanmean(quality[photos])) for photos in subsets]
            label = "mean quality of the images kept"
        else:
            origin = require_dataset_info(self._model)
            check_same_features(test, origin, self._model.coef_.shape[1])
            values = _refit(self._model, dataset, test, subsets)
            label = "average class accuracy on test images, %"
        ax = _axes(ax)
        percent = 100 * np.array(shares)
        ax.plot(percent, values, color=BAR, marker="o", ms=5)
        ax.set_xscale("log")
        ax.set_xticks(percent, [f"{share:g}" for share in percent])
        ax.minorticks_off()
        ax.set(title="Fewer, more reliable images", xlabel=f"images kept by {by}, %", ylabel=label)
        return _style(ax)

    def _review(self, dataset: xr.Dataset | None) -> pd.DataFrame:
        """The review of the model, made now if there is none."""
        review = self._model.review_table
        if review is None or not has_quality(review):
            return self._model.review(dataset)
        return review


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingDependencyError(
            "plots need matplotlib, which is not installed: pip install 'gpgc_dask[plot]'"
        ) from None
    return plt


def _axes(ax: Any, width: float = 6.0, height: float = 3.6) -> Any:
    if ax is not None:
        return ax
    return _pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def _style(ax: Any) -> Any:
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _draw_histogram(ax: Any, noise: Array, typical: float | None) -> None:
    low, high = np.log10(noise.min()), np.log10(noise.max())
    bins = np.logspace(low, max(high, low + 0.1), 31)
    ax.hist(noise, bins=bins, color=BAR, edgecolor="white", linewidth=0.5)
    ax.axvline(typical, color=SOFT, ls="--", lw=1.2)
    ax.annotate(" typical", (typical, 1), xycoords=("data", "axes fraction"), va="top",
                color=SOFT, fontsize="small")  # fmt: skip
    ax.set(ylabel="groups")


def _draw_dots(ax: Any, noise: Array, model: FittedModel) -> None:
    order = np.argsort(noise, kind="stable")
    names = [str(model.groups_[group]) for group in order]
    ax.plot(noise[order], np.arange(noise.size), "o", color=BAR, ms=7)
    ax.axvline(model.typical_noise, color=SOFT, ls="--", lw=1.2)
    ax.set_yticks(np.arange(noise.size), names, fontsize="small")
    ax.set_ylim(-0.6, noise.size - 0.4)
    low, high = np.log10(noise.min()), np.log10(noise.max())
    centre, factor = 10 ** ((low + high) / 2), 10 ** max(0.55 * (high - low), 0.5)
    ax.set_xlim(centre / factor, centre * factor)  # at least a decade


def _choose(ranking: pd.DataFrame, which: str | Sequence[str], n: int) -> list[str]:
    """Names of the images to show."""
    if not isinstance(which, str):
        return list(which)
    if which not in ("worst", "best"):
        raise InputError(f"which must be worst, best or a list of names, got {which!r}")
    return list(ranking.index if which == "worst" else ranking.index[::-1])[:n]


def _refit(model: FittedModel, dataset: Any, test: xr.Dataset, subsets: list[Index]) -> list[float]:
    """Accuracy in percent on the pixels of the test images, of a GP fitted to each subset."""
    truth = PixelCounts.read(test)
    models = fit_nested(dataset, subsets, redundancy=model.learned_redundancy or 1.0)
    return [
        float("nan") if fitted is None else 100 * truth.evaluate(fitted.predict(test)).accuracy
        for fitted in models
    ]


def _shorten(name: str, length: int = 22) -> str:
    return name if len(name) <= length else "…" + name[1 - length :]
