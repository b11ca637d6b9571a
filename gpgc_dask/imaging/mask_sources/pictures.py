"""Masks in pictures whose pixels are ids of segments or numbers of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.masks import VOID, Codes, check_size, make_upright
from gpgc_dask.imaging.objects import PhotoObject, make_object
from gpgc_dask.imaging.photos import Orientation, decoding, open_image

__all__ = ["Ids", "Segment", "pack_colours", "pick_codes", "read_picture", "segment_objects"]

Ids = NDArray[np.int64]
"""(height, width) id of the segment of each pixel."""


def pack_colours(colours: NDArray[np.uint8]) -> Ids:
    """Colours (…, 3) as one number each: R + 256 G + 65,536 B."""
    return colours.astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])


def read_picture(path: str, convert: Callable[..., Ids], orientation: Orientation) -> Ids:
    """Read a picture of a photo's size, upright.

    Parameters
    ----------
    path : str
        The picture.
    convert : callable
        From the opened PIL image to its ids.
    orientation : Orientation
        Size and orientation of the photo.
    """
    try:
        with open_image(path) as image, decoding(path):
            check_size(image.size[::-1], orientation)
            ids = convert(image)
    except UnusableFileError as error:
        text = str(error)
        raise UnusableFileError(
            text if text.startswith("mask") else f"mask {path}: {text}"
        ) from None
    return make_upright(ids, orientation)


def pick_codes(ids: Ids, codes: dict[int, int], path: str, meaning: str) -> Codes:
    """Class codes of ids; an UnusableFileError names the ids that have none.

    Parameters
    ----------
    ids : (height, width) array of int
        Ids of a picture.
    codes : dict
        {id: class code or VOID}.
    path, meaning : str
        The picture and what an id is, for the message.
    """
    present, inverse = np.unique(ids, return_inverse=True)
    unknown = [number for number in present.tolist() if number not in codes]
    if unknown:
        listed = ", ".join(map(str, unknown[:5])) + (", …" if len(unknown) > 5 else "")
        raise UnusableFileError(f"mask {path} has {meaning} {listed}")
    table = np.array([codes[number] for number in present.tolist()], dtype=np.uint8)
    return table[inverse.reshape(ids.shape)]


@dataclass(frozen=True)
class Segment:
    """A segment of a picture that is an object."""

    id: str
    number: int
    code: int
    crowd: bool = False


def segment_objects(
    ids: Ids, segments: list[Segment], height: int, width: int
) -> list[PhotoObject]:
    """The segments as objects, with their regions at a working size."""
    objects = []
    for one in segments:
        inside = np.ascontiguousarray(ids == one.number)
        if one.code != VOID and inside.any():
            size = (height, width)
            objects.append(make_object(one.id, one.code, crowd=one.crowd, inside=inside, size=size))
    return objects
