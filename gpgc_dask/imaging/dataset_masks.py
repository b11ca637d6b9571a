"""The masks that a dataset was made from, read again at the photos' own size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import xarray as xr

from gpgc_dask.core.errors import MissingFileError
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.masks import Codes, MaskFormat
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.imaging.scene_masks import restore_masks

__all__ = ["DatasetMasks"]


class DatasetMasks:
    """The masks of a dataset's photos. Each is read when it is needed.

    Parameters
    ----------
    source : mapping
        Provenance of the masks, as a dataset or its model has it (``attrs["source"]``).
    names, mask_paths : sequence of str
        Name of each photo, and the path of its mask.
    """

    def __init__(
        self, source: Mapping[str, Any], names: Sequence[str], mask_paths: Sequence[str]
    ) -> None:
        self.format = MaskFormat.from_json(source["mask_format"])
        self.masks = restore_masks(source, names, mask_paths)

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Self:
        """The masks of all photos of a dataset."""
        names, paths = (text_values(dataset[name]).tolist() for name in ("image_name", "mask_path"))
        return cls(dataset.attrs["source"], names, paths)

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """Read a mask.

        Parameters
        ----------
        photo : int
            Number of the photo.
        orientation : Orientation
            Size and orientation of the photo's file.

        Returns
        -------
        (height, width) uint8 array
            Class codes.

        Raises
        ------
        UnusableFileError, OSError
            If the mask can no longer be read.
        """
        mask = self.masks[photo]
        if mask is None:
            raise MissingFileError("the source of the masks no longer contains this photo")
        return mask.read(orientation)
