"""From one photo and its mask to rows of a dataset: arrays from files, without Dask or a store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.stored import reading_stored
from gpgc_dask.imaging.backbones import Backbone, BackboneLike, find_backbone
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photos import Orientation, Photo, read_photo, reduce_photo
from gpgc_dask.imaging.slic import Segments, segment
from gpgc_dask.imaging.superpixels import (
    GRID,
    MAX_SUPERPIXELS,
    class_counts,
    pool,
    position_features,
    sample_codes,
)

__all__ = [
    "PHASES",
    "REDUCTION",
    "PhotoFeatures",
    "PhotoLabels",
    "Recipe",
    "Stopwatch",
    "describe",
    "label",
    "label_superpixels",
]

PHASES = ("decode", "superpixels", "backbone", "pooling", "write")

REDUCTION = 2
"""Superpixels are computed on photos reduced by this factor, which ``benchmarks/superpixels.py``
shows to be several times faster and no worse."""

SUPERPIXELS = 300
"""Approximate number of superpixels per image with up to two classes."""

SUPERPIXELS_OF_SCENES = 500
"""With more classes: scenes have smaller and thinner things than photos of one object."""

FEW_SUPERPIXELS = 10

FLAG_EMPTY = "empty mask"
FLAG_ONE_CLASS = "one class"
FLAG_FEW = "few superpixels"
FLAG_VOID = "mostly void"


@dataclass(frozen=True)
class Recipe:
    """How photos become rows of a dataset.

    Parameters
    ----------
    backbone : str, Backbone or callable, default "lite0"
        Source of the appearance features: a registered name (``BACKBONES.names()``), a backbone
        that :func:`~gpgc_dask.imaging.backbones.find_backbone` makes (of an ONNX file, with its
        layers), or a function: (h, w, 3) uint8 RGB in, list of (channels, h', w') maps out.
    superpixels : int, optional
        Approximate number of superpixels per image; by default 300, and 500 with more than two
        classes.
    compactness : float, default 20.0
        Compactness of SLIC superpixels; larger values make them squarer.
    sigma : float, default 1.0
        Width of the smoothing before SLIC, in pixels of the reduced photo.
    side : int, default 512
        Longest side in pixels to which photos are scaled down. Superpixels are computed at half of
        it.
    dtype : {"float32", "float16"}, default "float32"
        Type of the stored features.
    photos : PhotoFormat, optional
        How photos become RGB of 8 bits.

    Examples
    --------
    >>> from gpgc_dask import Recipe
    >>> Recipe(backbone="colour", superpixels=20).side
    512
    """

    backbone: BackboneLike = "lite0"
    superpixels: int | None = None
    compactness: float = 20.0
    sigma: float = 1.0
    side: int = 512
    dtype: str = "float32"
    photos: PhotoFormat = field(default_factory=PhotoFormat)

    def __post_init__(self) -> None:
        if self.superpixels is not None and not 2 <= self.superpixels <= MAX_SUPERPIXELS // 2:
            raise InputError(
                f"superpixels must be 2 to {MAX_SUPERPIXELS // 2}, got {self.superpixels!r}"
            )
        if not 16 <= self.side <= 8192:
            raise InputError(f"side must be 16 to 8192 pixels, got {self.side!r}")
        if not self.compactness > 0 or not self.sigma >= 0:
            raise InputError("compactness must be above 0 and sigma at least 0")
        if self.dtype not in ("float32", "float16"):
            raise InputError(f"dtype must be float32 or float16, got {self.dtype!r}")
        _ = self.extractor  # a backbone that cannot be used is rejected now

    @cached_property
    def extractor(self) -> Backbone:
        """The backbone, ready to be called."""
        return find_backbone(self.backbone)

    def to_json(self) -> dict[str, Any]:
        """All parameters but the backbone, as JSON has them."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "backbone"}
        return settings | {"photos": self.photos.to_json()}

    @classmethod
    def from_json(cls, backbone: BackboneLike, stored: Mapping[str, Any]) -> Recipe:
        """Restore the recipe from a dataset's provenance."""
        with reading_stored("recipe"):
            photos = PhotoFormat.from_json(stored.get("photos", {}))
            return cls(backbone, **{**stored, "photos": photos})

    def with_photos(self, photos: PhotoFormat) -> Recipe:
        """The same recipe for another format of photos."""
        return replace(self, backbone=self.extractor, photos=photos)

    def settle(self, n_classes: int) -> Recipe:
        """The recipe with the number of superpixels for that many classes, if it has none."""
        if self.superpixels is not None:
            return self
        n = SUPERPIXELS if n_classes <= 2 else SUPERPIXELS_OF_SCENES
        return replace(self, backbone=self.extractor, superpixels=n)


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
class PhotoFeatures:
    """Superpixels of one photo and their features.

    Attributes
    ----------
    features : (n, k) array
        Features of each superpixel.
    segments : (h, w) array
        Number of each pixel's superpixel, at working size.
    layers : dict
        {feature group: number of columns}, in the order of the columns.
    orientation : Orientation
        Size and orientation of the photo's file.
    """

    features: Features
    segments: Segments
    layers: dict[str, int]
    orientation: Orientation

    @property
    def n(self) -> int:
        """Number of superpixels."""
        return len(self.features)


def describe(
    path: str | PathLike[str], recipe: Recipe, watch: Stopwatch | None = None
) -> PhotoFeatures:
    """Compute superpixels of a photo and their features: appearance, position and a constant.

    Parameters
    ----------
    path : path
        The photo.
    recipe : Recipe
        Backbone and superpixels.
    watch : Stopwatch, optional
        Adds up the seconds of each phase.

    Returns
    -------
    PhotoFeatures
    """
    watch = watch or Stopwatch()
    with watch("decode"):
        photo: Photo = read_photo(path, recipe.side, recipe.photos)
    with watch("superpixels"):
        reduced = reduce_photo(photo.pixels, recipe.side // REDUCTION)
        segments = segment(
            reduced, recipe.superpixels or SUPERPIXELS, recipe.compactness, recipe.sigma
        )
    n = int(segments.max()) + 1
    with watch("backbone"):
        maps = recipe.extractor.photo_maps(path, photo.pixels)
    with watch("pooling"):
        appearance = pool(maps, segments, n)
        columns = [appearance, position_features(segments, n), np.ones((n, 1))]
        with np.errstate(over="ignore"):
            features = np.concatenate(columns, axis=1).astype(recipe.dtype)
        _check_finite(features, recipe)
    layers = {"appearance": appearance.shape[1], "position": GRID * GRID, "constant": 1}
    return PhotoFeatures(features, segments, layers, photo.orientation)


def _check_finite(features: Features, recipe: Recipe) -> None:
    if not np.all(np.isfinite(features)):
        raise InputError(
            "the backbone's features are not finite"
            + (" in float16: store them as float32" if recipe.dtype == "float16" else "")
        )


@dataclass(frozen=True)
class PhotoLabels:
    """Labels of the superpixels of one photo, and its mask.

    Attributes
    ----------
    label : (n,) uint8 array
        Class code.
    weight : (n,) float32 array
        Training weight; 0 for superpixels that are mostly void.
    pixels : (n,) int64 array
        Area in pixels of the photo's own size.
    mask : (h, w) uint8 array
        Class code of each pixel, or VOID, at working size.
    flags : tuple of str
        Conditions worth knowing, such as an empty mask.
    objects : tuple of PhotoObject
        Annotated objects, if the mask is drawn from such.
    """

    label: NDArray[np.uint8]
    weight: NDArray[np.float32]
    pixels: NDArray[np.int64]
    mask: Codes
    flags: tuple[str, ...] = field(default=())
    objects: tuple[PhotoObject, ...] = ()


def label(
    described: PhotoFeatures, codes: Codes, n_classes: int, background: int | None = 0
) -> PhotoLabels:
    """Label each superpixel by the majority of its pixels in the mask.

    A superpixel that is mostly void has weight 0, and the majority of its other pixels as label.

    Parameters
    ----------
    described : PhotoFeatures
        The superpixels.
    codes : (height, width) uint8 array
        Class codes of the mask at the photo's own size.
    n_classes : int
        Number of classes.
    background : int or None, default 0
        A mask with this class only is flagged as empty.

    Returns
    -------
    PhotoLabels
    """
    return label_superpixels(described.segments, described.n, codes, n_classes, background)


def label_superpixels(
    segments: Segments, n: int, codes: Codes, n_classes: int, background: int | None = 0
) -> PhotoLabels:
    """As :func:`label`, of n superpixels by their map."""
    counts: Index = class_counts(segments, n, codes, n_classes)
    votes, void = counts[:, :-1], counts[:, -1]
    area = counts.sum(1)
    weight: Array = (2 * void < area).astype(np.float64)
    winner = votes.argmax(1)
    return PhotoLabels(
        winner.astype(np.uint8),
        weight.astype(np.float32),
        area.astype(np.int64),
        sample_codes(codes, *segments.shape),
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
