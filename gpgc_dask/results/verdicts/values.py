"""Values in which corrected masks are stored as pictures, so that they can be read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpgc_dask.core.arrays import Labels
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat

__all__ = ["mask_folder", "storage_format", "to_values"]

VOID_VALUES = (255, 128, *range(254, 0, -1))
"""Values for void pixels of a dataset whose masks have none, in the order of preference."""


def storage_format(fmt: MaskFormat) -> MaskFormat:
    """The format of a dataset's masks, with a value for void pixels."""
    if fmt.void:
        return fmt
    used = {*_class_values(fmt)}
    return replace(fmt, void=(next(value for value in VOID_VALUES if value not in used),))


def to_values(codes: Codes, fmt: MaskFormat) -> Labels:
    """Class codes as mask values that :func:`storage_format` reads back.

    Parameters
    ----------
    codes : (height, width) array of uint8
        Class codes, or VOID.
    fmt : MaskFormat
        Format of the dataset's masks.

    Returns
    -------
    (height, width) array of uint8 or uint16
    """
    values = _class_values(fmt)
    (void, *_) = storage_format(fmt).void
    dtype = np.uint8 if max(*values, void) < 256 else np.uint16
    table = np.zeros(VOID + 1, dtype=dtype)
    table[: len(values)] = values
    table[VOID] = void
    return table[codes]


def _class_values(fmt: MaskFormat) -> tuple[int, ...]:
    """A value of each class, as the masks have it that the dataset was made from."""
    if fmt.classes:
        return fmt.values
    void = set(fmt.void)
    background = next(value for value in range(256) if value not in {*fmt.foreground, *void})
    if fmt.foreground:
        return background, fmt.foreground[0]
    return background, next(value for value in range(255, 0, -1) if value not in void)


def mask_folder(path: Path) -> Path:
    """Folder of the corrected masks that belong to a CSV file."""
    return path.with_suffix("")
