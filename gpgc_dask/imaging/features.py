"""One photo and its mask to the rows of a dataset. No Dask, no store: arrays out of files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.backbones import Backbone
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.imaging.photos import Orientation, Photo, read_photo
from gpgc_dask.imaging.superpixels import (
    GRID,
    MAX_SUPERPIXELS,
    Segments,
    class_counts,
    pool,
    position_features,
    segment,
)

__all__ = ["PHASES", "Described", "Labelled", "Recipe", "Stopwatch", "describe", "label"]

PHASES = ("decode", "superpixels", "backbone", "pooling", "write")

FEW_SUPERPIXELS = 10

FLAG_EMPTY = "empty mask"
FLAG_ONE_CLASS = "one class"
FLAG_FEW = "few superpixels"
FLAG_VOID = "mostly void"


@dataclass(frozen=True)
class Recipe:
    """How photos become rows. Everything that the result depends on, but for the mask's format.

    superpixels : about how many an image
    compactness, sigma : of SLIC, in its own units
    side : longest side of the image that superpixels are made of, in pixels
    dtype : of the stored features, float32 or float16
    """

    backbone: Backbone
    superpixels: int = 150
    compactness: float = 20.0
    sigma: float = 1.0
    side: int = 512
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if not 2 <= self.superpixels <= MAX_SUPERPIXELS // 2:
            raise InputError(
                f"superpixels must be 2 to {MAX_SUPERPIXELS // 2}, got {self.superpixels!r}"
            )
        if not 16 <= self.side <= 8192:
            raise InputError(f"side must be 16 to 8192 pixels, got {self.side!r}")
        if not self.compactness > 0 or not self.sigma >= 0:
            raise InputError("compactness must be above 0 and sigma at least 0")
        if self.dtype not in ("float32", "float16"):
            raise InputError(f"dtype must be float32 or float16, got {self.dtype!r}")


class Stopwatch:
    """Seconds spent in each phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start


@dataclass(frozen=True)
class Described:
    """A photo in numbers: (n, k) features of its superpixels, and where these are.

    layers : channels of each feature group, in the order of the columns
    """

    features: Features
    segments: Segments
    layers: dict[str, int]
    orientation: Orientation

    @property
    def n(self) -> int:
        return len(self.features)


def describe(
    path: str | PathLike[str], recipe: Recipe, watch: Stopwatch | None = None
) -> Described:
    """Superpixels and features of the photo at ``path``: appearance, position, constant."""
    watch = watch or Stopwatch()
    with watch("decode"):
        photo: Photo = read_photo(path, recipe.side)
    with watch("superpixels"):
        segments = segment(photo.pixels, recipe.superpixels, recipe.compactness, recipe.sigma)
    n = int(segments.max()) + 1
    with watch("backbone"):
        maps = recipe.backbone(photo.pixels)
    with watch("pooling"):
        appearance = pool(maps, segments, n)
        columns = [appearance, position_features(segments, n), np.ones((n, 1))]
        with np.errstate(over="ignore"):
            features = np.concatenate(columns, axis=1).astype(recipe.dtype)
        _check_finite(features, recipe)
    layers = {"appearance": appearance.shape[1], "position": GRID * GRID, "constant": 1}
    return Described(features, segments, layers, photo.orientation)


def _check_finite(features: Features, recipe: Recipe) -> None:
    if not np.all(np.isfinite(features)):
        raise InputError(
            "the backbone's features are not finite"
            + (" in float16: store them as float32" if recipe.dtype == "float16" else "")
        )


@dataclass(frozen=True)
class Labelled:
    """What a mask says of superpixels: class code, training weight (0 = void) and area, (n,)."""

    label: NDArray[np.uint8]
    weight: NDArray[np.float32]
    pixels: NDArray[np.int64]
    flags: tuple[str, ...] = field(default=())


def label(
    described: Described, codes: Codes, n_classes: int, background: int | None = 0
) -> Labelled:
    """Majority vote of the mask's pixels in each superpixel.

    A superpixel that is void for the greater part keeps the majority of what is left as its label
    and carries no weight. A mask all of class ``background`` is empty.
    """
    counts: Index = class_counts(described.segments, described.n, codes, n_classes)
    votes, void = counts[:, :-1], counts[:, -1]
    area = counts.sum(1)
    weight: Array = (2 * void < area).astype(np.float64)
    winner = votes.argmax(1)
    return Labelled(
        winner.astype(np.uint8),
        weight.astype(np.float32),
        area.astype(np.int64),
        tuple(_flags(counts, set(winner[weight > 0].tolist()), weight, background)),
    )


def _flags(
    counts: Index, winners: set[int], weight: Array, background: int | None
) -> Iterator[str]:
    present = np.flatnonzero(counts[:, :-1].any(0))
    if weight.sum() < min(2, weight.size):
        yield FLAG_VOID
    elif present.tolist() == [background]:
        yield FLAG_EMPTY
    elif len(winners) == 1:
        yield FLAG_ONE_CLASS
    if weight.size < FEW_SUPERPIXELS:
        yield FLAG_FEW
