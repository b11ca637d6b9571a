"""Judge the masks of samples, and write the results into their fields."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fiftyone as fo
import pandas as pd

from gpgc_dask import Recipe, RunOptions, ingest, load, rank, score, train
from gpgc_dask.core.errors import ExistsError, InputError
from gpgc_dask.models.review import require_review
from gpgc_dask.results.ranking import is_suspect

from .samples import find_classes, write_folders

NUMBERS = ("quality", "quality_low", "quality_high", "agreement")
REGIONS = "suspicious_regions"
SUSPECT_BELOW = 0.5
"""Regions in which the mask is right with a lower probability are shown."""


@dataclass(frozen=True)
class Judged:
    """How many masks were judged, are suspect, and could not be read."""

    images: int
    suspect: int
    skipped: int


def score_masks(view: Any, field: str, model: str, *, prefix: str = "") -> Judged:
    """Judge masks that a model has never seen: ``gpgc score``.

    Parameters
    ----------
    view : fiftyone view or dataset
    field : str
        Field of segmentations, detections with masks, or polylines.
    model : str
        Path or URL of a model of ``gpgc fit``.
    prefix : str, default ""
        What the names of the written fields begin with.
    """
    fitted = load(model)
    expected = [str(name) for name in (fitted.dataset_info or {}).get("classes", [])]
    classes = find_classes(view, field, expected or None)
    with tempfile.TemporaryDirectory() as folder:
        photos, masks, ids = write_folders(view, field, classes, Path(folder))
        run = RunOptions(on_error="skip")
        report = score(fitted, photos, masks, masks_as=classes.mask_options, run=run)
    return write_fields(view, rank(report.table), ids, prefix=prefix, skipped=len(report.skipped))


def find_bad_masks(
    view: Any, field: str, folder: str, *, prefix: str = "", recipe: Recipe | None = None
) -> Judged:
    """Fit a model to the masks themselves, and judge each by a model that has not seen its image.

    Parameters
    ----------
    view, field, prefix
        As of :func:`score_masks`.
    folder : str
        A new folder for ``photos`` (links), ``masks``, ``dataset.zarr`` and ``model.zarr``, which
        all commands of gpgc read.
    recipe : Recipe, optional
        Superpixels and network.
    """
    place = Path(folder).expanduser().absolute()
    if place.exists() and any(place.iterdir()):
        raise ExistsError(f"{place} is not empty: choose a new folder")
    classes = find_classes(view, field)
    photos, masks, ids = write_folders(view, field, classes, place)
    data, target = place / "dataset.zarr", place / "model.zarr"
    run = RunOptions(on_error="skip")
    report = ingest(photos, masks, data, recipe=recipe, masks_as=classes.mask_options, run=run)
    model = train(data, target)
    ranking = rank(require_review(model))
    return write_fields(
        view, ranking, ids, prefix=prefix, regions=model.objects_table, skipped=len(report.skipped)
    )


def load_review(view: Any, model: str, *, prefix: str = "") -> Judged:
    """Write what a model has found into the samples whose photos were in its fit."""
    fitted = load(model)
    ranking = rank(require_review(fitted, model))
    samples = {_real(path): id for path, id in zip(*view.values(["filepath", "id"]), strict=True)}
    paths = zip(ranking["image"], ranking["image_path"], strict=True)
    ids = {name: samples[_real(path)] for name, path in paths if _real(path) in samples}
    if not ids:
        raise InputError(f"no sample has a photo of {model}, such as {ranking['image_path'][0]}")
    ranking = ranking[ranking["image"].isin(ids)]
    return write_fields(view, ranking, ids, prefix=prefix, regions=fitted.objects_table)


def _real(path: str) -> str:
    return os.path.realpath(path)


def worst_first(view: Any, *, prefix: str = "") -> Any:
    """The samples that were judged, worst first."""
    field = f"{prefix}rank"
    if not view.has_field(field):
        raise InputError(f"no sample has the field {field}: judge the masks first")
    return view.exists(field).sort_by(field)


def write_fields(
    view: Any,
    ranking: pd.DataFrame,
    ids: dict[str, str],
    *,
    prefix: str,
    regions: pd.DataFrame | None = None,
    skipped: int = 0,
) -> Judged:
    """Write a ranking, and regions that are probably wrong, into fields of the samples."""
    chosen = view._dataset if hasattr(view, "_dataset") else view
    chosen = chosen.select([ids[name] for name in ranking["image"]], ordered=True)
    suspect = is_suspect(ranking)
    values: dict[str, list[Any]] = {
        "rank": list(range(1, len(ranking) + 1)),
        "suspect": suspect.tolist(),
        "flags": [[one for one in text.split(";") if one] for text in ranking["flags"]],
    }
    for name in NUMBERS:
        values[name] = [None if math.isnan(one) else float(one) for one in ranking[name]]
    if regions is not None:
        values[REGIONS] = _regions(chosen, ranking["image"].tolist(), regions)
    kinds = {"rank": fo.IntField, "suspect": fo.BooleanField, "flags": fo.ListField}
    for name, column in values.items():
        field = prefix + name
        if name != REGIONS and not chosen.has_field(field):
            chosen._dataset.add_sample_field(field, kinds.get(name, fo.FloatField))
        chosen.set_values(field, column)
    return Judged(len(ranking), int(suspect.sum()), skipped)


def _regions(chosen: Any, images: list[str], regions: pd.DataFrame) -> list[fo.Polylines]:
    """Polylines of each image: what is missing, spurious or of a wrong class in its mask."""
    found = regions[(regions["kind"] != "given") & (regions["score"] < SUSPECT_BELOW)]
    by_image = {name: rows.to_dict("records") for name, rows in found.groupby("image")}
    chosen.compute_metadata()
    sizes = zip(*chosen.values(["metadata.width", "metadata.height"]), strict=True)
    return [
        fo.Polylines(polylines=[_polyline(row, size) for row in by_image.get(name, [])])
        for name, size in zip(images, sizes, strict=True)
    ]


def _polyline(row: dict[str, Any], size: tuple[int, int]) -> fo.Polyline:
    width, height = size
    points = [
        [(x / width, y / height) for x, y in zip(flat[::2], flat[1::2], strict=True)]
        for flat in json.loads(row["polygon"])
    ]
    return fo.Polyline(
        label=row["kind"], points=points, closed=True, filled=True,
        confidence=1 - float(row["score"]), predicted=row["class"], given=row["given_class"],
    )  # fmt: skip
