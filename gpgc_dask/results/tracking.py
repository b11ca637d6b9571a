"""Fits in the experiments of MLflow."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.errors import GpgcError, MissingDependencyError, StoreError
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import count_confusions, rank, require_review
from gpgc_dask.results.objects import objects_to_csv
from gpgc_dask.results.ranking import count_bad, is_suspect, to_csv
from gpgc_dask.results.report import write_report

__all__ = ["LoggedRun", "fit_metrics", "fit_parameters", "log_to_mlflow", "open_experiment"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

LONGEST_VALUE = 500
"""Characters of a parameter that every tracking server accepts."""

FOREIGN = re.compile(r"[^\w .-]")
"""Characters that the names of metrics may not have, or that divide them."""

CURVES = ("log_evidence", "predicted_gain")
"""What is logged for each iteration of the fit."""


@dataclass(frozen=True)
class LoggedRun:
    """A run in MLflow.

    Attributes
    ----------
    run_id, experiment : str
        Id of the run, and name of its experiment.
    tracking_uri : str
        Where the run is stored.
    """

    run_id: str
    experiment: str
    tracking_uri: str


def open_experiment(experiment: str | None) -> Any:
    """Raise an error if no run can be logged: before a fit, not after it.

    Parameters
    ----------
    experiment : str or None
        Name of the experiment, which is created if it does not exist. None: that of the active run,
        of ``MLFLOW_EXPERIMENT_NAME``, or MLflow's default.

    Returns
    -------
    mlflow.entities.Experiment

    Raises
    ------
    MissingDependencyError
        If MLflow is not installed.
    StoreError
        If the tracking server or the local store cannot be used.
    """
    mlflow = _import_mlflow()
    with _as_store_errors(mlflow):
        active = mlflow.active_run()
        client = _new_client(mlflow)
        if experiment is None and active is not None:
            return client.get_experiment(active.info.experiment_id)
        configured = mlflow.environment_variables.MLFLOW_EXPERIMENT_NAME.get()
        name = experiment or configured or "Default"
        opened = client.get_experiment_by_name(name)
        return opened or client.get_experiment(client.create_experiment(name))


def log_to_mlflow(
    model: FittedModel,
    dataset: xr.Dataset,
    *,
    experiment: str | None = None,
    saved_as: str | None = None,
    report: bool = True,
) -> LoggedRun:
    """Log parameters, metrics, ranking and report of a fit to MLflow.

    The tracking server is the one that MLflow uses: that of ``mlflow.set_tracking_uri``, or of the
    environment variable ``MLFLOW_TRACKING_URI``.

    Parameters
    ----------
    model : FittedModel
        A fitted and reviewed model.
    dataset : xarray.Dataset
        The dataset that it was fitted on, as :func:`gpgc_dask.open_dataset` returns it.
    experiment : str, optional
        Name of the experiment, which is created if it does not exist. By default the values are
        added to the active run, or, if there is none, to a new one in the experiment of
        ``MLFLOW_EXPERIMENT_NAME``.
    saved_as : str, optional
        Path or URL of the saved model, logged as a tag. The model itself is not uploaded.
    report : bool, default True
        Whether the report, which shows the photos, is an artifact of the run.

    Returns
    -------
    LoggedRun

    Raises
    ------
    MissingDependencyError
        If MLflow is not installed.
    StoreError
        If MLflow cannot store the run.

    Examples
    --------
    >>> from gpgc_dask import load, open_dataset
    >>> from gpgc_dask.results.tracking import fit_metrics
    >>> metrics = fit_metrics(load("model.zarr"), open_dataset("horses.zarr"))
    >>> metrics["images"], metrics["converged"]
    (12.0, 1.0)
    """
    ranking = rank(require_review(model))
    opened = open_experiment(experiment)
    mlflow = _import_mlflow()
    tags = {"gpgc.dataset": str(dataset.encoding.get("source", "")), "gpgc.model": saved_as or ""}
    with _as_store_errors(mlflow), _run(mlflow, opened, own=experiment is not None) as run_id:
        for name, value in tags.items():
            mlflow.MlflowClient().set_tag(run_id, name, value)
        _log(mlflow, run_id, model, dataset, ranking, report)
    return LoggedRun(run_id, str(opened.name), str(mlflow.get_tracking_uri()))


def fit_parameters(model: FittedModel, dataset: xr.Dataset) -> dict[str, str]:
    """Parameters of a fit, and what its dataset was made with, as text."""
    session = model.session_parameters
    values = {name: v for name, v in model.get_params(deep=False).items() if name not in session}
    attributes = dataset.attrs
    values |= {
        "method": type(model).__name__,
        "classes": ", ".join(map(str, attributes["classes"])),
        "backbone": attributes["backbone"]["name"],
        "dataset": str(dataset.encoding.get("source", "")),
        "gpgc_dask": version("gpgc_dask"),
    }
    return {name: str(value)[:LONGEST_VALUE] for name, value in values.items()}


def fit_metrics(model: FittedModel, dataset: xr.Dataset) -> dict[str, float]:
    """Numbers of a fit, for comparison with other fits.

    Parameters
    ----------
    model : FittedModel
        A fitted and reviewed model.
    dataset : xarray.Dataset
        The dataset that it was fitted on.

    Returns
    -------
    dict
        Evidence, iterations, reads, seconds, redundancy and scales of the fit; sizes; estimated and
        suspect bad masks; mean and quantiles of the quality; and ``class_agreement/NAME``, the
        share of the pixels of each given class that a model predicts alike which has not seen their
        image. Unknown numbers are left out.
    """
    review = require_review(model)
    quality = review["quality"].dropna().to_numpy(dtype=np.float64)
    values: dict[str, Any] = {
        "converged": model.converged_,
        "images": len(review),
        "superpixels": dataset.sizes["superpixel"],
        "features": dataset.sizes["feature"],
        "suspect_masks": is_suspect(review).sum(),
        "typical_noise": model.typical_noise,
    }
    for name, value in model.fit_summary.items():
        values |= _named(name, value) if isinstance(value, dict) else {name: value}
    bad = count_bad(review)
    if bad is not None:
        known = asdict(bad)
        values |= {
            "bad_masks": known["estimate"],
            "bad_masks_low": known["low"],
            "bad_masks_high": known["high"],
        }
    if quality.size:
        values["quality_mean"] = quality.mean()
        for share, value in zip(QUANTILES, np.quantile(quality, QUANTILES), strict=True):
            values[f"quality_q{100 * share:02.0f}"] = value
    values |= _agreement(count_confusions(model, dataset))
    numbers = {name: float(value) for name, value in values.items() if value is not None}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def _agreement(pixels: pd.DataFrame) -> dict[str, float]:
    """Mean and own agreement of the classes, from their (classes, classes) confusions."""
    counts = pixels.to_numpy(dtype=np.float64)
    total = counts.sum(axis=1)
    shares = np.divide(counts.diagonal(), total, out=np.full(len(total), np.nan), where=total > 0)
    known = shares[np.isfinite(shares)]
    mean = {"class_agreement_mean": float(known.mean())} if known.size else {}
    return mean | _named("class_agreement", dict(zip(pixels.index, shares.tolist(), strict=True)))


def _named(prefix: str, values: dict[Any, Any]) -> dict[str, Any]:
    """{prefix/name: value} with names that MLflow accepts and that are not the same."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        accepted = f"{prefix}/{FOREIGN.sub('_', str(name)).strip('. ') or '_'}"
        while accepted in named:
            accepted += "_"
        named[accepted] = value
    return named


# -- sending -------------------------------------------------------------------------------------


def _log(
    mlflow: Any,
    run_id: str,
    model: FittedModel,
    dataset: xr.Dataset,
    ranking: pd.DataFrame,
    report: bool,
) -> None:
    """Numbers first: they are kept if the files cannot be."""
    client = mlflow.MlflowClient()
    now = round(1000 * pd.Timestamp.now().timestamp())
    metrics = [
        mlflow.entities.Metric(name, float(entry[name]), now, step)
        for step, entry in enumerate(model.history)
        for name in CURVES
        if entry.get(name) is not None and math.isfinite(entry[name])
    ]
    last = len(model.history)
    metrics += [
        mlflow.entities.Metric(name, number, now, last)
        for name, number in fit_metrics(model, dataset).items()
    ]
    parameters = [
        mlflow.entities.Param(name, value) for name, value in fit_parameters(model, dataset).items()
    ]
    client.log_batch(run_id, metrics, parameters)
    client.log_text(run_id, to_csv(ranking), "ranking.csv")
    if model.objects_table is not None:
        client.log_text(run_id, objects_to_csv(model.objects_table), "objects.csv")
    if report:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            write_report(dataset, model, page)
            client.log_artifact(run_id, str(page))


@contextmanager
def _run(mlflow: Any, experiment: Any, *, own: bool) -> Iterator[str]:
    """The id of the active run, or of a new one if there is none or it is to be ``own``."""
    active = None if own else mlflow.active_run()
    if active is not None:
        yield active.info.run_id
        return
    with mlflow.start_run(experiment_id=experiment.experiment_id, nested=True) as run:
        yield run.info.run_id


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingDependencyError(
            'MLflow is not installed: pip install "gpgc_dask[mlflow]"'
        ) from None
    return mlflow


def _new_client(mlflow: Any) -> Any:
    """A client of the tracking server, or of a store in local files."""
    try:
        client = mlflow.MlflowClient()
        client.search_experiments(max_results=1)  # imports what the store needs
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{mlflow.get_tracking_uri()} needs all of MLflow ({error}): pip install mlflow, or "
            "set MLFLOW_TRACKING_URI to a server"
        ) from None
    return client


@contextmanager
def _as_store_errors(mlflow: Any) -> Iterator[None]:
    """Raise what MLflow raises as a StoreError, with its reason in one line."""
    try:
        yield
    except GpgcError:
        raise
    except (mlflow.exceptions.MlflowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"MLflow cannot store the run at {mlflow.get_tracking_uri()} ({reason:.200}): "
            "check MLFLOW_TRACKING_URI"
        ) from None
