"""Export the ranking of a reviewed model to the files of another tool."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Progress
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import By, predict_and_review, rank, require_review
from gpgc_dask.results.export.base import ExportFormat, ExportReport, Selection
from gpgc_dask.results.export.registry import EXPORTS
from gpgc_dask.results.ranking import select_worst

__all__ = ["export"]


def export(
    model: FittedModel,
    target: str | PathLike[str],
    to: str,
    *,
    count: int | str | None = None,
    below: float | None = None,
    by: By = "quality",
    dataset: xr.Dataset | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> ExportReport:
    """Write the ranking of a reviewed model as a file that another tool reads, worst first.

    Parameters
    ----------
    model : FittedModel
        Fitted on a dataset and reviewed, as ``gpgc fit`` leaves it.
    target : path
        A local file. Other files that the tool needs are written next to it.
    to : str
        Name of the format: "label-studio", "cvat", "fiftyone", "coco", "cleanlab" or a registered
        one.
    count : int or str, optional
        Number or share of the images to export, such as 50 or "10%". Default: all images.
    below : float, optional
        Export the images of a lower quality (or what ``by`` names) than this. Excludes ``count``.
    by : {"quality", "agreement", "confidence"}, default "quality"
        Order of the images.
    dataset : xarray.Dataset, optional
        The dataset of the model. Adds the predictions made without each image.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress` after each image.
    **options
        Options of the format. Label Studio has ``document_root``, the folder that it serves files
        from, and ``image_prefix``, the URL below which it finds the photos.

    Returns
    -------
    ExportReport

    Raises
    ------
    InputError
        If there is no such format or option, or nothing to export.
    """
    kind = EXPORTS[to]
    path = _check_call(to, kind, target, options, with_dataset=dataset is not None)
    selection = _select(model, dataset, count=count, below=below, by=by)
    return kind(path, selection, **options).write(progress)


def _check_call(
    name: str,
    kind: type[ExportFormat],
    target: str | PathLike[str],
    options: dict[str, Any],
    *,
    with_dataset: bool,
) -> Path:
    """The target as a path; raise an InputError if the format does not accept the arguments."""
    path = Path(target).expanduser()
    if path.suffix.lower() != kind.suffix:
        raise InputError(f"{name} reads {kind.suffix} files: name one, not {path.name}")
    unknown = [option for option in options if option not in kind.options]
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise InputError(f"{name} has no option {unknown[0]}; its options: {known}")
    if with_dataset and not kind.accepts_dataset:
        raise InputError(
            f"{name} holds one mask per label and image: export without the dataset (--data)"
        )
    return path


def _select(
    model: FittedModel,
    dataset: xr.Dataset | None,
    *,
    count: int | str | None,
    below: float | None,
    by: By,
) -> Selection:
    if dataset is None:
        predicted, review = None, require_review(model)
    else:
        predicted, review = predict_and_review(model, dataset)
    chosen = select_worst(rank(review, by), count, below=below, by=by)
    if chosen.empty:
        raise InputError(f"no image has {by} below {below}: there is nothing to export")
    photos = pd.Index(review["image"]).get_indexer(chosen["image"])
    return Selection(model, review, chosen, photos, dataset, predicted)
