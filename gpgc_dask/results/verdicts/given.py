"""The given masks of a dataset, to compare others with."""

from __future__ import annotations

import threading

import numpy as np
import xarray as xr

from gpgc_dask.core.errors import GpgcError
from gpgc_dask.data.maps import map_chunks
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.imaging.photos import Orientation, read_orientation
from gpgc_dask.imaging.superpixels import sample_codes

__all__ = ["GivenMasks"]


class GivenMasks:
    """The masks that a dataset was made from, at the photos' own size where they are readable.

    Parameters
    ----------
    dataset : xarray.Dataset
        Opened without verdicts.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.paths = [str(path) for path in dataset["image_path"].values]
        self.sizes = np.stack([dataset[side].values for side in ("height", "width")], axis=1)
        self._lock, self._chunk = threading.Lock(), dict[int, Codes]()
        try:
            self._masks: DatasetMasks | None = DatasetMasks.from_dataset(dataset)
        except (GpgcError, OSError):  # the source of all masks is not there any more
            self._masks = None

    def orientation(self, photo: int) -> Orientation:
        """Size and orientation of a photo; upright, at its size at ingest, if it is gone."""
        height, width = (int(side) for side in self.sizes[photo])
        try:
            own = read_orientation(self.paths[photo])
        except (GpgcError, OSError):
            own = None
        if own is None or (own.height, own.width) != (height, width):
            return Orientation(height, width, (height, width))
        return own

    def equals(self, photo: int, codes: Codes) -> tuple[bool, bool]:
        """Whether a mask is as given, and whether that was compared at the photo's own size.

        Parameters
        ----------
        photo : int
            Number of the image.
        codes : (height, width) array of uint8
            Class codes of the mask.

        Returns
        -------
        same, whole : bool
            ``whole`` is False if the given mask cannot be read any more, or is not the one of the
            ingest any more: masks are then compared at working size, as the dataset has them.
        """
        working = self._working(photo)
        if not np.array_equal(sample_codes(codes, *working.shape), working):
            return False, True
        try:
            if self._masks is not None:
                given = self._masks.codes(photo, self.orientation(photo))
                if np.array_equal(sample_codes(given, *working.shape), working):
                    return bool(np.array_equal(given, codes)), True
        except (GpgcError, OSError):
            pass
        return True, False

    def _working(self, photo: int) -> Codes:
        """Mask at working size. The last chunk is kept: files are in the order of the images."""
        with self._lock:
            if photo not in self._chunk:
                size = int(self.dataset["mask"].data.chunksize[0])
                first = photo // size * size
                photos = np.arange(first, min(first + size, len(self.paths)))
                (chunk,) = map_chunks(self.dataset, ["mask"], photos)
                self._chunk = dict(chunk)
            return self._chunk[photo]
