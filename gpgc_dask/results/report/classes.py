"""Classes on the page: how good each is, which are confused, and in which images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Index, group_sums
from gpgc_dask.data.training import training_arrays
from gpgc_dask.models.review import CLASS_IOU

__all__ = ["class_table", "image_confusions"]

MIN_SHARE = 0.002
"""A confusion that covers a smaller share of an image is left out."""

MAX_PAIRS = 12
"""Number of confusions per image, the largest."""

BAD_IOU = 0.5


def image_confusions(dataset: xr.Dataset, predicted: Index, place: Index) -> dict[str, list[int]]:
    """Which classes are confused in which images.

    Parameters
    ----------
    dataset : xarray.Dataset
    predicted : (N,) array of int
        Predicted class of each superpixel, by a model that never saw the image.
    place : (images,) array of int
        Place of each image in the ranking.

    Returns
    -------
    dict
        Columns ``image`` (its place), ``pair`` (given class · number of classes + predicted class)
        and ``share`` of the labelled pixels of the image in thousandths, at least 1. By image, the
        largest share first: those of at least 0.2 %, at most 12 per image, and for each pair the
        image with its largest share in any case.
    """
    arrays = training_arrays(dataset)
    n_classes, n_images = len(dataset.attrs["classes"]), place.size
    image = np.asarray(arrays.groups.codes, dtype=np.int64)
    used = arrays.weight > 0
    total = group_sums(image[used], arrays.area[used], n_images)
    used &= arrays.y != predicted
    pair = arrays.y[used].astype(np.int64) * n_classes + predicted[used]
    keys, inverse = np.unique(image[used] * n_classes**2 + pair, return_inverse=True)
    image, pair = np.divmod(keys, n_classes**2)
    share = group_sums(inverse, arrays.area[used], keys.size) / np.maximum(total[image], 1)
    where = place[image]
    order = np.lexsort((-share, where))
    where, pair, share = where[order], pair[order], share[order]
    position = np.arange(where.size) - np.searchsorted(where, where)
    kept = (share >= MIN_SHARE) & (position < MAX_PAIRS)
    largest = np.lexsort((-share, pair))
    first = np.unique(pair[largest], return_index=True)[1]
    kept[largest[first]] = True
    thousandths = np.maximum(np.rint(1000 * share[kept]), 1).astype(int)
    return {
        "image": where[kept].tolist(),
        "pair": pair[kept].tolist(),
        "share": thousandths.tolist(),
    }


def class_table(ranking: pd.DataFrame, confusion: dict[str, Any]) -> list[dict[str, Any]]:
    """Quality of each class.

    Parameters
    ----------
    ranking : pandas.DataFrame
        With a column ``iou:CLASS`` for each class.
    confusion : dict
        As :func:`gpgc_dask.results.ranking.confusion` returns it.

    Returns
    -------
    list of dict
        For each class its ``name``, ``share`` of the labelled pixels, number of ``images`` that
        contain it in mask or prediction, ``iou`` over all pixels, ``mean_iou`` of the images,
        number of images ``below`` an IoU of 0.5, and ``confused``: name and share of the class
        that most of its other pixels are predicted as, or None.
    """
    pixels = np.array(confusion["pixels"], dtype=np.float64)
    rows = []
    for index, name in enumerate(confusion["classes"]):
        given, both = pixels[index].sum(), pixels[index, index]
        union = given + pixels[:, index].sum() - both
        values = ranking[CLASS_IOU + name].dropna()
        others = np.where(np.arange(len(pixels)) == index, 0.0, pixels[index])
        worst = int(others.argmax())
        rows.append(
            {
                "name": name,
                "share": given / max(pixels.sum(), 1.0),
                "images": len(values),
                "iou": both / union if union else None,
                "mean_iou": float(values.mean()) if len(values) else None,
                "below": int((values < BAD_IOU).sum()),
                "confused": (confusion["classes"][worst], others[worst] / given)
                if others[worst]
                else None,
            }
        )
    return rows
