"""Parts of a dataset: the rows of some photos, and which photos are the best by a score."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.execution.row_blocks import select_rows

__all__ = ["best_photos", "take_photos"]


def take_photos(dataset: xr.Dataset, photos: Index) -> xr.Dataset:
    """The dataset with the rows of some photos alone; photos keep their numbers."""
    wanted = np.zeros(dataset.sizes["photo"], dtype=bool)
    wanted[photos] = True
    keep = wanted[dataset["image"].values]
    rows = dataset.drop_vars("features").isel(superpixel=np.flatnonzero(keep))
    features = dataset["features"]
    chosen = xr.DataArray(select_rows(features.data, keep), dims=features.dims)
    return rows.assign(features=chosen)


def best_photos(score: Array, share: float) -> Index:
    """Numbers, sorted, of the share of photos with the highest score: at least one photo.

    Unknown (NaN) scores are the lowest; ties go to the photo that comes first, so that the best of
    a smaller share are among those of a larger one.
    """
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), kind="stable")
    return np.sort(order[: max(round(share * score.size), 1)])
