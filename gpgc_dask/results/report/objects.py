"""Annotations and regions as compact columns of the page, with outlines next to the pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Array, Index, Labels

__all__ = ["GRID", "KINDS", "Outline", "PackedObjects", "pack_objects"]

KINDS = ("given", "missing", "spurious", "wrong class")

GRID = 500
"""Coordinates of outlines are integers, with this many steps along the longer side of a photo."""

TOLERANCE, MIN_POINTS, MAX_TURNS = 1.2, 4, 10
"""Points of an outline that are nearer to the line between their neighbours are left out, while
there are more than these points, in so many turns."""

MIN_EXTENT = 6
"""A further ring of an object is drawn from this many steps of the grid on."""

Outline = list[list[int]]
"""Rings of an object, each a list of x, y, x, y, …; empty if there is none."""


@dataclass(frozen=True)
class PackedObjects:
    """Objects as the page holds them.

    Attributes
    ----------
    classes : list of str
        Names of classes; the columns ``class`` and ``given`` are indices into them.
    columns : dict
        {name: values}, worst object first: ``rank``, ``annotation``, ``image`` (place of the image
        in the ranking), ``class``, ``given``, ``kind`` (index into :data:`KINDS`), ``score`` (None
        if the object is not judged) and ``area`` (share of the photo).
    outlines : list of list
        Outlines of the objects of each image in the ranking, in the order of the columns.
    """

    classes: list[str]
    columns: dict[str, list[Any]]
    outlines: list[list[Outline]]


def pack_objects(
    table: pd.DataFrame | None, images: Labels, sizes: Index, class_names: Sequence[str]
) -> PackedObjects | None:
    """Pack a table of objects for the page.

    Parameters
    ----------
    table : pandas.DataFrame or None
        As ``model.objects_table``: rank, annotation, image, class, given_class, kind, score, area,
        polygon and judged.
    images : (n,) array of str
        Names of the images with a picture, in the order of the ranking. Objects of other images are
        left out.
    sizes : (n,) array of int
        Longer sides of their photos in pixels.
    class_names : sequence of str
        Names of the classes of the dataset.

    Returns
    -------
    PackedObjects or None
        None if there are no objects.
    """
    if table is None:
        return None
    place = pd.Series(np.arange(len(images)), index=images).reindex(table["image"]).to_numpy()
    table = table.assign(place=place)[~np.isnan(place)].sort_values("rank", kind="stable")
    table = table.fillna(dict.fromkeys(("annotation", "class", "given_class", "polygon"), ""))
    if table.empty:
        return None
    place = table["place"].to_numpy(dtype=np.intp)
    classes = list(dict.fromkeys([*class_names, *table["class"], *table["given_class"]]))
    number = {name: index for index, name in enumerate(classes)}
    score = table["score"].where(table["judged"].to_numpy(dtype=bool))
    columns = {
        "rank": table["rank"].astype(int).tolist(),
        "annotation": table["annotation"].astype(str).tolist(),
        "image": place.tolist(),
        "class": [number[name] for name in table["class"]],
        "given": [number[name] for name in table["given_class"]],
        "kind": [KINDS.index(kind) for kind in table["kind"]],
        "score": [None if value != value else round(value, 3) for value in score.tolist()],
        "area": [float(f"{value:.2g}") for value in table["area"].tolist()],
    }
    outlines: list[list[Outline]] = [[] for _ in images]
    simple = _simplify_all(table["polygon"].tolist(), GRID / sizes[place])
    for index, outline in zip(place.tolist(), simple, strict=True):
        outlines[index].append(outline)
    return PackedObjects(classes, columns, outlines)


def _simplify_all(polygons: Sequence[str], scale: Array) -> list[Outline]:
    """The rings of all polygons on the grid, with few points: all at once, as there are many."""
    rings = [
        (number, ring)
        for number, polygon in enumerate(polygons)
        for ring in json.loads(polygon or "[]")
        if len(ring) >= 6
    ]
    outlines: list[Outline] = [[] for _ in polygons]
    if not rings:
        return outlines
    owner = np.array([number for number, _ in rings], dtype=np.intp)
    ring = np.repeat(np.arange(len(rings)), [len(flat) // 2 for _, flat in rings])
    flat = np.fromiter(chain.from_iterable(flat for _, flat in rings), dtype=np.float64)
    points = np.rint(flat.reshape(-1, 2) * scale[owner[ring], None])
    points, ring = _simplify(points, ring)
    starts = np.flatnonzero(np.diff(ring, prepend=-1))
    extent = (np.maximum.reduceat(points, starts) - np.minimum.reduceat(points, starts)).max(1)
    largest = np.zeros(len(polygons))
    np.maximum.at(largest, owner, extent)
    seen = (extent >= MIN_EXTENT) | (extent == largest[owner])
    values, bounds = points.astype(int).ravel().tolist(), [*(2 * starts).tolist(), points.size]
    for index in np.flatnonzero(seen).tolist():
        outlines[owner[index]].append(values[bounds[index] : bounds[index + 1]])
    return outlines


def _simplify(points: Array, ring: Index) -> tuple[Array, Index]:
    """Leave out points that are near the line between their neighbours, every other in turn."""
    for turn in range(MAX_TURNS):
        count = np.bincount(ring)
        end = np.cumsum(count)
        position = np.arange(ring.size) - (end - count)[ring]
        after, before = np.arange(1, ring.size + 1), np.arange(-1, ring.size - 1)
        after[end - 1], before[end - count] = end - count, end - 1
        base, arm = points[after] - points[before], points - points[before]
        length = np.hypot(base[:, 0], base[:, 1])
        area = np.abs(base[:, 0] * arm[:, 1] - base[:, 1] * arm[:, 0])
        apart = np.where(length > 0, area / np.maximum(length, 1), np.hypot(arm[:, 0], arm[:, 1]))
        # The first and the last point are neighbours: not both.
        dropped = (apart < TOLERANCE) & (position % 2 == turn % 2) & (count[ring] > MIN_POINTS)
        dropped &= (position < count[ring] - 1) | (position % 2 == 1)
        points, ring = points[~dropped], ring[~dropped]
    return points, ring
