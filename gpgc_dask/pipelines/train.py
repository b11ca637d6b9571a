"""From a stored dataset to a stored, reviewed model, in steps that survive a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr

from gpgc_dask.core.errors import ExistsError, InputError
from gpgc_dask.data.dataset import open_dataset
from gpgc_dask.execution.batches import client_context
from gpgc_dask.models.fitted_dataset import check_fitted_on
from gpgc_dask.models.persistence import load, state
from gpgc_dask.models.protocol import Estimator, FittedModel
from gpgc_dask.models.registry import MODELS
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.storage.location import Location, is_url

__all__ = ["checkpoint_path", "train"]


def checkpoint_path(target: str | PathLike[str]) -> Path | str:
    """Path or URL of the state of an unfinished fit: next to the model."""
    if is_url(target):
        return f"{str(target).rstrip('/')}.unfinished.npz"
    path = Path(target)
    return path.with_name(f"{path.name}.unfinished.npz")


def train(
    data: str | PathLike[str],
    target: str | PathLike[str],
    *,
    method: str = "gpgc",
    parameters: Mapping[str, Any] | None = None,
    start: str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    announce: Callable[[str], None] | None = None,
    run: RunOptions | None = None,
    storage_options: dict[str, Any] | None = None,
) -> FittedModel:
    """Fit a model on a dataset, review its images, and save both.

    Each step is saved: after a crash, the same call with ``run=RunOptions(resume=True)`` continues.

    Parameters
    ----------
    data : path or URL
        The dataset, as :func:`~gpgc_dask.open_dataset` takes it.
    target : path or URL
        The model, a local path or any fsspec URL.
    method : str, default "gpgc"
        A registered model (``MODELS.names()``): "gpgc" has one noise variance per image, "gp" one
        for all images; the fit of an "svm" has no checkpoint.
    parameters : mapping, optional
        Parameters of the estimator, such as ``{"redundancy": 1.0}``.
    start : path or URL, optional
        A model of the same dataset to start at, for example before some masks were corrected: the
        fit takes fewer reads. It may be the ``target`` itself, with ``overwrite``.
    checkpoint : path or URL, optional
        Where the state of the unfinished fit is kept; by default next to the model.
    announce : callable, optional
        Called with the name of each step as it begins, "fit" or "review".
    run : RunOptions, optional
        Resuming, progress (of the fit, as in :class:`~gpgc_dask.GPGC`) and cluster. ``on_error``
        has no effect, as no photos are read.
    storage_options : dict, optional
        Options of fsspec for the dataset, the model and the checkpoint, as far as they are URLs.
        Credentials are better left to the environment or the standard files.

    Returns
    -------
    FittedModel

    Examples
    --------
    >>> from gpgc_dask import train
    >>> model = train("horses.zarr", "plain.zarr", method="gp", parameters={"redundancy": 1.0})
    >>> len(model.review_)
    12
    """
    announce, run = announce or (lambda step: None), run or RunOptions()
    place = Location.of(target, storage_options)
    state_file = Location.of(checkpoint or checkpoint_path(place.url), storage_options)
    started = {} if start is None else {"warm_start": _load_start(start, method, storage_options)}
    estimator: Estimator = MODELS[method](**(parameters or {}), **started)
    estimator.set_session(checkpoint=state_file, progress=run.progress)
    _check_target(place, state_file, run)
    dataset = open_dataset(data, storage_options)
    model = _load_finished(place, dataset, estimator) if run.resume else None
    if run.overwrite:
        state_file.unlink()
    if model is None or model.review_table is None:
        with nullcontext() if run.client is None else client_context(run.client):
            if model is None:
                announce("fit")
                model = estimator.fit(dataset)
                model.save(place)  # before the review: the fit took longest
            announce("review")
            model.review(dataset)
        model.save(place)
    # Last: at a URL a model is unfinished while it is saved again.
    if model.converged_:
        state_file.unlink()
    return model


def _check_target(target: Location, checkpoint: Location, run: RunOptions) -> None:
    """Raise an ExistsError if the target may not be written. Changes nothing."""
    present = state(target)
    if present == "foreign":
        raise ExistsError(
            f"{target} exists and is not a gpgc_dask model: choose another path or remove it"
        )
    if run.resume or run.overwrite:
        return
    if present == "complete":
        raise ExistsError(
            f"{target} exists: choose another path, or replace it with overwrite=True (--overwrite)"
        )
    if present == "unfinished" or checkpoint.exists():
        raise ExistsError(
            f"{target if present == 'unfinished' else checkpoint} is an unfinished fit: continue "
            "with resume=True (--resume), or restart with overwrite=True (--overwrite)"
        )


def _load_start(
    start: str | PathLike[str], method: str, storage_options: dict[str, Any] | None
) -> FittedModel:
    """The model to start at."""
    if "warm_start" not in MODELS[method]().get_params(deep=False):
        raise InputError(f"a fit with the method {method} cannot start at a model: only gpgc can")
    return load(Location.of(start, storage_options))


def _load_finished(
    target: Location, dataset: xr.Dataset, wanted: FittedModel
) -> FittedModel | None:
    """The model that exists already, or None; raise an InputError if it is of another fit."""
    if state(target) != "complete":
        return None
    model = load(target)
    try:
        check_fitted_on(model, dataset)
    except ValueError as error:
        raise InputError(
            f"{target} cannot be continued: {error}; or overwrite it (--overwrite)"
        ) from None
    then, now = model.get_params(deep=False), wanted.get_params(deep=False)
    differing = [
        f"{name} ({then[name]} there, {now[name]} here)"
        for name in now
        if name not in wanted.session_parameters and then[name] != now[name]
    ]
    if type(model) is not type(wanted):
        differing.append(f"method ({type(model).__name__} there, {type(wanted).__name__} here)")
    if differing:
        raise InputError(
            f"{target} is a finished model of another fit, which differs in "
            f"{', '.join(differing)}. Choose another path, or replace it with overwrite=True "
            "(--overwrite)"
        )
    return model
