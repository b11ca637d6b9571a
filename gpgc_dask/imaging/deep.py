"""Photos of more than 8 bits: their values, and what of them becomes black and white."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.imaging.photo_format import PhotoFormat

__all__ = ["PERCENTILES", "Values", "find_levels", "has_data", "sample_values", "to_rgb"]

PERCENTILES = (0.1, 99.9)
"""Percentiles of the values that become black and white."""

SAMPLE_SIDE = 512
"""Levels are computed from at most this many rows and columns of a photo, evenly spread."""

STRIP_VALUES = 1 << 20
"""Values converted together: photos may be huge."""


@dataclass(frozen=True)
class Values:
    """Values of a photo as its file has them.

    Attributes
    ----------
    array : (h, w, bands) array
        Integers or floats, upright. One band is grey, three are red, green and blue.
    full_scale : float
        The value that is white unless the photo is stretched.
    alpha : (h, w) array or None
        Opacity, in the type of ``array`` or another one; full scale is opaque.
    missing : float or None
        The value that stands for "no data".
    inverted : bool
        Whether 0 is white.
    """

    array: NDArray[Any]
    full_scale: float
    alpha: NDArray[Any] | None = None
    missing: float | None = None
    inverted: bool = False

    @property
    def is_deep(self) -> bool:
        """Whether there are more than 8 bits per value."""
        return self.array.dtype.itemsize > 1


def full_scale(dtype: np.dtype[Any]) -> float:
    """The value that a type can hold at most; 1 for floats."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def sample_values(values: Values) -> NDArray[np.float64]:
    """Finite values, (n,), of evenly spread pixels of a photo."""
    height, width = values.array.shape[:2]
    rows, columns = (-(-size // SAMPLE_SIDE) for size in (height, width))
    chosen = values.array[rows // 2 :: rows, columns // 2 :: columns].astype(np.float64).ravel()
    chosen = chosen[np.isfinite(chosen)]
    return chosen if values.missing is None else chosen[chosen != values.missing]


def has_data(values: Values) -> bool:
    """Whether any value is there: not missing, NaN or infinite."""
    array, known = values.array, values.missing is None and values.array.dtype.kind != "f"
    step = max(STRIP_VALUES // max(array[0].size, 1), 1)
    return known or any(
        np.any(np.isfinite(rows) & (rows != values.missing))
        for rows in (array[top : top + step] for top in range(0, len(array), step))
    )


def find_levels(sample: NDArray[np.float64]) -> tuple[float, float]:
    """Values that become black and white: percentiles of a sample."""
    low, high = np.percentile(sample, PERCENTILES).tolist()
    return (low, high) if low < high else (low, low + 1.0)


def to_rgb(values: Values, photo_format: PhotoFormat) -> NDArray[np.uint8]:
    """Convert values to 8 bits.

    Missing values are black, and transparent pixels white.

    Parameters
    ----------
    values : Values
        Values of one photo.
    photo_format : PhotoFormat
        How they are stretched.

    Returns
    -------
    (h, w, 3) uint8 array
    """
    levels = _levels(values, photo_format)
    array = values.array
    result = np.empty((*array.shape[:2], 3), dtype=np.uint8)
    step = max(STRIP_VALUES // max(array[0].size, 1), 1)
    for top in range(0, len(array), step):
        own = slice(top, top + step)
        part = _scale(array[own].astype(np.float64), levels, values)
        if values.alpha is not None:
            part = _lay_on_white(part, values.alpha[own])
        result[own] = np.rint(part)
    return result


def _levels(values: Values, photo_format: PhotoFormat) -> tuple[float, float]:
    if not values.is_deep:
        return 0.0, values.full_scale
    fixed = photo_format.fixed_levels
    if fixed is not None and photo_format.stretch != "none":
        return fixed
    sample = sample_values(values)
    if photo_format.stretch == "none" or not sample.size:
        return 0.0, values.full_scale
    return find_levels(sample)


def _scale(
    part: NDArray[np.float64], levels: tuple[float, float], values: Values
) -> NDArray[np.float64]:
    """Scale to 0 … 255."""
    low, high = levels
    lost = ~np.isfinite(part).any(2) if values.array.dtype.kind == "f" else None
    if values.missing is not None:
        nothing = (part == values.missing).all(2)
        lost = nothing if lost is None else lost | nothing
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.clip((part - low) * (255.0 / (high - low)), 0.0, 255.0)
    scaled = 255.0 - scaled if values.inverted else scaled
    scaled = np.nan_to_num(scaled, copy=False, nan=0.0)
    if lost is not None:
        scaled[lost] = 0.0
    return scaled


def _lay_on_white(part: NDArray[np.float64], alpha: NDArray[Any]) -> NDArray[np.float64]:
    share = (alpha / full_scale(alpha.dtype))[..., None]
    return part * share + 255.0 * (1.0 - share)
