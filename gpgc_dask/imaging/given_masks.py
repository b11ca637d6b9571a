"""The masks that a dataset was made from, read again at the photos' own size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import xarray as xr

from gpgc_dask.core.errors import MissingFileError
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.coco import CocoMask, draw_mask, read_coco
from gpgc_dask.imaging.masks import Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation

__all__ = ["GivenMasks"]


class GivenMasks:
    """Where the masks of a dataset's photos are, and how they are read. Cheap to make.

    A COCO file is read at once; masks are read when they are asked for.
    """

    def __init__(
        self, source: Mapping[str, Any], names: Sequence[str], mask_paths: Sequence[str]
    ) -> None:
        """``source`` as a dataset or its model has it;  names, mask_paths : of the photos."""
        self.format = MaskFormat.of_json(source["mask_format"])
        self.places: list[str | CocoMask | None] = list(mask_paths)
        if "coco" in source:
            _, drawn = read_coco(
                source["images"], source["coco"], source["categories"], with_empty=True
            )
            self.places = [drawn.get(name) for name in names]

    @classmethod
    def of(cls, dataset: xr.Dataset) -> Self:
        names, paths = (text_values(dataset[name]).tolist() for name in ("image_name", "mask_path"))
        return cls(dataset.attrs["source"], names, paths)

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """(height, width) class codes of the mask of a photo, given how its file lies.

        An UnusableFileError, or an OSError, where it cannot be read any more.
        """
        place = self.places[photo]
        if place is None:
            raise MissingFileError("the COCO file no longer names this photo")
        if isinstance(place, CocoMask):
            return draw_mask(place, orientation)
        return read_mask(place, self.format, orientation)
