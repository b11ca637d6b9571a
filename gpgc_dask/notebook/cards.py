"""Cards: what a notebook shows for a fitted model, a plan or a dataset, as HTML.

Everything that comes from outside goes through the template's escaping. A card never fails: where
something cannot be read any more it is left out, or the object's ordinary look stands in.
"""

from __future__ import annotations

import uuid
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.core.progress import course
from gpgc_dask.core.text import bytes_text
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.summary import flagged_images
from gpgc_dask.models.review import rank
from gpgc_dask.notebook.photos import data_url, dataset_of, numbers_of, thumbnails
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.ranking import is_suspect

if TYPE_CHECKING:
    from gpgc_dask.planning.plan import Plan

__all__ = ["dataset_card", "model_card", "plan_card"]

SHOWN = 5
"""Images at either end of a model's ranking, and groups of a model without one."""

PHOTOS_SHOWN = 8
"""Of a dataset."""

MANY_ROWS = 2_000_000
"""Rows from which on a dataset's labels are not counted for a look at it."""

CHART_STYLE = (
    "text { font-family: system-ui, sans-serif; } .bar, .point { fill: #5b8ec4; } "
    ".track { fill: #808c9b; fill-opacity: .35; } .grid { stroke: #808c9b; stroke-opacity: .35; } "
    ".axis { stroke: #808c9b; } .tick { fill: #808c9b; font-size: 12px; } "
    ".name { fill: #808c9b; font-size: 14px; } "
    ".curve { fill: none; stroke: #5b8ec4; stroke-width: 2; } "
    ".goal { stroke: #3aae5c; stroke-width: 2; stroke-dasharray: 5 4; }"
)
"""Of charts, for light and dark pages alike."""

_seen: WeakKeyDictionary[Any, tuple[list[str], dict[str, str]]] = WeakKeyDictionary()
"""Names and pictures of models that were shown."""

UNREADABLE = (OSError, ValueError, KeyError, CorruptedError)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("gpgc_dask.notebook", "."),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _render(name: str, **content: Any) -> str:
    style = files("gpgc_dask.notebook").joinpath("cards.css").read_text("utf-8")
    return _template("cards.html").render(
        kind=name, style=Markup(style), id=f"gpgc-{uuid.uuid4().hex[:8]}", **content
    )


def model_card(model: Any) -> str:
    """Evidence, noise, and the worst and best images or groups of a fitted model."""
    parameters = {
        name: value
        for name, value in model.get_params().items()
        if name not in ("progress", "checkpoint") and value is not None
    }
    return _render(
        "model",
        title=type(model).__name__,
        told=_fitted_on(model),
        warning="" if model.converged_ else "The fit has not settled: raise max_iter.",
        facts=_model_facts(model),
        charts=_charts(model),
        ends=_ends(model),
        parameters=[(name, repr(value)) for name, value in parameters.items()],
    )


def _fitted_on(model: Any) -> str:
    origin = getattr(model, "dataset_", None)
    told = f"{model.groups_.size:,} groups × {model.coef_.shape[1]:,} features"
    if origin is None:
        return f"fitted on {told}, classes {', '.join(map(str, model.classes_))}"
    name = PurePosixPath(str(origin.get("url"))).name
    return (
        f"fitted on {name}: {model.groups_.size:,} images × {model.coef_.shape[1]:,} features, "
        f"classes {', '.join(map(str, origin['classes']))}"
    )


def _model_facts(model: Any) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if hasattr(model, "review_"):
        suspect = int(is_suspect(model.review_).sum())
        facts.append(("suspect masks", f"{suspect:,} of {len(model.review_):,}"))
    if hasattr(model, "log_evidence_"):
        facts += [
            ("log evidence", f"{model.log_evidence_:,.1f}"),
            ("reads of the data", f"{model.history_[-1]['reads']:.3g}" if model.history_ else "0"),
            ("typical noise variance", f"{model.typical_noise_:.3g}"),
            ("rows that count as one", f"{model.redundancy_:.2f}"),
        ]
    if hasattr(model, "C_"):
        facts.append(("C", f"{model.C_:.3g}"))
    return facts


def _charts(model: Any) -> list[dict[str, str]]:
    """Charts as pictures: a notebook that is not trusted yet is stripped of <svg> and <style>."""
    charts = []
    if hasattr(model, "review_"):
        agreement = model.review_["agreement"].dropna().to_numpy()
        told = f"Histogram of the agreement of {agreement.size} images"
        svg = histogram(agreement, told)
        charts.append(("Agreement of each mask with a prediction without its image", told, svg))
    noise: Any = getattr(model, "noise_variance_", None)
    if np.ndim(noise) == 1:
        told = f"Histogram of the noise variance of {np.size(noise)} groups, logarithmic"
        svg = histogram(noise, told, logarithmic=True)
        charts.append(("Noise variance learned for each group", told, svg))
    if getattr(model, "history_", None):
        name, x, to_go = course(model.history_)
        told = f"The fit nears its tolerance; reads of the data: {model.n_reads_}"
        charts.append((f"Evidence to be gained ÷ tolerance, by {name}", told, line(x, to_go, told)))
    if len(getattr(model, "feature_scales_", {})) > 1:
        scales = {str(name): scale for name, scale in model.feature_scales_.items()}
        told = "Learned scale of each group of features"
        charts.append(("Scale learned for each group of features", told, bars(scales, told)))
    return [
        {"caption": caption, "told": told, "picture": _chart_url(svg)}
        for caption, told, svg in charts
    ]


def _chart_url(svg: str) -> str:
    """An inline chart as a picture that brings its own colours."""
    begin, rest = svg.split(">", 1)
    begin = begin.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return data_url(f"{begin}><style>{CHART_STYLE}</style>{rest}".encode(), "image/svg+xml")


def _ends(model: Any) -> list[tuple[str, list[dict[str, str]]]]:
    """The least and the most reliable images, or groups, with pictures where there are some."""
    if hasattr(model, "review_"):
        ordered = rank(model.review_)
        names, values = ordered["image"].tolist(), ordered["agreement"].to_numpy()
        told = [f"agreement {value:.2f}" if np.isfinite(value) else "void" for value in values]
    elif np.ndim(getattr(model, "confidence_", 0.0)) == 1:
        order = np.argsort(model.confidence_, kind="stable")
        names = [str(name) for name in model.groups_[order]]
        told = [f"confidence {value:.2f}" for value in model.confidence_[order]]
    else:
        return []
    n = min(SHOWN, len(names) // 2)
    pairs = list(zip(names, told, strict=True))
    ends = {"Least reliable": pairs[:n], "Most reliable": pairs[::-1][:n]}
    pictures = _pictures(model, [name for end in ends.values() for name, _ in end])
    return [
        (end, [{"name": n, "told": t, "picture": pictures.get(n, "")} for n, t in shown])
        for end, shown in ends.items()
        if shown
    ]


def _pictures(model: Any, names: list[str]) -> dict[str, str]:
    """{name: data URL} where the model's dataset, its photos and masks can be read."""
    if not hasattr(model, "dataset_"):
        return {}
    known = _seen.get(model)
    if known is not None and known[0] == names:
        return known[1]
    try:
        dataset = dataset_of(model)
        photos = numbers_of(dataset, names)
        made = thumbnails(dataset, photos)
        found = {name: made[p] for name, p in zip(names, photos.tolist(), strict=True) if p in made}
    except UNREADABLE:
        found = {}
    _seen[model] = names, found
    return found


def plan_card(plan: Plan) -> str:
    """Time, memory and reads of a fit that has not begun."""
    memory = plan.resources.memory_limit
    share = None if memory is None else min(plan.worker_bytes / memory, 1.0)
    return _render(
        "plan",
        title="Plan of a fit",
        told=plan.facts[0][1],
        fits=plan.fits,
        share=share,
        memory=bytes_text(plan.worker_bytes),
        limit="" if memory is None else bytes_text(memory),
        facts=[(name, told) for name, told in plan.facts[1:] if name != "memory per worker"],
    )


def dataset_card(dataset: xr.Dataset, inner: str) -> str:
    """Photos with their masks and what there is of them; ``inner`` is xarray's own look."""
    photos = np.unique(np.linspace(0, dataset.sizes["photo"] - 1, PHOTOS_SHOWN).astype(int))
    names = text_values(dataset["image_name"])
    try:
        pictures = thumbnails(dataset, photos)
    except UNREADABLE:
        pictures = {}
    shown = [
        {"name": names[photo], "told": "", "picture": pictures[photo]}
        for photo in photos.tolist()
        if photo in pictures
    ]
    return _render(
        "dataset",
        title=PurePosixPath(str(dataset.encoding.get("source", "dataset"))).name,
        told=f"{dataset.sizes['photo']:,} images, {dataset.sizes['superpixel']:,} superpixels × "
        f"{dataset.sizes['feature']:,} features ({bytes_text(dataset['features'].nbytes)})",
        facts=_dataset_facts(dataset),
        shown=shown,
        inner=Markup(inner),
    )


def _dataset_facts(dataset: xr.Dataset) -> list[tuple[str, str]]:
    facts = [("features from", str(dataset.attrs["backbone"]["name"]))]
    classes = list(map(str, dataset.attrs["classes"]))
    if dataset.sizes["superpixel"] <= MANY_ROWS:
        label, weight = dataset["label"].values, dataset["weight"].values
        pixels = np.bincount(label, weight * dataset["pixels"].values, len(classes))
        share = 100 * pixels / max(pixels.sum(), 1)
        classes = [f"{name} {part:.0f} %" for name, part in zip(classes, share, strict=True)]
    facts.append(("classes, by pixels", ", ".join(classes)))
    flags = flagged_images(dataset)
    if flags:
        facts.append(("flagged", ", ".join(f"{flag}: {len(n):,}" for flag, n in flags.items())))
    if dataset.sizes["skipped"]:
        facts.append(("skipped files", f"{dataset.sizes['skipped']:,}"))
    return facts
