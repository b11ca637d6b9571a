"""Masks laid over photos, in the colours of the report."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpgc_dask.core.arrays import Index, Mask
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.photos import Pixels
from gpgc_dask.results.pictures import Painted

__all__ = ["Kind", "overlay"]

Kind = Literal["given", "predicted", "differ"]

GIVEN, PREDICTED, DIFFER = (255, 140, 0), (0, 163, 224), (255, 43, 214)
PALETTE = (
    (240, 228, 66), (255, 140, 0), (0, 163, 224), (80, 200, 120), (200, 80, 200), (240, 220, 60),
    (120, 120, 255), (255, 110, 110), (0, 200, 190), (170, 120, 60), (150, 200, 60),
    (255, 150, 220),
)  # fmt: skip
COLOURS = np.array([(0, 0, 0), GIVEN, PREDICTED, DIFFER, *PALETTE], dtype=np.float32)
"""0 leaves the photo as it is."""

EDGE = 0.95
"""How much of a pixel on the border of a region is the region's colour."""


def overlay(one: Painted, kind: Kind, n_classes: int, background: int) -> Pixels:
    """(h, w, 3) the photo with one of its masks, or with where the two differ.

    background : number of the class that is not painted, -1 for none; of two classes, the second
        one is painted
    """
    codes = _codes(one, kind, n_classes, background)
    photo = one.pixels.astype(np.float32)
    if kind == "differ":
        photo = np.repeat(0.75 * photo.mean(2, keepdims=True), 3, axis=2)
    share = np.where(_edges(codes), EDGE, 0.65 if kind == "differ" else 0.4)
    share = np.where(codes > 0, share, 0.0)[:, :, None]
    mixed: Pixels = np.round((1 - share) * photo + share * COLOURS[codes]).astype(np.uint8)
    return mixed


def _codes(one: Painted, kind: Kind, n_classes: int, background: int) -> Index:
    """(h, w) the colour of each pixel."""
    given, predicted = one.given.astype(np.intp), one.predicted.astype(np.intp)
    if kind == "differ":
        apart = (given != predicted) & (given != VOID)
        return np.where(apart, np.where(given == 1, 1, 2) if n_classes == 2 else 3, 0)
    labels = given if kind == "given" else predicted
    if n_classes == 2:
        return np.where(labels == 1, 1 if kind == "given" else 2, 0)
    unpainted = (labels == background) | (labels == VOID)
    return np.where(unpainted, 0, 4 + labels % len(PALETTE))


def _edges(codes: Index) -> Mask:
    """Pixels with a neighbour of another colour."""
    found = np.zeros(codes.shape, dtype=bool)
    across, down = codes[:, 1:] != codes[:, :-1], codes[1:] != codes[:-1]
    found[:, 1:] |= across
    found[:, :-1] |= across
    found[1:] |= down
    found[:-1] |= down
    return found
