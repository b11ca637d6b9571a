"""The page of the report: numbers, charts and pictures in a template that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import xarray as xr
from markupsafe import Markup

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.progress import Listener, Meter, Progress, work_listener
from gpgc_dask.data.dataset import text_values
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import predict_and_review, rank
from gpgc_dask.results.pictures import Picture, pictures, thumbnail_side
from gpgc_dask.results.ranking import BadCount
from gpgc_dask.results.report.classes import image_confusions
from gpgc_dask.results.report.content import page_content
from gpgc_dask.results.report.objects import PackedObjects, pack_objects
from gpgc_dask.results.report.people import find_people
from gpgc_dask.storage.location import write_whole

__all__ = ["ReportSummary", "page_content", "read_parts", "render_page", "write_report"]

MAX_PICTURES = 20_000
"""Number of images with a picture, worst first; the others are listed by their numbers."""

CHUNK = 100
"""Pictures that the page unpacks at a time."""

SCRIPTS = ("data.js", "pixels.js", "drawing.js", "gallery.js", "large.js", "page.js")
"""Parts of the script of the page, in this order."""


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
    content = page_content(
        name,
        dataset,
        model,
        ranking,
        gone=gone,
        changed=changed,
        confusions=_confusions(dataset, predicted, place),
        objects=_objects(dataset, model, ranking),
        people=find_people(review),
    )
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


def _confusions(dataset: xr.Dataset, predicted: Index, place: Index) -> dict[str, list[int]] | None:
    two_classes = len(dataset.attrs["classes"]) == 2
    return None if two_classes else image_confusions(dataset, predicted, place)


def _objects(
    dataset: xr.Dataset, model: FittedModel, ranking: pd.DataFrame
) -> PackedObjects | None:
    """Objects of the images with a picture."""
    sides = np.maximum(dataset["height"].values, dataset["width"].values)
    side = pd.Series(sides, index=text_values(dataset["image_name"]))
    images = ranking["image"].to_numpy()[:MAX_PICTURES]
    classes = list(dataset.attrs["classes"])
    return pack_objects(model.objects_table, images, side[images].to_numpy(), classes)


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
    script = "\n".join(['"use strict";', "(() => {", *read_parts(*SCRIPTS), "})();", ""])
    style = "".join(read_parts("base.css", "page.css"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    template = environment.from_string(read_parts("page.html")[0])
    variables = content | {"data": content["data"] | {"chunk": CHUNK, "pictures": len(packed)}}
    return template.render(
        **variables,
        chunks=list(zip_longest(_cut(packed), _cut(content["outlines"]), fillvalue=[])),
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
        charts_svg={chart["id"]: Markup(chart["svg"]) for chart in content["charts"]},
    )


def read_parts(*names: str) -> list[str]:
    """Contents of the files that the page consists of."""
    place = files("gpgc_dask.results.report")
    return [place.joinpath(name).read_text("utf-8") for name in names]


def _cut(values: list[Any]) -> list[list[Any]]:
    return [values[first : first + CHUNK] for first in range(0, len(values), CHUNK)]


def _hash(text: str) -> str:
    """Hash of a script or style, as a Content-Security-Policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
