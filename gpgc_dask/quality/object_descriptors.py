"""What an annotated object looks like to a model that never saw its image.

The numbers here distinguish right annotations from wrong ones: of another class, or in another
place. As the probabilities P do not depend on the annotations of the image, objects that were never
drawn can be described too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.quality.descriptors import Prediction
from gpgc_dask.quality.placement import (
    N_PLACEMENT,
    Neighbours,
    contrast_edges,
    describe_placement,
    outline_of,
)

__all__ = ["N_COLUMNS", "Placed", "Scene", "describe_object", "pool_object"]

N_COLUMNS = 27 + N_PLACEMENT
"""Length of descriptions."""

MAX_POINTS = 600
"""Pixels of a region, and of its outline, that are moved."""

NEAR, FAR = 3, 0.4
"""Distance in pixels to which outlines are moved; that of regions, in square roots of the area."""

DIRECTIONS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]

RING = 0.25
"""Width of the ring around an object, in square roots of its area."""

MIN_VISIBLE = 0.2
"""Objects of which less than this share is visible are described with what hides them."""


@dataclass(frozen=True)
class Placed:
    """An object: its pixels (h, w) at working size, its class, where others hide it, and these."""

    inside: Mask
    code: int
    hidden: Mask
    neighbours: Neighbours

    @property
    def visible(self) -> Mask:
        """Pixels by which the object is judged."""
        seen = self.inside & ~self.hidden
        return seen if seen.sum() >= MIN_VISIBLE * self.inside.sum() else self.inside


class Scene:
    """A prediction, and maps of it that all objects of the image share.

    Parameters
    ----------
    prediction : Prediction
    spread : (classes,) array
        Standard deviations of the decision values in the whole dataset.
    """

    def __init__(self, prediction: Prediction, spread: Array) -> None:
        self.prediction = prediction
        self.segments = prediction.segments
        self.spread = spread

    @cached_property
    def edges(self) -> Array:
        """(h, w) how near the outline of a superpixel is: 1 on it, 0.5 next to it."""
        segments = self.segments
        on = np.zeros(segments.shape, dtype=bool)
        down, right = segments[1:] != segments[:-1], segments[:, 1:] != segments[:, :-1]
        on[1:] |= down
        on[:-1] |= down
        on[:, 1:] |= right
        on[:, :-1] |= right
        return 0.5 * on + 0.5 * ndimage.binary_dilation(on)

    @cached_property
    def contrast(self) -> Array:
        """(h, w) how much the decision values of adjacent superpixels differ, 0 to 1."""
        values = self.prediction.values.reshape(len(self.prediction.shares), -1)
        return contrast_edges(self.segments, values / self.spread)

    @cached_property
    def other(self) -> Array:
        """(n, classes) the largest P of the other classes."""
        return self.prediction.shares - self.prediction.margins

    @cached_property
    def area(self) -> Array:
        """(n,) pixels of each superpixel."""
        return np.bincount(self.segments.ravel(), minlength=len(self.prediction.shares)).astype(
            float
        )

    @cached_property
    def boxes(self) -> Index:
        """(n, 4) first and last row + 1, first and last column + 1 of each superpixel."""
        height, width = self.segments.shape
        boxes = np.tile([height, 0, width, 0], (len(self.prediction.shares), 1))
        for first, turned in ((0, self.segments), (2, self.segments.T)):
            flat, lines = turned.ravel(), np.repeat(np.arange(len(turned)), turned.shape[1])
            boxes[flat[::-1], first] = lines[::-1]  # of several pixels, the last one counts
            boxes[flat, first + 1] = lines + 1
        return boxes

    def box(self, members: Mask) -> tuple[slice, slice]:
        """The smallest part of the map with some superpixels, given by a mask (n,)."""
        own = self.boxes[members]
        (top, _, left, _), (_, bottom, _, right) = own.min(0).tolist(), own.max(0).tolist()
        return slice(top, bottom), slice(left, right)

    def counts(self, inside: Mask, window: tuple[slice, slice] | None = None) -> Array:
        """(n,) pixels of a region of the map, or of a part of it, in each superpixel."""
        segments = self.segments if window is None else self.segments[window]
        n = len(self.prediction.shares)
        return np.bincount(segments[inside], minlength=n).astype(float)


def pool_object(scene: Scene, placed: Placed) -> Array:
    """Mean ln P of each class in the object and in the image, and the object's size and place."""
    logs = scene.prediction.logs
    counts = scene.counts(placed.visible)
    rows, columns = np.nonzero(placed.inside)
    height, width = placed.inside.shape
    place = [
        np.log(rows.size / placed.inside.size),
        rows.mean() / height,
        abs(columns.mean() / width - 0.5),
        np.log((np.ptp(rows) + 1) / (np.ptp(columns) + 1)),
    ]
    own, usual = counts @ logs / counts.sum(), scene.area @ logs / scene.area.sum()
    return np.concatenate([own, usual, place])


def describe_object(scene: Scene, placed: Placed) -> Array:
    """Describe an object by numbers that distinguish right annotations from wrong ones.

    Parameters
    ----------
    scene : Scene
        Of its image.
    placed : Placed
        The object, of at least one pixel.

    Returns
    -------
    (d,) array
        The first number is the mean margin, P of its class minus the largest other P.
    """
    return np.array(
        [
            *_inside(scene, placed),
            *_around(scene, placed),
            *_moved(scene, placed),
            *_geometry(scene, placed),
            *_placement(scene, placed),
        ]
    )


def _inside(scene: Scene, placed: Placed) -> list[float]:
    """Margins, log-odds and probabilities of the class in the object."""
    prediction, code = scene.prediction, placed.code
    shares, logs = prediction.shares, prediction.logs
    weight = scene.counts(placed.visible)
    weight /= weight.sum()
    margin, other = prediction.margins[:, code], scene.other[:, code]
    mean = weight @ shares
    lift = logs - np.log(np.maximum(prediction.frequency, 1e-4))
    lifts = weight @ lift
    best = np.delete(lifts, code).max()
    return [
        weight @ margin,
        weight @ (logs[:, code] - np.log(other)),
        mean[code],
        weight @ logs[:, code],
        weight @ (logs[:, code] + prediction.entropy),
        np.delete(mean, code).max(),
        lifts[code],
        lifts[code] - best,
        weight @ prediction.entropy,
        weight @ (margin > 0),
        weight @ (margin < -0.5),
        shares[:, code].max(),
        np.log(max(prediction.frequency[code], 1e-4)),
    ]


def _around(scene: Scene, placed: Placed) -> list[float]:
    """How the object differs from a ring around it."""
    inside, code = placed.inside, placed.code
    width = max(int(RING * np.sqrt(inside.sum())), NEAR)
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    window = (
        slice(max(rows[0] - width, 0), rows[-1] + width + 1),
        slice(max(columns[0] - width, 0), columns[-1] + width + 1),
    )
    part = inside[window]
    ring = (ndimage.distance_transform_cdt(~part) <= width) & ~part
    shares, logs = scene.prediction.shares, scene.prediction.logs
    n = len(shares)
    counts = np.bincount(scene.segments[window][ring], minlength=n).astype(float)
    own = scene.counts(placed.visible)
    own /= own.sum()
    if not counts.sum():
        return [0.0, 0.0, 0.0]
    counts /= counts.sum()
    odds = logs[:, code] - np.log(scene.other[:, code])
    return [
        float(own @ shares[:, code] - counts @ shares[:, code]),
        float(own @ odds - counts @ odds),
        float(counts @ shares[:, code]),
    ]


def _moved(scene: Scene, placed: Placed) -> list[float]:
    """Whether the outline fits edges, and the region P, better here than a little farther away."""
    inside = placed.inside
    points = _points(outline_of(inside))
    edges = _means(scene.edges, points, NEAR)
    edges_far = _means(scene.edges, points, 2 * NEAR)
    region = _points(placed.visible)
    values = scene.prediction.shares[:, placed.code][scene.segments]
    step = max(round(FAR * np.sqrt(inside.sum())), NEAR)
    p = _means(values, region, step)
    return [
        edges[0],
        edges[0] - edges[1:].mean(),
        edges[0] - edges[1:].max(),
        edges[0] - edges_far[1:].mean(),
        p[0] - p[1:].max(),
        p[0] - p[1:].mean(),
    ]


def _placement(scene: Scene, placed: Placed) -> list[float]:
    """Whether the object would fit better in another place."""
    p = scene.prediction.shares[:, placed.code][scene.segments]
    maps = (scene.edges, scene.contrast, p)
    return describe_placement(placed.inside, placed.visible, maps, placed.neighbours)


def _points(inside: Mask) -> Index:
    points = np.argwhere(inside)
    return points[:: -(-len(points) // MAX_POINTS)]


def _means(values: Array, points: Index, step: int) -> Array:
    """(9,) means of a map over points: in place, and moved in eight directions."""
    height, width = values.shape
    means = []
    for dy, dx in [(0, 0), *DIRECTIONS]:
        rows = np.clip(points[:, 0] + step * dy, 0, height - 1)
        columns = np.clip(points[:, 1] + step * dx, 0, width - 1)
        means.append(float(values[rows, columns].mean()))
    return np.array(means)


def _geometry(scene: Scene, placed: Placed) -> list[float]:
    """Size, how well superpixels represent the object, and how much others overlap it."""
    inside = placed.inside
    counts = scene.counts(inside)
    total = counts.sum()
    covered = counts / np.maximum(scene.area, 1.0)
    size = total / (inside.size / scene.area.size)
    impure = np.minimum(counts, scene.area - counts).sum()
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    box = (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    return [
        np.log(size),
        (counts * covered).sum() / total,
        impure / np.sqrt(total * inside.size / scene.area.size),
        (inside & placed.hidden).sum() / total,
        total / box,
    ]
