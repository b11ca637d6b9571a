"""The masks that a dataset was made from, read again at the photos' own size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from gpgc_dask.dataset import text_values
from gpgc_dask.imaging.coco import CocoMask, draw_mask, read_coco
from gpgc_dask.imaging.masks import Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation

__all__ = ["GivenMasks"]


class GivenMasks:
    """Where the masks of a dataset's photos are, and how they are read. Cheap to make.

    A COCO file is read at once; masks are read when they are asked for.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        source: Mapping[str, Any] = dataset.attrs["source"]
        self.format = MaskFormat.of_json(source["mask_format"])
        self.places: list[str | CocoMask | None] = []
        if "coco" not in source:
            self.places = text_values(dataset["mask_path"]).tolist()
            return
        names = text_values(dataset["image_name"]).tolist()
        _, drawn = read_coco(
            source["images"], source["coco"], source["categories"], with_empty=True
        )
        self.places = [drawn.get(name) for name in names]

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """(height, width) class codes of the mask of a photo, given how its file lies.

        An InputError, or an OSError, where it cannot be read any more.
        """
        place = self.places[photo]
        if place is None:
            raise FileNotFoundError("the COCO file no longer names this photo")
        if isinstance(place, CocoMask):
            return draw_mask(place, orientation)
        return read_mask(place, self.format, orientation)
