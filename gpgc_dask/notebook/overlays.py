"""Masks drawn on photos, in the colours of the report."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.photos import Pixels
from gpgc_dask.results.colours import KIND_COLOURS, class_colours
from gpgc_dask.results.pictures import Painted

__all__ = ["Kind", "overlay"]

Kind = Literal["given", "predicted", "differ"]

EDGE, OBJECT, CLASS, DIFFERENCE = 0.95, 0.4, 0.5, 0.65
"""Share of the colour in the pixels of a border, of the object of two classes, of one of several
classes, and of a difference."""

HATCH, HATCH_PERIOD, HATCH_WIDTH = (150, 150, 150), 6, 2
"""Void is hatched in grey."""

STRIPE_PERIOD = 8
"""A wrong class is striped in the colours of the given and the predicted class."""

NOTHING, MISSING, SPURIOUS, HATCHED, CLASSES = 0, 1, 2, 3, 4
"""What a pixel shows; class c is CLASSES + c. A wrong class is (given + 1)·BASE + CLASSES + c."""

BASE = 1024


def overlay(photo: Painted, kind: Kind, n_classes: int, background: int) -> Pixels:
    """Draw a mask on a photo, or the pixels where two masks differ.

    Parameters
    ----------
    photo : Painted
        The photo with its given and its predicted mask.
    kind : {"given", "predicted", "differ"}
        What to draw. Differences are missing (only the prediction has an object), spurious (only
        the given mask has one), or a wrong class.
    n_classes : int
        Number of classes. Of two classes the second one is drawn, of more all of them.
    background : int
        Number of the class without objects, -1 for none.

    Returns
    -------
    (height, width, 3) array of uint8
    """
    codes = _codes(photo, kind, n_classes, background)
    pixels = photo.pixels.astype(np.float32)
    if kind == "differ":
        pixels = np.repeat(0.75 * pixels.mean(2, keepdims=True), 3, axis=2)
    diagonal = np.add.outer(np.arange(codes.shape[0]), np.arange(codes.shape[1]))
    colours = _colours(codes, diagonal, class_colours(n_classes, background))
    inside = DIFFERENCE if kind == "differ" else OBJECT if n_classes == 2 else CLASS
    share = np.where(_edges(codes), EDGE, inside)
    hatched = np.where(diagonal % HATCH_PERIOD < HATCH_WIDTH, DIFFERENCE, 0.0)
    share = np.where(codes == HATCHED, hatched, np.where(codes == NOTHING, 0.0, share))[:, :, None]
    mixed: Pixels = np.round((1 - share) * pixels + share * colours).astype(np.uint8)
    return mixed


def _codes(photo: Painted, kind: Kind, n_classes: int, background: int) -> Index:
    """(height, width) what each pixel shows."""
    given, predicted = photo.given.astype(np.intp), photo.predicted.astype(np.intp)
    background = 0 if n_classes == 2 else background
    void = given == VOID
    if kind == "differ":
        wrong = BASE * (given + 1) + CLASSES + predicted
        codes = np.where(predicted == background, SPURIOUS, wrong)
        codes = np.where(given == background, MISSING, codes)
        codes = np.where(given == predicted, NOTHING, codes)
    elif n_classes == 2:
        labels, shown = (given, SPURIOUS) if kind == "given" else (predicted, MISSING)
        codes = np.where(labels == 1, shown, NOTHING)
    else:
        codes = CLASSES + (given if kind == "given" else predicted)
    return codes if kind == "predicted" else np.where(void, HATCHED, codes)


def _colours(codes: Index, diagonal: Index, classes: tuple[tuple[int, int, int], ...]) -> Array:
    """(height, width, 3) colour of each pixel."""
    table = np.array(
        [(0, 0, 0), KIND_COLOURS["missing"], KIND_COLOURS["spurious"], HATCH, *classes],
        dtype=np.float64,
    )
    given, shown = codes // BASE - 1 + CLASSES, codes % BASE
    striped = (codes >= BASE) & (diagonal % STRIPE_PERIOD < STRIPE_PERIOD // 2)
    colours: Array = table[np.where(striped, given, shown)]
    return colours


def _edges(codes: Index) -> Mask:
    """(height, width) whether a pixel has a neighbour that shows something else."""
    edges = np.zeros(codes.shape, dtype=bool)
    across, down = codes[:, 1:] != codes[:, :-1], codes[1:] != codes[:-1]
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    edges[1:] |= down
    edges[:-1] |= down
    return edges
