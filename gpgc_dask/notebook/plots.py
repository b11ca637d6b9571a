"""Plots of a fitted model: matplotlib axes, to be shown, changed or saved by whoever asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.errors import InputError, MissingDependencyError
from gpgc_dask.core.progress import course
from gpgc_dask.data.dataset import check_same_features
from gpgc_dask.data.subsets import best_photos
from gpgc_dask.experiments.judging import Judge
from gpgc_dask.experiments.nested import fit_nested
from gpgc_dask.models.review import By, rank
from gpgc_dask.notebook.photos import dataset_of, judged, numbers_of, shown

__all__ = ["SHARES", "Plots"]

MOST_DOTS = 40
"""Groups up to which each has a dot of its own; more are counted in a histogram."""

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the images that are kept, for :meth:`Plots.tradeoff`."""

BAR, GOAL, SOFT = "#4c78a8", "#2e9e4f", "#8b95a1"
PANELS: dict[Any, str] = {
    "given": "given mask",
    "predicted": "predicted without it",
    "differ": "where they differ",
}


def _axes(ax: Any, width: float = 6.0, height: float = 3.6) -> Any:
    if ax is not None:
        return ax
    plt = _pyplot()
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingDependencyError(
            "plots are drawn by matplotlib, which is not installed: pip install 'gpgc_dask[plot]'"
        ) from None
    return plt


class Plots:
    """Plots of a fitted model, reached as ``model.plot``. Each method returns matplotlib axes.

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

    def __init__(self, model: Any) -> None:
        self._model = model

    def noise(self, ax: Any = None) -> Any:
        """Noise variance of the groups: a dot each, largest on top, or a histogram of many."""
        model = self._model
        noise = getattr(model, "noise_variance_", None)
        if noise is None or np.ndim(noise) == 0:
            raise InputError(
                f"a {type(model).__name__} has no noise variance per group: fit a GPGC"
            )
        noise = np.asarray(noise)
        if noise.size > MOST_DOTS:
            ax = _axes(ax)
            low, high = np.log10(noise.min()), np.log10(noise.max())
            bins = np.logspace(low, max(high, low + 0.1), 31)
            ax.hist(noise, bins=bins, color=BAR, edgecolor="white", linewidth=0.5)
            ax.axvline(model.typical_noise_, color=SOFT, ls="--", lw=1.2)
            ax.annotate(
                " typical", (model.typical_noise_, 1), xycoords=("data", "axes fraction"), va="top",
                color=SOFT, fontsize="small",
            )  # fmt: skip
            ax.set(ylabel="groups")
        else:
            ax = _axes(ax, height=1.0 + 0.24 * noise.size)
            order = np.argsort(noise, kind="stable")
            names = [str(model.groups_[group]) for group in order]
            ax.plot(noise[order], np.arange(noise.size), "o", color=BAR, ms=7)
            ax.axvline(model.typical_noise_, color=SOFT, ls="--", lw=1.2)
            ax.set_yticks(np.arange(noise.size), names, fontsize="small")
            ax.set_ylim(-0.6, noise.size - 0.4)
            centre, wide = _middle(noise)
            ax.set_xlim(centre / wide, centre * wide)
        ax.set_xscale("log")
        ax.set(
            title="How noisy each group's labels are", xlabel="noise variance, large = unreliable"
        )
        return _plain(ax)

    def convergence(self, ax: Any = None) -> Any:
        """Evidence still to be gained, over the tolerance, by reads of the data, or by steps."""
        if not hasattr(self._model, "history_"):
            raise InputError(f"a {type(self._model).__name__} keeps no history of its fit to plot")
        ax = _axes(ax)
        name, x, to_go = course(self._model.history_)
        ax.plot(x, 10.0 ** np.array(to_go), color=BAR, marker="o", ms=4)
        ax.axhline(1.0, color=GOAL, ls="--", lw=1.2)
        ax.annotate("tolerance ", (1, 1.0), xycoords=("axes fraction", "data"), ha="right",
                    va="bottom", color=GOAL, fontsize="small")  # fmt: skip
        ax.set_yscale("log")
        state = "settled" if self._model.converged_ else "not settled"
        ax.set(
            title=f"Convergence: {state} after {x[-1]:.3g} {name}",
            xlabel=name,
            ylabel="predicted gain ÷ tolerance",
        )
        return _plain(ax)

    def gallery(
        self,
        dataset: xr.Dataset | None = None,
        n: int = 6,
        which: Literal["worst", "best"] | Sequence[str] = "worst",
        *,
        by: By = "agreement",
        side: int = 240,
    ) -> Any:
        """(3, n) axes: images a column, with given mask, prediction without them, and difference.

        Only these images' rows are read, and one pass over all where there is no review yet.

        Parameters
        ----------
        dataset : that of the fit; default it is opened where it was
        which : "worst", "best", or names of images
        by : the measure that decides
        side : pixels of a picture's longer side
        """
        dataset = dataset_of(self._model) if dataset is None else dataset
        table = (
            self._model.review_ if hasattr(self._model, "review_") else self._model.review(dataset)
        )
        ranking = rank(table, by).set_index("image")
        if isinstance(which, str):
            if which not in ("worst", "best"):
                raise InputError(f"which must be worst, best or a list of names, got {which!r}")
            chosen = list(ranking.index if which == "worst" else ranking.index[::-1])[:n]
        else:
            chosen = list(which)
        photos = numbers_of(dataset, chosen)
        pictures = judged(self._model, dataset, photos, side)
        axes = _pyplot().subplots(
            3,
            len(chosen),
            figsize=(2.1 * len(chosen) + 0.3, 5.4),
            squeeze=False,
            layout="constrained",
        )[1]
        for column, (name, photo) in enumerate(zip(chosen, photos.tolist(), strict=True)):
            for row, kind in enumerate(PANELS):
                ax = axes[row, column]
                ax.imshow(shown(dataset, pictures[photo], kind))
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
            told = ranking.loc[name]
            value = "unknown" if np.isnan(told[by]) else f"{told[by]:.2f}"
            axes[0, column].set_title(
                f"{told['rank']}. {_short(name)}\n{by} {value}", fontsize="small", linespacing=1.3
            )
        for ax, told in zip(axes[:, 0], PANELS.values(), strict=True):
            ax.set_ylabel(told)
        return axes

    def tradeoff(
        self,
        dataset: xr.Dataset | None = None,
        test: xr.Dataset | None = None,
        *,
        shares: Sequence[float] = SHARES,
        by: By = "agreement",
        ax: Any = None,
    ) -> Any:
        """Accuracy against the share of images kept, the most reliable first.

        With ``test``, a dataset of other images whose masks are right: a GP with the model's
        redundancy is learned from each share and judged by the test's pixels; one read of the data
        serves them all. Without: the mean agreement of the images that are kept, which needs
        nothing but the review.

        Parameters
        ----------
        dataset : that of the fit; default it is opened where it was, if needed
        shares : of the images, above 0 up to 1
        by : the measure that decides which images are kept
        """
        shares = sorted(shares)
        if not shares or not 0 < shares[0] <= shares[-1] <= 1:
            raise InputError(f"shares must be above 0 and up to 1, such as {SHARES}, got {shares}")
        if dataset is None and not (test is None and hasattr(self._model, "review_")):
            dataset = dataset_of(self._model)
        table = (
            self._model.review_ if hasattr(self._model, "review_") else self._model.review(dataset)
        )
        subsets = [best_photos(table[by].to_numpy(), share) for share in shares]
        if test is None:
            agreement = table["agreement"].to_numpy()
            values = [float(np.nanmean(agreement[photos])) for photos in subsets]
            told = "mean agreement of the images kept"
        else:
            check_same_features(test, self._model.dataset_, self._model.coef_.shape[1])
            values = _retrained(self._model, dataset, test, subsets)
            told = "average class accuracy on test images, %"
        ax = _axes(ax)
        percent = 100 * np.array(shares)
        ax.plot(percent, values, color=BAR, marker="o", ms=5)
        ax.set_xscale("log")
        ax.set_xticks(percent, [f"{share:g}" for share in percent])
        ax.minorticks_off()
        ax.set(
            title="What fewer, better images give", xlabel=f"images kept by {by}, %", ylabel=told
        )
        return _plain(ax)


def _retrained(model: Any, dataset: Any, test: xr.Dataset, subsets: list[Index]) -> list[float]:
    """Accuracy in per cent on the test's pixels of a GP learned from each of nested subsets."""
    judge = Judge.of(test)
    fitted = fit_nested(dataset, subsets, redundancy=getattr(model, "redundancy_", 1.0))
    return [
        float("nan") if one is None else 100 * judge(one.predict(test)).accuracy for one in fitted
    ]


def _middle(noise: Array) -> tuple[float, float]:
    """(the middle of a logarithmic axis, how far it goes from there): a decade at least."""
    low, high = np.log10(noise.min()), np.log10(noise.max())
    return float(10 ** ((low + high) / 2)), float(10 ** max(0.55 * (high - low), 0.5))


def _plain(ax: Any) -> Any:
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else "…" + name[1 - most :]
