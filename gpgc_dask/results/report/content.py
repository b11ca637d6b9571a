"""What the page of the report shows, apart from the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.progress import convergence_curve
from gpgc_dask.data.dataset import background_class
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import CLASS_IOU
from gpgc_dask.quality.quality_regression import BAD_BELOW
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.colours import KIND_COLOURS, class_colours
from gpgc_dask.results.columns import Column, columns_in
from gpgc_dask.results.ranking import CERTAINTY, confusion, count_bad, is_suspect, records
from gpgc_dask.results.report.classes import class_table
from gpgc_dask.results.report.objects import GRID, KINDS, PackedObjects
from gpgc_dask.results.report.people import people_rows

__all__ = ["page_content"]

GONE_FLAG, CHANGED_FLAG = "photo gone", "mask changed since"

OWN_FILTERS = ("annotator", "group")
"""Columns of the review by whose values the page filters, if it has them."""


def page_content(
    title: str,
    dataset: xr.Dataset,
    model: FittedModel,
    ranking: pd.DataFrame,
    *,
    gone: Sequence[str] = (),
    changed: Sequence[str] = (),
    confusions: Mapping[str, list[int]] | None = None,
    objects: PackedObjects | None = None,
    people: pd.DataFrame | None = None,
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
    confusions : dict, optional
        Confused classes of each image, from
        :func:`~gpgc_dask.results.report.classes.image_confusions`.
    objects : PackedObjects, optional
        Annotations and regions.
    people : pandas.DataFrame, optional
        Annotators, worst first.

    Returns
    -------
    dict
        The variables of the template; ``data`` is what its script reads.
    """
    images = _add_flags(records(ranking), {GONE_FLAG: gone, CHANGED_FLAG: changed})
    data = _script_data(title, dataset, ranking, images, objects) | {"confusions": confusions}
    confused = confusion(model, dataset) if model.classes_.size > 2 else None
    filters = {name: _own_values(ranking, name) for name in OWN_FILTERS}
    return {
        "title": title,
        "images": len(ranking),
        "suspect": int(is_suspect(ranking).sum()),
        "bad": count_bad(ranking),
        "threshold": BAD_BELOW,
        "certainty": CERTAINTY,
        "gone": len(gone),
        "changed": len(changed),
        "classes": data["classes"],
        "has_background": data["background"] >= 0,
        "columns": data["columns"],
        "class_columns": [name for name in ranking if str(name).startswith(CLASS_IOU)],
        "filters": {name: values for name, values in filters.items() if values},
        "charts": _charts(model, ranking),
        "confusion": None if confused is None else confused | _numbers(confused, data["classes"]),
        "class_table": None if confused is None else class_table(ranking, confused),
        "objects": None if objects is None else _object_facts(objects),
        "people": people_rows(people),
        "facts": _facts(dataset, model),
        "converged": bool(model.converged_),
        "data": data,
        "outlines": [] if objects is None else objects.outlines,
    }


def _script_data(
    title: str,
    dataset: xr.Dataset,
    ranking: pd.DataFrame,
    images: list[dict[str, Any]],
    objects: PackedObjects | None,
) -> dict[str, Any]:
    """What the script of the page reads."""
    classes, background = list(dataset.attrs["classes"]), background_class(dataset)
    return {
        "images": _image_columns(ranking, images),
        "columns": [_describe(column, images) for column in _known_columns(images)],
        "classes": classes,
        "colours": class_colours(len(classes), background),
        "background": background if len(classes) > 2 else 0,
        "kinds": KINDS,
        "kind_colours": KIND_COLOURS,
        "threshold": BAD_BELOW,
        "key": str(dataset.attrs.get("files_digest", title))[:16],
        "grid": GRID,
        "objects": None if objects is None else {"classes": objects.classes} | objects.columns,
    }


def _numbers(confused: Mapping[str, Any], classes: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of the classes of a table of confusions, which may lack some of the dataset's."""
    return {"numbers": [classes.index(name) for name in confused["classes"]]}


def _own_values(ranking: pd.DataFrame, name: str) -> list[str]:
    """The distinct values of a column, sorted; empty if there are none that images share."""
    if name not in ranking:
        return []
    values = sorted(value for value in set(ranking[name].fillna("").astype(str)) if value)
    return values if len(values) < len(ranking) else []


def _image_columns(ranking: pd.DataFrame, images: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The images as columns, which take less space than a dict per image."""
    names = [name for name in images[0] if name != "rank"] if images else []
    columns = {name: [_short(name, image[name]) for image in images] for name in names}
    columns["suspect"] = is_suspect(ranking).astype(int).tolist()
    for name in OWN_FILTERS:
        if _own_values(ranking, name):
            columns[name] = ranking[name].fillna("").astype(str).tolist()
    return columns


def _short(name: str, value: Any) -> Any:
    """A value with the digits that the page needs."""
    return round(value, 3) if name.startswith(CLASS_IOU) and value is not None else value


def _object_facts(objects: PackedObjects) -> dict[str, Any]:
    """What the controls of the page need to know about the objects."""
    columns = objects.columns
    used = sorted(set(columns["class"]))
    return {
        "count": len(columns["rank"]),
        "kinds": [KINDS[kind] for kind in sorted(set(columns["kind"]))],
        "classes": [objects.classes[number] for number in used if objects.classes[number]],
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
