"""Which values of a photo's file are used, and how they become RGB of 8 bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.stored import reading_stored

__all__ = ["STRETCHES", "PhotoFormat", "stored_format"]

STRETCHES = ("dataset", "image", "none")

MIN_TILE, MAX_TILE = 64, 8192


@dataclass(frozen=True)
class PhotoFormat:
    """How photos become RGB of 8 bits. Photos of 8 bits are used as they are.

    Parameters
    ----------
    stretch : str or (float, float), default "dataset"
        What becomes black and white in photos of 16 bits, 32 bits or floats: percentiles 0.1 and
        99.9 of a sample of the "dataset", or of each "image"; the full scale of the type ("none");
        or two values, such as (0, 4095).
    bands : sequence of int, optional
        Numbers, from 1, of three bands that are used as red, green and blue, or of one as grey. By
        default the first three, or the first.
    page : int, default 1
        Number of the page that is used of files with several pages of one size.
    tile : int, default 0
        Longest side in pixels of the tiles into which larger photos are cut; 0 if they are not.
    overlap : int, default 0
        Pixels that neighbouring tiles share.
    levels : (float, float), optional
        The values that the percentiles of the dataset have turned out to be; measured at ingest.
        While they are None, those of each image are used.

    Examples
    --------
    >>> from gpgc_dask import PhotoFormat, Recipe
    >>> Recipe(backbone="colour", photos=PhotoFormat(stretch=(0, 4095))).photos.stretch
    (0.0, 4095.0)
    """

    stretch: str | tuple[float, float] = "dataset"
    bands: tuple[int, ...] = ()
    page: int = 1
    tile: int = 0
    overlap: int = 0
    levels: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stretch, str):
            object.__setattr__(self, "stretch", _to_levels(self.stretch))
        elif self.stretch not in STRETCHES:
            raise InputError(
                f"stretch must be {', '.join(STRETCHES)} or two numbers such as 0,4095, got "
                f"{self.stretch!r}"
            )
        bands = tuple(self.bands)
        if len(bands) not in (0, 1, 3) or not all(type(n) is int and n >= 1 for n in bands):
            raise InputError(
                f"bands must be one or three numbers from 1, such as 3,2,1, got {bands!r}"
            )
        object.__setattr__(self, "bands", bands)
        if type(self.page) is not int or self.page < 1:
            raise InputError(f"page must be a number from 1, got {self.page!r}")
        self._check_tiles()
        if self.levels is not None:
            object.__setattr__(self, "levels", _to_levels(self.levels))

    def _check_tiles(self) -> None:
        if type(self.tile) is not int or not (self.tile == 0 or MIN_TILE <= self.tile <= MAX_TILE):
            raise InputError(f"tile must be {MIN_TILE} to {MAX_TILE} pixels, got {self.tile!r}")
        if type(self.overlap) is not int or not 0 <= self.overlap <= self.tile // 2:
            raise InputError(
                f"overlap must be 0 to half of tile, {self.tile // 2}, got {self.overlap!r}"
            )
        if self.tile and self.stretch == "image":
            raise InputError(
                "tiles of a scene must be stretched alike: choose the stretch dataset, none or "
                "two values (--stretch)"
            )

    @property
    def fixed_levels(self) -> tuple[float, float] | None:
        """Values that become black and white in all photos; None if each photo has its own."""
        return self.levels if isinstance(self.stretch, str) else self.stretch

    def to_json(self) -> dict[str, Any]:
        """All parameters as JSON has them."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PhotoFormat:
        """Restore the format from a dataset's provenance."""
        with reading_stored("format of the photos"):
            arguments: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in stored.items()
            }
            return cls(**arguments)


def stored_format(attributes: Mapping[str, Any]) -> PhotoFormat:
    """The format of the photos of a dataset, by its attributes."""
    return PhotoFormat.from_json(attributes.get("recipe", {}).get("photos", {}))


def _to_levels(values: Any) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in values)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"stretch must be two numbers in ascending order, got {values!r}")
    return low, high
