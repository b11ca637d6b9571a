"""The page of the report: numbers, charts and pictures in a template that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import xarray as xr
from markupsafe import Markup

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.progress import Listener, Meter, Progress, convergence_curve, work_listener
from gpgc_dask.data.dataset import background_class
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import predict_and_review, rank
from gpgc_dask.quality.estimate import BAD_BELOW
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.columns import Column, columns_in
from gpgc_dask.results.pictures import Picture, pictures, thumbnail_side
from gpgc_dask.results.ranking import CERTAINTY, BadCount, confusion, count_bad, is_suspect, records
from gpgc_dask.storage.location import write_whole

__all__ = ["ReportSummary", "page_content", "render_page", "write_report"]

MAX_PICTURES = 20_000
"""Number of images with a picture, worst first; the others are listed by their numbers."""

CHUNK = 100
"""Pictures that the page unpacks at a time."""

GONE_FLAG, CHANGED_FLAG = "photo gone", "mask changed since"


@dataclass(frozen=True)
class ReportSummary:
    """Summary of a report.

    Attributes
    ----------
    path : str
        The page.
    images : int
        Number of images.
    suspect : int
        Number of suspect masks.
    bad : BadCount or None
        Estimated number of bad masks; None with fewer than 30 images.
    pictures : int
        Number of images with a picture.
    gone : int
        Number of photos that are no longer where they were at ingest, or have another size.
    changed : int
        Number of masks that have changed since ingest.
    bytes : int
        Size of the page.
    """

    path: str
    images: int
    suspect: int
    bad: BadCount | None
    pictures: int
    gone: int
    changed: int
    bytes: int


def write_report(
    dataset: xr.Dataset,
    model: FittedModel,
    target: str | PathLike[str],
    *,
    title: str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
) -> ReportSummary:
    """Write the report of a model on the dataset it was fitted on, as one HTML file.

    Each photo and mask is read once. The page holds small pictures, with fewer pixels the more
    images there are, and runs no code but its own.

    Parameters
    ----------
    dataset : xarray.Dataset
        The dataset that the model was fitted on, as :func:`gpgc_dask.open_dataset` returns it.
    model : FittedModel
        A fitted model.
    target : path
        The HTML file. It is replaced if it exists.
    title : str, optional
        Default: the name of the dataset.
    progress : bool or callable, optional
        True shows a live line in a notebook and prints lines to stderr elsewhere. A callable is
        called with a :class:`~gpgc_dask.core.progress.Progress`.

    Returns
    -------
    ReportSummary

    Examples
    --------
    >>> from gpgc_dask import load, open_dataset, write_report
    >>> summary = write_report(open_dataset("horses.zarr"), load("model.zarr"), "report.html")
    >>> summary.images, summary.pictures
    (12, 12)
    """
    predicted, review = predict_and_review(model, dataset)
    ranking = rank(review)
    place = pd.Series(ranking.index, index=ranking["image"])[review["image"]].to_numpy()
    with work_listener(progress) as listener:
        photos = np.flatnonzero(place < MAX_PICTURES)
        made = _make_pictures(dataset, predicted, photos, listener)
    name = title or PurePosixPath(str(dataset.encoding.get("source", "dataset"))).name
    gone = [review["image"][photo] for photo, picture in made.items() if picture.gone]
    changed = [review["image"][photo] for photo, picture in made.items() if picture.changed]
    content = page_content(name, dataset, model, ranking, gone=gone, changed=changed)
    page = render_page(content, _pack(made, place)).encode()
    path = Path(target)
    write_whole(path, page)
    return ReportSummary(
        path=str(path),
        images=len(ranking),
        suspect=content["suspect"],
        bad=content["bad"],
        pictures=len(made),
        gone=len(gone),
        changed=len(changed),
        bytes=len(page),
    )


def _make_pictures(
    dataset: xr.Dataset, predicted: Index, photos: Index, progress: Listener | None
) -> dict[int, Picture]:
    meter = Meter(progress, "pictures", photos.size)
    made = {}
    for photo, picture in pictures(dataset, predicted, photos, thumbnail_side(photos.size)):
        made[photo] = picture
        meter(1, 0)
    return made


def _pack(made: dict[int, Picture], place: Index) -> list[Any]:
    """[width, height, photo, labels] of the pictures, at the places of their photos."""
    packed: list[Any] = [None] * min(place.size, MAX_PICTURES)
    for photo, picture in made.items():
        packed[place[photo]] = [picture.width, picture.height, picture.photo, picture.labels]
    return packed


def page_content(
    title: str,
    dataset: xr.Dataset,
    model: FittedModel,
    ranking: pd.DataFrame,
    *,
    gone: Sequence[str] = (),
    changed: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that the page shows, apart from the pictures.

    Parameters
    ----------
    title : str
        Name of the dataset.
    dataset : xarray.Dataset
        The dataset of the model.
    model : FittedModel
        The fitted model.
    ranking : pandas.DataFrame
        All images, worst first.
    gone : sequence of str
        Images whose photo is gone or has another size.
    changed : sequence of str
        Images whose mask has changed since ingest.

    Returns
    -------
    dict
        The variables of the template.
    """
    suspect = is_suspect(ranking)
    images = _add_flags(records(ranking), {GONE_FLAG: gone, CHANGED_FLAG: changed})
    for image, one in zip(images, suspect.tolist(), strict=True):
        image["suspect"] = one
    return {
        "title": title,
        "images": len(ranking),
        "suspect": int(suspect.sum()),
        "bad": count_bad(ranking),
        "threshold": BAD_BELOW,
        "certainty": CERTAINTY,
        "gone": len(gone),
        "changed": len(changed),
        "classes": list(dataset.attrs["classes"]),
        "background": background_class(dataset),
        "ranking": images,
        "columns": [_describe(column, images) for column in _known_columns(images)],
        "charts": _charts(model, ranking),
        "confusion": confusion(model, dataset),
        "facts": _facts(dataset, model),
        "converged": bool(model.converged_),
        "key": str(dataset.attrs.get("files_digest", title))[:16],
    }


def _add_flags(
    images: list[dict[str, Any]], flags: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The images with further flags, {flag: names of the images}."""
    flagged = {flag: set(names) for flag, names in flags.items()}
    return [
        image
        | {"flags": image["flags"] + [f for f, names in flagged.items() if image["image"] in names]}
        for image in images
    ]


def _known_columns(images: list[dict[str, Any]]) -> list[Column]:
    """Columns of the report that have a value for some image."""
    return [
        column
        for column in columns_in("report")
        if any(image[column.name] is not None for image in images)
    ]


def _describe(column: Column, images: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page needs to know about a column to show, sort and filter by it."""
    values = [image[column.name] for image in images]
    labels = {label for value in values for label in value} if column.kind == "labels" else set()
    ordered = column.higher_is_better is not None
    return {
        "name": column.name,
        "title": column.title,
        "help": column.help,
        "kind": column.kind,
        "format": column.format,
        "labels": sorted(labels),
        "sortable": ordered and len(set(values)) > 1,
        "higher_is_better": column.higher_is_better,
        "interval": column.interval,
    }


def _charts(model: FittedModel, ranking: pd.DataFrame) -> list[dict[str, Any]]:
    charts = [_histogram(column, ranking) for column in columns_in("report") if column.chart]
    if model.history:
        axis, reads, to_go = convergence_curve(model.history)
        charts += [
            {
                "id": "convergence",
                "title": "Convergence",
                "caption": f"evidence still to be gained ÷ tolerance, by {axis}",
                "svg": line(
                    reads, to_go, f"The fit reaches its tolerance in {reads[-1]:.0f} {axis}"
                ),
            },
            {
                "id": "scales",
                "title": "Feature scales",
                "caption": "prior standard deviation learned for each group of features",
                "svg": bars(model.feature_scales, "Learned scale of each group of features"),
            },
        ]
    return [chart for chart in charts if chart is not None]


def _histogram(column: Column, ranking: pd.DataFrame) -> dict[str, Any] | None:
    """The histogram of a column; None if all images have the same value, as the noise of a GP."""
    values = ranking[column.name].dropna().to_numpy()
    logarithmic = column.chart == "logarithmic"
    if logarithmic and np.unique(values).size < 2:
        return None
    axis = ", logarithmic" if logarithmic else ""
    description = f"Histogram of the {column.title} of {values.size} images{axis}"
    return {
        "id": column.name,
        "title": column.title.capitalize(),
        "caption": column.help,
        "svg": histogram(values, description, logarithmic=logarithmic),
    }


def _facts(dataset: xr.Dataset, model: FittedModel) -> list[tuple[str, str]]:
    source: Mapping[str, Any] = dataset.attrs["source"]
    return [
        ("photos", str(source.get("images", ""))),
        ("masks", str(source.get("masks", ""))),
        (
            "dataset",
            f"{dataset.sizes['superpixel']:,} superpixels × {dataset.sizes['feature']:,} features "
            f"({dataset.attrs['backbone']['name']})",
        ),
        *_model_facts(model),
        ("written", f"{datetime.now():%Y-%m-%d %H:%M} by gpgc_dask {version('gpgc_dask')}"),
    ]


def _model_facts(model: FittedModel) -> list[tuple[str, str]]:
    name = type(model).__name__
    if model.log_evidence is None:
        return [("model", name)]
    reads = f"{model.n_iter_} iterations, {model.n_reads_} reads of the data"
    return [
        ("model", f"{name}, log evidence {model.log_evidence:,.1f}"),
        ("fit", reads if model.converged_ else f"{reads}; not converged"),
        ("superpixels that count as one", f"{model.learned_redundancy:.2f}"),
    ]


def render_page(content: dict[str, Any], packed: list[Any]) -> str:
    """Render the page.

    Parameters
    ----------
    content : dict
        As :func:`page_content` returns it.
    packed : list
        [width, height, photo, labels] of each picture in the order of the ranks, see
        :class:`~gpgc_dask.results.pictures.Picture`.

    Returns
    -------
    str
        HTML.
    """
    place = files("gpgc_dask.results.report")
    script, style = (place.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("js", "css"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(place.joinpath("page.html").read_text("utf-8"))
    chunks = [packed[first : first + CHUNK] for first in range(0, len(packed), CHUNK)]
    return template.render(
        **content,
        chunks=chunks,
        chunk=CHUNK,
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
        charts_svg={chart["id"]: Markup(chart["svg"]) for chart in content["charts"]},
    )


def _hash(text: str) -> str:
    """Hash of a script or style, as a Content-Security-Policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
