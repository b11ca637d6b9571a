"""Corrected masks of a dataset's photos: what a verdict keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.errors import InputError
from gpgc_dask.data.maps import Segments, map_chunks
from gpgc_dask.data.schema import VOID
from gpgc_dask.data.verdicts import Correction
from gpgc_dask.imaging.features import label_superpixels
from gpgc_dask.imaging.masks import MaskFormat

__all__ = ["make_correction"]


def make_correction(
    dataset: xr.Dataset, photo: int, codes: Any, segments: Segments | None = None
) -> Correction:
    """Derive labels and weights of the superpixels from a corrected mask, as an ingest does.

    Parameters
    ----------
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`.
    photo : int
        Number of the image along ``photo``.
    codes : (H, W) array of uint8
        Class codes, 0 … classes − 1, at the photo's own size, upright; 255 is void.
    segments : (h, w) array of uint16, optional
        Superpixel of each pixel at working size, if it has been read already.

    Returns
    -------
    Correction

    Raises
    ------
    InputError
        If size or classes are not those of the image.
    """
    name = dataset["image_name"].values[photo]
    codes = np.asarray(codes)
    size = tuple(int(dataset[side].values[photo]) for side in ("height", "width"))
    if codes.shape != size:
        raise InputError(
            f"the corrected mask of {name} has {' × '.join(map(str, codes.shape[::-1]))} pixels, "
            f"and the photo {size[1]} × {size[0]}: save it at the size of the photo"
        )
    n_classes = len(dataset.attrs["classes"])
    unknown = sorted({*np.unique(codes).tolist()} - {*range(n_classes), VOID})
    if unknown:
        raise InputError(
            f"the corrected mask of {name} has class {unknown[0]}, and the dataset has "
            f"{n_classes}: {', '.join(map(str, dataset.attrs['classes']))}"
        )
    codes = codes.astype(np.uint8)
    if segments is None:
        (((_, segments),),) = map_chunks(dataset, ["segments"], np.array([photo]))
    background = MaskFormat.from_json(dataset.attrs["source"]["mask_format"]).background
    labels = label_superpixels(segments, int(segments.max()) + 1, codes, n_classes, background)
    return Correction(codes, labels.mask, labels.label, labels.weight, ";".join(labels.flags))
