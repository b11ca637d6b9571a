"""The page: numbers, charts and pictures put into a template that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import time
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

from gpgc_dask.core.progress import Progress, decades_to_go, work_listener
from gpgc_dask.data.dataset import background_class
from gpgc_dask.models.review import predict_and_review, rank
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.pictures import Picture, pictures, thumbnail_side
from gpgc_dask.results.ranking import SUSPECT_BELOW, is_suspect, records
from gpgc_dask.storage.location import write_whole

__all__ = ["ReportSummary", "write_report"]

MOST_PICTURES = 20_000
"""The worst images have pictures; of a larger set the others are listed by their numbers."""

CHUNK = 100
"""Pictures that the page unpacks at a time."""


@dataclass(frozen=True)
class ReportSummary:
    """What a report shows.

    gone : photos that are no longer where they were at ingest, or have another size
    changed : masks that tell something else than they did at ingest
    """

    path: str
    images: int
    suspect: int
    pictures: int
    gone: int
    changed: int
    bytes: int


def write_report(
    dataset: xr.Dataset,
    model: Any,
    target: str | PathLike[str],
    *,
    title: str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
) -> ReportSummary:
    """Write the report of a model on the dataset it was fitted on, as one HTML file.

    One read of the features, and one of each photo and mask. The page holds small pictures, fewer
    pixels each the more images there are, and runs no code but its own. ``progress`` is as that of
    :func:`gpgc_dask.pipelines.ingest.ingest`.

    Examples
    --------
    >>> from gpgc_dask import load, open_dataset
    >>> from gpgc_dask import write_report
    >>> found = write_report(open_dataset("horses.zarr"), load("model.zarr"), "report.html")
    >>> found.images, found.pictures
    (12, 12)
    """
    predicted, table = predict_and_review(model, dataset)
    ranking = rank(table)
    # What rank each photo has, and which photos have a picture.
    place = pd.Series(ranking.index, index=ranking["image"])[table["image"]].to_numpy()
    shown = np.flatnonzero(place < MOST_PICTURES)
    with work_listener(progress) as listener:
        made = _pictures(dataset, predicted, shown, listener)
    packed: list[Any] = [None] * min(len(ranking), MOST_PICTURES)
    for photo, picture in made.items():
        packed[place[photo]] = [picture.width, picture.height, picture.photo, picture.labels]
    name = title or PurePosixPath(str(dataset.encoding.get("source", "dataset"))).name
    gone, changed = (
        [table["image"][photo] for photo, picture in made.items() if getattr(picture, state)]
        for state in ("gone", "changed")
    )
    page = render(content(name, dataset, model, ranking, gone=gone, changed=changed), packed)
    path = Path(target)
    write_whole(path, page.encode())
    return ReportSummary(
        str(path),
        len(ranking),
        int(is_suspect(ranking).sum()),
        len(made),
        len(gone),
        len(changed),
        len(page.encode()),
    )


def _pictures(
    dataset: xr.Dataset,
    predicted: Any,
    photos: Any,
    progress: Callable[[Progress], None] | None,
) -> dict[int, Picture]:
    start = time.perf_counter()
    made = {}
    for photo, picture in pictures(dataset, predicted, photos, thumbnail_side(photos.size)):
        made[photo] = picture
        if progress is not None:
            rate = len(made) / max(time.perf_counter() - start, 1e-9)
            progress(Progress("pictures", len(made), photos.size, 0, rate))
    return made


def content(
    title: str,
    dataset: xr.Dataset,
    model: Any,
    ranking: pd.DataFrame,
    *,
    gone: Sequence[str] = (),
    changed: Sequence[str] = (),
) -> dict[str, Any]:
    """All that the page says, but for the pictures.

    gone, changed : images whose photo is gone, whose mask has changed since ingest
    """
    suspect = int(is_suspect(ranking).sum())
    return {
        "title": title,
        "images": len(ranking),
        "suspect": suspect,
        "threshold": SUSPECT_BELOW,
        "gone": len(gone),
        "changed": len(changed),
        "classes": list(dataset.attrs["classes"]),
        "background": background_class(dataset),
        "ranking": _noted(records(ranking), {"photo gone": gone, "mask changed since": changed}),
        "flags": sorted({flag for text in ranking["flags"] for flag in text.split(";") if flag}),
        "charts": _charts(model, ranking),
        "facts": _facts(dataset, model),
        "has_confidence": bool(ranking["confidence"].notna().any()),
        "converged": bool(model.converged_),
        "most_pictures": MOST_PICTURES,
        "key": str(dataset.attrs.get("files_digest", title))[:16],
    }


def _noted(
    images: list[dict[str, Any]], notes: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The images with more flags."""
    sets = {flag: set(names) for flag, names in notes.items()}
    return [
        one | {"flags": one["flags"] + [f for f, names in sets.items() if one["image"] in names]}
        for one in images
    ]


def _charts(model: Any, ranking: pd.DataFrame) -> list[dict[str, Any]]:
    agreement = ranking["agreement"].dropna().to_numpy()
    noise = ranking["noise_variance"].dropna().to_numpy()
    charts = [
        {
            "id": "agreement",
            "title": "Agreement",
            "told": "of each mask with a prediction made without its image",
            "svg": histogram(agreement, f"Histogram of the agreement of {agreement.size} images"),
        }
    ]
    if np.ndim(getattr(model, "noise_variance_", 0)):
        told = f"Histogram of the noise variance of {noise.size} images, logarithmic"
        charts.append(
            {
                "id": "noise",
                "title": "Noise variance",
                "told": "learned for each image, in units of the ±1 labels",
                "svg": histogram(noise, told, logarithmic=True),
            }
        )
    if not hasattr(model, "history_"):
        return charts
    reads = [entry["reads"] for entry in model.history_]
    to_go = [decades_to_go(entry) for entry in model.history_]
    charts += [
        {
            "id": "convergence",
            "title": "Convergence",
            "told": "evidence still to be gained ÷ tolerance, by reads of the data",
            "svg": line(reads, to_go, f"The fit nears its tolerance in {model.n_reads_} reads"),
        },
        {
            "id": "scales",
            "title": "Feature scales",
            "told": "prior deviation learned for each group of features",
            "svg": bars(model.feature_scales_, "Learned scale of each group of features"),
        },
    ]
    return charts


def _facts(dataset: xr.Dataset, model: Any) -> list[tuple[str, str]]:
    source: Mapping[str, Any] = dataset.attrs["source"]
    about = [("model", type(model).__name__)]
    if hasattr(model, "history_"):
        reads = f"{model.n_iter_} iterations, {model.n_reads_} reads of the data"
        about = [
            ("model", f"{type(model).__name__}, log evidence {model.log_evidence_:,.1f}"),
            ("fit", reads if model.converged_ else f"{reads}; not settled"),
            ("superpixels that count as one", f"{model.redundancy_:.2f}"),
        ]
    return [
        ("photos", str(source.get("images", ""))),
        ("masks", str(source.get("masks") or source.get("coco", ""))),
        (
            "dataset",
            f"{dataset.sizes['superpixel']:,} superpixels × {dataset.sizes['feature']:,} features "
            f"({dataset.attrs['backbone']['name']})",
        ),
        *about,
        ("written", f"{datetime.now():%Y-%m-%d %H:%M} by gpgc_dask {version('gpgc_dask')}"),
    ]


def render(content: dict[str, Any], packed: list[Any]) -> str:
    """The page of some :func:`content` and the pictures in the order of the ranks.

    packed : [width, height, photo, labels] of each picture, see :class:`Picture`
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
    """As a Content-Security-Policy names what it lets run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
