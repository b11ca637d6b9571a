"""Masks that a page has painted: run lengths of class codes, and their way to the photo's size."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpgc_dask.core.arrays import nearest_rows
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.maps import Codes
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.superpixels import sample_codes

__all__ = ["apply_edits", "decode_runs", "encode_runs"]


def encode_runs(codes: Codes) -> list[int]:
    """Run lengths of a mask: code, pixels, code, pixels, …, row by row from the top left.

    Examples
    --------
    >>> encode_runs(np.array([[0, 0, 1], [1, 1, 255]], dtype=np.uint8))
    [0, 2, 1, 3, 255, 1]
    """
    flat = codes.ravel()
    starts = np.flatnonzero(np.diff(flat, prepend=flat[:1] ^ 1))
    lengths = np.diff(starts, append=flat.size)
    return np.stack([flat[starts], lengths], axis=1).ravel().tolist()


def decode_runs(runs: Any, height: int, width: int, n_classes: int) -> Codes:
    """Decode the run lengths of a mask.

    Parameters
    ----------
    runs : list of int
        See :func:`encode_runs`. It comes from a page, and may be anything.
    height, width : int
        Size of the mask.
    n_classes : int
        Codes are 0 … n_classes − 1, or 255 for void.

    Returns
    -------
    (height, width) array of uint8

    Raises
    ------
    InputError
        If it is not a mask of this size and of these classes.
    """
    size = height * width
    if not isinstance(runs, list) or not runs or len(runs) % 2 or len(runs) > 2 * size:
        raise InputError("the mask is not a list of run lengths: code, pixels, code, pixels, …")
    if not all(type(value) is int and 0 <= value <= size + VOID for value in runs):
        raise InputError("the mask has run lengths that are not whole numbers in range")
    pairs = np.array(runs, dtype=np.int64).reshape(-1, 2)
    if pairs[:, 1].sum() != size:  # before the memory is used
        raise InputError(f"the mask has {pairs[:, 1].sum():,} pixels, and the picture {size:,}")
    codes = pairs[:, 0]
    if np.any((codes >= n_classes) & (codes != VOID)):
        raise InputError(f"the mask has class {codes.max()}, and the dataset has {n_classes}")
    return np.repeat(codes.astype(np.uint8), pairs[:, 1]).reshape(height, width)


def apply_edits(given: Codes, edited: Codes) -> Codes:
    """Apply what was painted in a picture to the mask at the photo's own size.

    Pixels that were not changed in the picture keep the given mask in full resolution; the others
    are enlarged by nearest neighbour.

    Parameters
    ----------
    given : (H, W) array of uint8
        The mask at the photo's own size.
    edited : (h, w) array of uint8
        The mask of the picture, which may be smaller, after the edits.

    Returns
    -------
    (H, W) array of uint8
        Sampled at the size of the picture, it is ``edited``.
    """
    changed = sample_codes(given, *edited.shape) != edited
    rows = nearest_rows(given.shape[0], edited.shape[0])[:, None]
    columns = nearest_rows(given.shape[1], edited.shape[1])
    return np.where(changed[rows, columns], edited[rows, columns], given)
