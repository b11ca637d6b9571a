"""What a review is based on: a dataset and a model, and what the page needs to know of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Index
from gpgc_dask.data.dataset import background_class, text_values
from gpgc_dask.models.fitted_dataset import open_fitted, require_dataset_info
from gpgc_dask.models.persistence import load
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import predict_and_review, require_review
from gpgc_dask.results.colours import KIND_COLOURS, class_colours
from gpgc_dask.results.ranking import is_suspect
from gpgc_dask.results.report.objects import GRID, KINDS, Outline, pack_objects
from gpgc_dask.review.queue import make_orders

__all__ = ["Basis", "load_basis"]

MAX_OBJECTS = 50_000
"""Annotations and regions that the page lists, the most suspicious first."""

NUMBERS = ("quality", "quality_low", "quality_high", "agreement", "noise_variance")
TEXTS = ("flags", "annotator", "group")


@dataclass(frozen=True)
class Basis:
    """A dataset and what a model estimates about it.

    Attributes
    ----------
    dataset : xarray.Dataset
        As the model was fitted on it.
    predicted : (N,) array of int
        Class of each superpixel, predicted without its image.
    table : DataFrame
        The review of the images, in the dataset's order.
    orders : dict
        {order: numbers of the images}, worst first.
    objects : list of dict
        One per image: annotations and regions with ``title``, ``kind``, ``score``, ``area`` and
        ``rings``, worst first.
    """

    dataset: xr.Dataset
    predicted: Index
    table: pd.DataFrame
    orders: dict[str, list[int]]
    objects: list[list[dict[str, Any]]]

    @cached_property
    def key(self) -> str:
        """Identifies predictions and numbers: verdicts that take the model's mask name it."""
        digest = hashlib.blake2b(self.predicted.tobytes(), digest_size=8)
        digest.update(self.table["quality"].to_numpy(dtype=np.float64).tobytes())
        return digest.hexdigest()

    @property
    def names(self) -> list[str]:
        """Names of the images."""
        return text_values(self.dataset["image_name"]).tolist()

    def describe(self) -> dict[str, Any]:
        """What the page needs to know of all images, as plain values."""
        classes = list(self.dataset.attrs["classes"])
        background = background_class(self.dataset)
        source = str(self.dataset.encoding.get("source", "dataset"))
        return {
            "title": PurePosixPath(source).name,
            "basis": self.key,
            "key": str(self.dataset.attrs.get("files_digest", source))[:16],
            "classes": classes,
            "colours": class_colours(len(classes), background),
            "background": background if len(classes) > 2 else 0,
            "kind_colours": KIND_COLOURS,
            "grid": GRID,
            "orders": self.orders,
            "images": self._columns(),
        }

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"image": self.names}
        for name in NUMBERS:
            values = self.table[name].to_numpy(dtype=np.float64)
            columns[name] = [round(v, 4) if np.isfinite(v) else None for v in values.tolist()]
        for name in TEXTS:
            if name in self.table and (texts := self.table[name].fillna("").astype(str)).any():
                columns[name] = texts.tolist()
        columns["suspect"] = is_suspect(self.table).astype(int).tolist()
        columns["objects"] = [len(each) for each in self.objects]
        return columns


def load_basis(data: str | PathLike[str], model: str | PathLike[str]) -> Basis:
    """Load a model with its review, and the dataset as it was when the model was fitted.

    Parameters
    ----------
    data, model : path or URL

    Raises
    ------
    NotReviewedError
        If the model keeps no review of its images.
    """
    fitted: FittedModel = load(model)
    require_review(fitted, str(model))
    require_dataset_info(fitted)
    dataset = open_fitted(fitted, data)
    predicted, table = predict_and_review(fitted, dataset)
    objects = fitted.objects_table
    return Basis(
        dataset, predicted, table, make_orders(table, objects), _describe_objects(dataset, objects)
    )


def _describe_objects(
    dataset: xr.Dataset, table: pd.DataFrame | None
) -> list[list[dict[str, Any]]]:
    """The judged annotations and regions of each image, worst first."""
    names = text_values(dataset["image_name"])
    described: list[list[dict[str, Any]]] = [[] for _ in names]
    if table is None:
        return described
    judged = table[table["judged"].to_numpy(dtype=bool)].head(MAX_OBJECTS)
    sides = np.maximum(dataset["height"].values, dataset["width"].values)
    packed = pack_objects(judged, names, sides, list(dataset.attrs["classes"]))
    if packed is None:
        return described
    columns, outlines = packed.columns, [iter(each) for each in packed.outlines]
    for number, image in enumerate(columns["image"]):
        rings: Outline = next(outlines[image])
        own, given = (packed.classes[columns[name][number]] for name in ("class", "given"))
        kind = KINDS[columns["kind"][number]]
        described[image].append(
            {
                "title": f"{given} → {own}" if kind == "wrong class" else own,
                "kind": kind,
                "score": columns["score"][number],
                "area": columns["area"][number],
                "rings": rings,
            }
        )
    return described
