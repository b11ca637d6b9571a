"""From a dataset on disk to a reviewed model on disk, in steps that survive a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from gpgc_dask.dataset import open_dataset
from gpgc_dask.estimators import GP, GPGC
from gpgc_dask.persistence import is_model, load, local_path
from gpgc_dask.ranking import check_fitted_on
from gpgc_dask.svm import MarginSVM

__all__ = ["METHODS", "Method", "checkpoint_path", "train"]

Method = Literal["gpgc", "gp", "svm"]
METHODS: dict[str, Any] = {"gpgc": GPGC, "gp": GP, "svm": MarginSVM}


def checkpoint_path(target: str | PathLike[str]) -> Path:
    """Where the state of an unfinished fit lies: beside the model."""
    path = Path(target)
    return path.with_name(f"{path.name}.unfinished.npz")


def train(
    data: str | PathLike[str],
    target: str | PathLike[str],
    *,
    method: Method = "gpgc",
    parameters: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[dict[str, Any]], None] | None = None,
    announce: Callable[[str], None] | None = None,
    client: AbstractContextManager[Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Fit a model on a dataset, review its images, and save both. Returns the model.

    Every step is kept: after a kill, the same call with ``resume=True`` goes on.

    Parameters
    ----------
    data : the dataset, as :func:`~gpgc_dask.open_dataset` takes it
    target : the model, a local path
    method : "gpgc" (one noise an image), "gp" (one for all) or "svm", whose fit has no checkpoint
    parameters : of the estimator, as ``{"redundancy": 1.0}``
    progress : called with each entry of ``history_``
    announce : called with what begins, "fit" or "review"
    client : a context that gives a Dask client, entered when there is work to do; default the
        active client, else threads of this process
    """
    tell = announce or (lambda stage: None)
    path = local_path(target).expanduser()
    checkpoint = checkpoint_path(path)
    estimator = METHODS[method](**(parameters or {}))
    if method != "svm":
        estimator.set_params(checkpoint=checkpoint, progress=progress)
        estimator._keeps_checkpoint = True  # until the model is on disk
    _check_target(path, checkpoint, resume=resume, overwrite=overwrite)
    dataset = open_dataset(data, storage_options)
    model = _finished(path, dataset, estimator) if resume else None
    if model is not None and hasattr(model, "review_"):
        return model
    if overwrite:
        checkpoint.unlink(missing_ok=True)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with client or nullcontext():
        if model is None:
            tell("fit")
            model = estimator.fit(dataset)
            # Before the review: this is what took so long.
            model.save(path)
            if model.converged_:
                checkpoint.unlink(missing_ok=True)
        tell("review")
        model.review(dataset)
    model.save(path)
    return model


def _check_target(target: Path, checkpoint: Path, *, resume: bool, overwrite: bool) -> None:
    """Complain where something is in the way; changes nothing."""
    if resume and overwrite:
        raise ValueError("resume goes on with what is there and overwrite discards it: choose one")
    if target.exists() and not is_model(target):
        raise FileExistsError(
            f"{target} exists and is not a gpgc_dask model: choose another path or remove it"
        )
    if resume or overwrite:
        return
    if target.exists():
        raise FileExistsError(
            f"{target} exists: choose another path, or replace it with overwrite=True (--overwrite)"
        )
    if checkpoint.exists():
        raise FileExistsError(
            f"{checkpoint} is an unfinished fit: go on with it with resume=True (--resume), or "
            "begin anew with overwrite=True (--overwrite)"
        )


def _finished(target: Path, dataset: xr.Dataset, wanted: Any) -> Any:
    """The model that is already there, None if there is none; an error if it is another."""
    if not target.exists():
        return None
    model = load(target)
    try:
        check_fitted_on(model, dataset)
    except ValueError as error:
        raise ValueError(
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
        raise ValueError(
            f"{target} is a finished model of another fit; what differs: {', '.join(differing)}. "
            "Choose another path, or replace it with overwrite=True (--overwrite)"
        )
    return model
