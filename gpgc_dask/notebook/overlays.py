"""Masks drawn on photos, in the colours of the report."""

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
"""Colours by index; 0 leaves the photo unchanged."""

EDGE = 0.95
"""Share of the colour of a region in the pixels of its border."""


def overlay(photo: Painted, kind: Kind, n_classes: int, background: int) -> Pixels:
    """Draw a mask on a photo, or the pixels where two masks differ.

    Parameters
    ----------
    photo : Painted
        The photo with its given and its predicted mask.
    kind : {"given", "predicted", "differ"}
        What to draw.
    n_classes : int
        Number of classes. With two classes, the second one is drawn.
    background : int
        Number of the class that is not drawn, -1 for none.

    Returns
    -------
    (height, width, 3) array of uint8
    """
    codes = _codes(photo, kind, n_classes, background)
    pixels = photo.pixels.astype(np.float32)
    if kind == "differ":
        pixels = np.repeat(0.75 * pixels.mean(2, keepdims=True), 3, axis=2)
    share = np.where(_edges(codes), EDGE, 0.65 if kind == "differ" else 0.4)
    share = np.where(codes > 0, share, 0.0)[:, :, None]
    mixed: Pixels = np.round((1 - share) * pixels + share * COLOURS[codes]).astype(np.uint8)
    return mixed


def _codes(photo: Painted, kind: Kind, n_classes: int, background: int) -> Index:
    """(height, width) index of the colour of each pixel."""
    given, predicted = photo.given.astype(np.intp), photo.predicted.astype(np.intp)
    if kind == "differ":
        apart = (given != predicted) & (given != VOID)
        return np.where(apart, np.where(given == 1, 1, 2) if n_classes == 2 else 3, 0)
    labels = given if kind == "given" else predicted
    if n_classes == 2:
        return np.where(labels == 1, 1 if kind == "given" else 2, 0)
    unpainted = (labels == background) | (labels == VOID)
    return np.where(unpainted, 0, 4 + labels % len(PALETTE))


def _edges(codes: Index) -> Mask:
    """(height, width) whether a pixel has a neighbour of another colour."""
    edges = np.zeros(codes.shape, dtype=bool)
    across, down = codes[:, 1:] != codes[:, :-1], codes[1:] != codes[:-1]
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    edges[1:] |= down
    edges[:-1] |= down
    return edges
