"""What the button "Fit again" does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import FitProgress
from gpgc_dask.models.persistence import load
from gpgc_dask.models.registry import MODELS
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.train import train
from gpgc_dask.review.state import Refit
from gpgc_dask.storage.location import Location

__all__ = ["make_refit"]


def make_refit(
    data: str | PathLike[str],
    model: str | PathLike[str],
    *,
    folder: str | PathLike[str],
    target: str | PathLike[str] | None = None,
) -> Refit:
    """Return a function that fits the same kind of model again, on the dataset with its verdicts.

    A model with one noise variance per image starts at the one before, which takes fewer reads.

    Parameters
    ----------
    data, model : path or URL
        The dataset, and the model whose method and parameters are used.
    folder : path
        Where the models are written without ``target``: one per fit.
    target : path or URL, optional
        Where every model is written; it replaces the one before.
    """
    if target is not None and Location.of(target).url == Location.of(model).url:
        raise InputError(
            f"{target} is the model of the review itself: choose another path (--refit-to)"
        )
    fitted = load(model)
    method = next(name for name in MODELS if MODELS[name] is type(fitted))
    session = fitted.session_parameters
    parameters = {name: v for name, v in fitted.get_params().items() if name not in session}
    numbers = itertools.count(1)
    latest = str(model)

    def refit(report: Callable[[str], None]) -> str:
        nonlocal latest
        place = str(target or Path(folder) / f"model-{next(numbers)}.zarr")

        def show(name: str, text: str, share: float | None, *, important: bool = False) -> None:
            report(text)

        run = RunOptions(overwrite=True, progress=FitProgress(show))
        start = None if fitted.group_noise is None else latest
        train(
            data, place, method=method, parameters=parameters, start=start, announce=report, run=run
        )
        latest = place
        return place

    return refit
