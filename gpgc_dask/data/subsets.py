"""Subsets of a dataset: the rows of some photos, and the photos with the best scores."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.execution.row_blocks import select_rows

__all__ = ["best_photos", "take_photos"]


def take_photos(dataset: xr.Dataset, photos: Index) -> xr.Dataset:
    """Select the rows of some photos; photos keep their numbers.

    Parameters
    ----------
    dataset : xarray.Dataset
        The whole dataset.
    photos : (n,) array of int
        Numbers of the photos along ``photo``.
    """
    wanted = np.zeros(dataset.sizes["photo"], dtype=bool)
    wanted[photos] = True
    keep = wanted[dataset["image"].values]
    rows = dataset.drop_vars("features").isel(superpixel=np.flatnonzero(keep))
    features = dataset["features"]
    chosen = xr.DataArray(select_rows(features.data, keep), dims=features.dims)
    return rows.assign(features=chosen)


def best_photos(score: Array, share: float) -> Index:
    """Select the share of photos with the highest scores: at least one photo.

    Unknown (NaN) scores are the lowest; of equal scores the first photo is taken, so that the
    photos of a smaller share are among those of a larger one.

    Parameters
    ----------
    score : (photos,) array
        Scores of the photos.
    share : float
        Share of the photos to select, above 0 and up to 1.

    Returns
    -------
    (n,) array of int
        Numbers of the photos, sorted.
    """
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), kind="stable")
    return np.sort(order[: max(round(share * score.size), 1)])
