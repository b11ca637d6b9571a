"""The table of objects: annotations with their scores, and regions that are probably wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.errors import NotReviewedError
from gpgc_dask.data.dataset import background_class, text_values
from gpgc_dask.data.run_lengths import decode
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.quality.estimate import TRUSTED_QUALITY
from gpgc_dask.quality.objects import score_objects
from gpgc_dask.quality.polygons import outlines
from gpgc_dask.quality.predictions import Evidence, Predictions
from gpgc_dask.quality.region_scores import FoundRegion, score_regions

__all__ = ["OBJECT_COLUMNS", "empty_table", "objects_table", "require_objects"]

OBJECT_COLUMNS = (
    "rank", "annotation", "image", "class", "given_class", "kind", "score", "area", "x", "y",
    "width", "height", "polygon", "judged",
)  # fmt: skip
"""Columns of the table, in their order."""

ROWS_PER_TASK = 1024


def objects_table(dataset: xr.Dataset, evidence: Evidence, quality: Array) -> pd.DataFrame:
    """Score the annotations of a dataset, and find regions where its masks are probably wrong.

    Parameters
    ----------
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`.
    evidence : Evidence
        Predictions by models that never saw the image, and given labels.
    quality : (J,) array
        Estimated quality of the masks. The better ones, at least half, are taken for right where
        regions are compared with errors.

    Returns
    -------
    DataFrame
        The most suspicious first; what is too small to be judged is last:

        - ``rank``: 1 is the most suspicious.
        - ``annotation``: id of the annotation; "" for regions.
        - ``image``, ``class``, ``given_class``: names. The class of regions is the predicted one;
          the given class is that of the mask there, "" for regions of the background.
        - ``kind``: "given", "missing", "spurious" or "wrong class".
        - ``score``: probability that the mask is right there; NaN if it is not judged.
        - ``area``: share of the photo.
        - ``x``, ``y``, ``width``, ``height``: box in pixels of the photo, from its top left.
        - ``polygon``: JSON list of polygons [x, y, x, y, …] in pixels of the photo.
        - ``judged``: False if it is too small.
    """
    predictions = evidence.predictions
    background = background_class(dataset)
    own = np.flatnonzero(evidence.classes == background)
    trusted = quality >= min(TRUSTED_QUALITY, float(np.nanmedian(quality)))
    regions = score_regions(dataset, predictions, trusted, int(own[0]) if own.size else -1)
    table = pd.concat(
        [_given_rows(dataset, predictions), _region_rows(dataset, evidence, regions, background)],
        ignore_index=True,
    )
    keys = ["score", "area", "image", "annotation", "kind", "y", "x"]
    order = [name != "area" for name in keys]  # of two that are as suspicious the larger one first
    table = table.sort_values(keys, ascending=order, na_position="last", kind="stable")
    table = table.reset_index(drop=True)
    table.insert(0, "rank", np.arange(1, len(table) + 1))
    return table[list(OBJECT_COLUMNS)]


def empty_table() -> pd.DataFrame:
    """A table without rows."""
    types: dict[str, Any] = {"rank": np.int64, "judged": bool}
    types |= dict.fromkeys(("score", "area", "x", "y", "width", "height"), np.float64)
    return pd.DataFrame({name: np.zeros(0, types.get(name, str)) for name in OBJECT_COLUMNS})


def require_objects(model: FittedModel, name: str = "the model") -> pd.DataFrame:
    """The table of a model's objects; raise a NotReviewedError, with its ``name``, without one."""
    if model.objects_table is not None:
        return model.objects_table
    raise NotReviewedError(
        f"{name} has not reviewed the objects of its images: "
        + (
            "fit it again (gpgc fit --overwrite), or in Python model.review(dataset)"
            if model.dataset_info is not None
            else "it was fitted on arrays, not on a dataset; use gpgc fit"
        )
    )


def _given_rows(dataset: xr.Dataset, predictions: Predictions) -> pd.DataFrame:
    """Rows of the annotations."""
    scores = score_objects(dataset, predictions)
    image = dataset["object_image"].values
    names = text_values(dataset["image_name"])[image]
    classes = np.array(dataset.attrs["classes"], dtype=str)[dataset["object_class"].values]
    boxes = dataset["object_box"].values.reshape(-1, 4).astype(float)
    polygons: list[str] = []
    arguments = (
        (dataset[["object_region"]].isel(object=slice(low, low + ROWS_PER_TASK)), sizes)
        for low, sizes in _sizes(dataset, image)
    )
    for part in compute(*lazy_calls("outlines", _outlines, arguments)):
        polygons += part
    return _frame(
        annotation=text_values(dataset["object_id"]),
        image=names,
        given_class=classes,
        kind=["given"] * image.size,
        score=scores.score,
        area=dataset["object_area"].values.astype(float),
        box=boxes,
        polygon=polygons,
        judged=scores.judged,
        **{"class": classes},
    )


def _sizes(dataset: xr.Dataset, image: Any) -> Iterator[tuple[int, list[Any]]]:
    """Sizes of maps and photos of the objects of each task."""
    sizes = _map_sizes(dataset)
    for low in range(0, image.size, ROWS_PER_TASK):
        yield low, sizes[image[low : low + ROWS_PER_TASK]].tolist()


def _map_sizes(dataset: xr.Dataset) -> Index:
    """(J, 4) height and width of each image's map and of its photo."""
    columns = ("segment_height", "segment_width", "height", "width")
    return np.stack([dataset[name].values for name in columns], axis=1)


def _outlines(objects: xr.Dataset, sizes: list[Any]) -> list[str]:
    """Polygons of objects, as JSON."""
    regions = objects["object_region"].load(scheduler="sync").values
    return _polygons(regions.tolist(), sizes)


def _polygons(regions: Sequence[str], sizes: Sequence[Any]) -> list[str]:
    """Polygons of regions as JSON, from run lengths and the sizes of maps and photos."""
    masks = (decode(str(counts), h, w) for counts, (h, w, _, _) in zip(regions, sizes, strict=True))
    scales = [(height / h, width / w) for h, w, height, width in sizes]
    return [json.dumps(polygons) for polygons in outlines(masks, scales)]


def _region_rows(
    dataset: xr.Dataset, evidence: Evidence, regions: list[FoundRegion], background: int
) -> pd.DataFrame:
    """Rows of the regions."""
    names = text_values(dataset["image_name"])
    classes = [str(dataset.attrs["classes"][number]) for number in evidence.classes]
    sizes = _map_sizes(dataset)[[region.photo for region in regions]].tolist()
    counts = [region.counts for region in regions]
    blocks = [slice(low, low + ROWS_PER_TASK) for low in range(0, len(regions), ROWS_PER_TASK)]
    arguments = ((counts[block], sizes[block]) for block in blocks)
    polygons, measures = [], []
    for own_polygons, own_measures in compute(*lazy_calls("outlines", _measure, arguments)):
        polygons += own_polygons
        measures += own_measures
    table = np.array(measures, dtype=float).reshape(-1, 5)
    nothing = [region.given for region in regions]
    given = ["" if evidence.classes[code] == background else classes[code] for code in nothing]
    return _frame(
        annotation=[""] * len(regions),
        image=[str(names[region.photo]) for region in regions],
        given_class=given,
        kind=[region.kind for region in regions],
        score=np.array([1.0 - region.probability for region in regions]),
        area=table[:, 4],
        box=table[:, :4].round(1),
        polygon=polygons,
        judged=np.ones(len(regions), dtype=bool),
        **{"class": [classes[region.code] for region in regions]},
    )


def _measure(regions: list[str], sizes: list[Any]) -> tuple[list[str], list[list[float]]]:
    """Polygons of regions as JSON; x, y, width and height of their boxes, and their areas."""
    measures = []
    for counts, (h, w, height, width) in zip(regions, sizes, strict=True):
        inside = decode(counts, h, w)
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        down, across = height / h, width / w
        box = (columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0])
        sides = [box[0] * across, box[1] * down, box[2] * across, box[3] * down]
        measures.append([*sides, float(inside.mean())])
    return _polygons(regions, sizes), measures


def _frame(box: Any, **columns: Any) -> pd.DataFrame:
    sides = dict(zip(("x", "y", "width", "height"), box.T, strict=True))
    for name in ("annotation", "image", "class", "given_class", "kind", "polygon"):
        columns[name] = np.array(columns[name], dtype=str)
    return pd.DataFrame(columns | sides)
