"""Annotated objects of one photo: what a dataset keeps of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Mask as Pixels
from gpgc_dask.data.run_lengths import encode
from gpgc_dask.imaging.superpixels import sample_codes

__all__ = ["PhotoObject", "make_object"]


@dataclass(frozen=True)
class PhotoObject:
    """An annotated object.

    Attributes
    ----------
    id : str
        The annotation's id in its source; "" if it has none.
    code : int
        Number of its class.
    crowd : bool
        Whether it stands for a group of objects.
    area : float
        Share of the photo, with the pixels that other objects hide.
    box : tuple of float
        Left, top, width and height in pixels of the upright photo.
    counts : str
        Its pixels at working size: see :mod:`gpgc_dask.data.run_lengths`.
    """

    id: str
    code: int
    crowd: bool
    area: float
    box: tuple[float, float, float, float]
    counts: str


def make_object(
    annotation: str, code: int, *, crowd: bool, inside: Pixels, size: tuple[int, int]
) -> PhotoObject:
    """Describe an object.

    Parameters
    ----------
    annotation : str
        Its id.
    code : int
        Number of its class.
    crowd : bool
        Whether it is a group of objects.
    inside : (height, width) array of bool
        Its pixels, in the upright photo at its own size.
    size : tuple of int
        Height and width of the working size.
    """
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    box = (0.0, 0.0, 0.0, 0.0)
    if rows.size:
        top, left = float(rows[0]), float(columns[0])
        box = (left, top, float(columns[-1] + 1 - left), float(rows[-1] + 1 - top))
    reduced = sample_codes(inside.view(np.uint8), *size).view(bool)
    return PhotoObject(annotation, code, crowd, float(inside.mean()), box, encode(reduced))
