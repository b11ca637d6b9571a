"""From a stored dataset to a stored, reviewed model, in steps that survive a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr

from gpgc_dask.core.errors import ExistsError, InputError
from gpgc_dask.data.dataset import open_dataset
from gpgc_dask.models.persistence import load, state
from gpgc_dask.models.registry import MODELS
from gpgc_dask.models.review import check_fitted_on
from gpgc_dask.storage.location import Location, is_url

__all__ = ["checkpoint_path", "train"]


def checkpoint_path(target: str | PathLike[str]) -> Path | str:
    """Where the state of an unfinished fit lies: beside the model, at a URL if it is at one."""
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
    resume: bool = False,
    overwrite: bool = False,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[dict[str, Any]], None] | None = None,
    announce: Callable[[str], None] | None = None,
    client: AbstractContextManager[Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Fit a model on a dataset, review its images, and save both. Returns the model.

    Every step is kept: after a kill, the same call with ``resume=True`` goes on.

    Parameters
    ----------
    data : the dataset, as :func:`~gpgc_dask.open_dataset` takes it
    target : the model, a local path or any fsspec URL
    method : "gpgc" (one noise an image), "gp" (one for all) or "svm", whose fit has no checkpoint
    parameters : of the estimator, as ``{"redundancy": 1.0}``
    checkpoint : where the state of the unfinished fit is kept, a path or URL; default beside the
        model
    progress : as that of :class:`~gpgc_dask.GPGC`
    announce : called with what begins, "fit" or "review"
    client : a context that gives a Dask client, entered when there is work to do; default the
        active client, else threads of this process
    storage_options : of fsspec, for those of the three that are URLs; better leave credentials to
        the environment or the standard files

    Examples
    --------
    >>> from gpgc_dask import train
    >>> model = train("horses.zarr", "plain.zarr", method="gp", parameters={"redundancy": 1.0})
    >>> len(model.review_)
    12
    """
    tell = announce or (lambda stage: None)
    place = Location.of(target, storage_options)
    kept = Location.of(checkpoint or checkpoint_path(place.url), storage_options)
    estimator = MODELS[method](**(parameters or {}))
    if method != "svm":
        estimator.set_params(checkpoint=kept, progress=progress)  # with its options
        estimator._keeps_checkpoint = True  # until the model is saved
    _check_target(place, kept, resume=resume, overwrite=overwrite)
    dataset = open_dataset(data, storage_options)
    model: Any = _finished(place, dataset, estimator) if resume else None
    if overwrite:
        kept.unlink()
    if not hasattr(model, "review_"):
        with client or nullcontext():
            if model is None:
                tell("fit")
                model = estimator.fit(dataset)
                # Before the review: this is what took so long.
                model.save(place)
            tell("review")
            model.review(dataset)
        model.save(place)
    # Last: at a URL a model is unfinished while it is saved again.
    if model.converged_:
        kept.unlink()
    return model


def _check_target(target: Location, checkpoint: Location, *, resume: bool, overwrite: bool) -> None:
    """Complain where something is in the way; changes nothing."""
    if resume and overwrite:
        raise InputError("resume goes on with what is there and overwrite discards it: choose one")
    found = state(target)
    if found == "foreign":
        raise ExistsError(
            f"{target} exists and is not a gpgc_dask model: choose another path or remove it"
        )
    if resume or overwrite:
        return
    if found == "complete":
        raise ExistsError(
            f"{target} exists: choose another path, or replace it with overwrite=True (--overwrite)"
        )
    if found == "unfinished" or checkpoint.exists():
        raise ExistsError(
            f"{target if found == 'unfinished' else checkpoint} is an unfinished fit: go on with "
            "it with resume=True (--resume), or begin anew with overwrite=True (--overwrite)"
        )


def _finished(target: Location, dataset: xr.Dataset, wanted: Any) -> Any:
    """The model that is already there, None if there is none; an error if it is another."""
    if state(target) != "complete":
        return None
    model = load(target)
    try:
        check_fitted_on(model, dataset)
    except ValueError as error:
        raise InputError(
            f"{target} is in the way: {error}; or overwrite it (--overwrite)"
        ) from None
    left_out = ("checkpoint", "progress", "n_jobs", "random_state")
    there, here = model.get_params(), wanted.get_params()
    differing = [
        f"{name} ({there[name]} there, {here[name]} here)"
        for name in here
        if name not in left_out and there[name] != here[name]
    ]
    if type(model) is not type(wanted):
        differing.append(f"method ({type(model).__name__} there, {type(wanted).__name__} here)")
    if differing:
        raise InputError(
            f"{target} is a finished model of another fit; what differs: {', '.join(differing)}. "
            "Choose another path, or replace it with overwrite=True (--overwrite)"
        )
    return model
