"""Cards: what a notebook displays for a fitted model, a plan or a dataset, as HTML.

All texts are escaped by the template. A card never fails: pictures that cannot be read any more are
left out.
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
import pandas as pd
import xarray as xr
from markupsafe import Markup

from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.core.progress import convergence_curve
from gpgc_dask.core.text import bytes_text
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.summary import flagged_images
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import has_quality, rank
from gpgc_dask.notebook.photos import data_url, open_training_data, photo_numbers, thumbnails
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.ranking import count_bad, is_suspect

if TYPE_CHECKING:
    from gpgc_dask.planning.plan import Plan

__all__ = ["dataset_card", "model_card", "plan_card"]

SHOWN = 5
"""Number of images, or groups, at either end of the ranking of a model."""

PHOTOS_SHOWN = 8
"""Number of photos of a dataset."""

MANY_ROWS = 2_000_000
"""Number of rows above which the labels of a dataset are not counted."""

CHART_STYLE = (
    "text { font-family: system-ui, sans-serif; } .bar, .point { fill: #5b8ec4; } "
    ".track { fill: #808c9b; fill-opacity: .35; } .grid { stroke: #808c9b; stroke-opacity: .35; } "
    ".axis { stroke: #808c9b; } .tick { fill: #808c9b; font-size: 12px; } "
    ".name { fill: #808c9b; font-size: 14px; } "
    ".curve { fill: none; stroke: #5b8ec4; stroke-width: 2; } "
    ".goal { stroke: #3aae5c; stroke-width: 2; stroke-dasharray: 5 4; }"
)
"""Style of the charts, for light and dark pages."""

_seen: WeakKeyDictionary[Any, tuple[list[str], dict[str, str]]] = WeakKeyDictionary()
"""{model: (names, pictures)} of models that were displayed."""

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


def model_card(model: FittedModel) -> str:
    """Card of a fitted model: evidence, noise, and the worst and best images or groups.

    Parameters
    ----------
    model : FittedModel

    Returns
    -------
    str
        HTML.
    """
    parameters = {
        name: value
        for name, value in model.get_params().items()
        if name not in ("progress", "checkpoint") and value is not None
    }
    return _render(
        "model",
        title=type(model).__name__,
        subtitle=_describe_data(model),
        warning="" if model.converged_ else "The fit has not converged: raise max_iter.",
        facts=_model_facts(model),
        charts=_charts(model),
        ends=_ends(model),
        parameters=[(name, repr(value)) for name, value in parameters.items()],
    )


def _describe_data(model: FittedModel) -> str:
    origin = model.dataset_info
    if origin is None:
        return (
            f"fitted on {model.groups_.size:,} groups × {model.coef_.shape[1]:,} features, "
            f"classes {', '.join(map(str, model.classes_))}"
        )
    name = PurePosixPath(str(origin.get("url"))).name
    return (
        f"fitted on {name}: {model.groups_.size:,} images × {model.coef_.shape[1]:,} features, "
        f"classes {', '.join(map(str, origin['classes']))}"
    )


def _model_facts(model: FittedModel) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    review = _review(model)
    if review is not None:
        bad, n = count_bad(review), f"{len(review):,}"
        facts.append(("suspect masks", f"{int(is_suspect(review).sum()):,} of {n}"))
        if bad is not None:
            interval = f"{bad.low:,}–{bad.high:,}"
            facts.append((f"quality below {bad.below}", f"about {bad.estimate:,} ({interval})"))
    if model.log_evidence is not None:
        facts += [
            ("log evidence", f"{model.log_evidence:,.1f}"),
            ("reads of the data", f"{model.history[-1]['reads']:.3g}" if model.history else "0"),
            ("typical noise variance", f"{model.typical_noise:.3g}"),
            ("rows that count as one", f"{model.learned_redundancy:.2f}"),
        ]
    if model.cost is not None:
        facts.append(("C", f"{model.cost:.3g}"))
    return facts


def _review(model: FittedModel) -> pd.DataFrame | None:
    """The review of a model, unless an older version made it."""
    review = model.review_table
    return review if review is not None and has_quality(review) else None


def _charts(model: FittedModel) -> list[dict[str, str]]:
    """Charts as pictures: an untrusted notebook removes <svg> and <style>."""
    charts = []
    review = _review(model)
    if review is not None:
        quality = review["quality"].dropna().to_numpy()
        text = f"Histogram of the quality of {quality.size} images"
        charts.append(
            ("Estimated IoU of each mask with a correct one", text, histogram(quality, text))
        )
    noise = model.group_noise
    if noise is not None:
        text = f"Histogram of the noise variance of {noise.size} groups, logarithmic"
        svg = histogram(noise, text, logarithmic=True)
        charts.append(("Noise variance learned for each group", text, svg))
    if model.history:
        name, x, to_go = convergence_curve(model.history)
        text = f"The fit reaches its tolerance; reads of the data: {model.n_reads_}"
        charts.append((f"Evidence to be gained ÷ tolerance, by {name}", text, line(x, to_go, text)))
    if len(model.feature_scales) > 1:
        scales = {str(name): scale for name, scale in model.feature_scales.items()}
        text = "Learned scale of each group of features"
        charts.append(("Scale learned for each group of features", text, bars(scales, text)))
    return [
        {"caption": caption, "description": text, "picture": _chart_url(svg)}
        for caption, text, svg in charts
    ]


def _chart_url(svg: str) -> str:
    """A chart as a picture with its own style."""
    begin, rest = svg.split(">", 1)
    begin = begin.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return data_url(f"{begin}><style>{CHART_STYLE}</style>{rest}".encode(), "image/svg+xml")


def _ends(model: FittedModel) -> list[tuple[str, list[dict[str, str]]]]:
    """The least and the most reliable images or groups, with pictures if there are any."""
    pairs = _ranked_captions(model)
    n = min(SHOWN, len(pairs) // 2)
    ends = {"Least reliable": pairs[:n], "Most reliable": pairs[::-1][:n]}
    pictures = _pictures(model, [name for end in ends.values() for name, _ in end])
    return [
        (end, [{"name": n, "caption": c, "picture": pictures.get(n, "")} for n, c in items])
        for end, items in ends.items()
        if items
    ]


def _ranked_captions(model: FittedModel) -> list[tuple[str, str]]:
    """(name, caption) of the images or groups, least reliable first."""
    review = _review(model)
    if review is not None:
        ranking = rank(review)
        values = ranking["quality"].to_numpy()
        captions = [f"quality {value:.2f}" if np.isfinite(value) else "void" for value in values]
        return list(zip(ranking["image"].tolist(), captions, strict=True))
    confidence = model.group_confidence
    if confidence is None:
        return []
    order = np.argsort(confidence, kind="stable")
    names = [str(name) for name in model.groups_[order]]
    captions = [f"confidence {value:.2f}" for value in confidence[order]]
    return list(zip(names, captions, strict=True))


def _pictures(model: FittedModel, names: list[str]) -> dict[str, str]:
    """{name: data URL} if the dataset, photos and masks of the model can be read."""
    if model.dataset_info is None or not names:
        return {}
    cached = _seen.get(model)
    if cached is not None and cached[0] == names:
        return cached[1]
    try:
        dataset = open_training_data(model)
        photos = photo_numbers(dataset, names)
        made = thumbnails(dataset, photos)
        pairs = zip(names, photos.tolist(), strict=True)
        pictures = {name: made[photo] for name, photo in pairs if photo in made}
    except UNREADABLE:
        pictures = {}
    _seen[model] = names, pictures
    return pictures


def plan_card(plan: Plan) -> str:
    """Card of a plan: time, memory and reads of a fit.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        HTML.
    """
    memory = plan.resources.memory_limit
    share = None if memory is None else min(plan.worker_bytes / memory, 1.0)
    return _render(
        "plan",
        title="Plan of a fit",
        subtitle=plan.facts[0][1],
        fits=plan.fits,
        share=share,
        memory=bytes_text(plan.worker_bytes),
        limit="" if memory is None else bytes_text(memory),
        facts=[(name, value) for name, value in plan.facts[1:] if name != "memory per worker"],
    )


def dataset_card(dataset: xr.Dataset, inner: str) -> str:
    """Card of a dataset: photos with their masks, sizes and classes.

    Parameters
    ----------
    dataset : xarray.Dataset
    inner : str
        HTML of the arrays, as xarray displays them.

    Returns
    -------
    str
        HTML.
    """
    photos = np.unique(np.linspace(0, dataset.sizes["photo"] - 1, PHOTOS_SHOWN).astype(int))
    names = text_values(dataset["image_name"])
    try:
        pictures = thumbnails(dataset, photos)
    except UNREADABLE:
        pictures = {}
    shown = [
        {"name": names[photo], "caption": "", "picture": pictures[photo]}
        for photo in photos.tolist()
        if photo in pictures
    ]
    return _render(
        "dataset",
        title=PurePosixPath(str(dataset.encoding.get("source", "dataset"))).name,
        subtitle=f"{dataset.sizes['photo']:,} images, {dataset.sizes['superpixel']:,} superpixels "
        f"× {dataset.sizes['feature']:,} features ({bytes_text(dataset['features'].nbytes)})",
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
