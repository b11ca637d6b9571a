"""The arrays that an estimator takes from a dataset."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Index, Labels, Mask
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.data.dataset import is_dataset, text_values

__all__ = ["TrainingArrays", "input_arrays", "training_arrays"]


NO_IMAGES = np.empty(0, dtype=np.str_)

TRUSTED = ("confirmed", "corrected")
"""Verdicts after which the labels of an image are taken to be right."""


@dataclass(frozen=True)
class TrainingArrays:
    """Rows of a dataset as an estimator takes them.

    Attributes
    ----------
    X : (N, k) dask array
        Features.
    y : (N,) array
        Numbers of the classes.
    groups : (N,) pandas.Categorical
        Names of the images.
    feature_groups : (k,) array
        Columns of one name share a prior scale.
    weight : (N,) array
        Training weights; 0 where the mask is mostly void.
    area : (N,) array
        Pixels of the superpixels.
    place : (N,) array or None
        Numbers of the rows in the dataset; None if these are all rows.
    together : (N,) pandas.Categorical or None
        Rows of one label are left out together; None if these are the groups.
    trusted, rejected : arrays of str
        Names of the images whose masks a person has confirmed or corrected, and rejected.
    """

    X: Any
    y: Labels
    groups: Any
    feature_groups: Labels
    weight: Array
    area: Array
    place: Index | None = None
    together: Any = None
    trusted: Labels = field(default_factory=lambda: NO_IMAGES)
    rejected: Labels = field(default_factory=lambda: NO_IMAGES)

    def digest(self) -> str:
        """Digest of the rows' images, labels and weights, which need no read of the features."""
        content = hashlib.blake2b(digest_size=16)
        together = () if self.together is None else (self.together.codes,)
        for values in (self.groups.codes, self.y, self.weight, *together):
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()

    def without_rejected(self) -> TrainingArrays:
        """The same arrays, with weight 0 for rows of images that a person has rejected."""
        if not self.rejected.size:
            return self
        numbers = self.groups.categories.get_indexer(self.rejected)
        weight = np.where(np.isin(self.groups.codes, numbers), 0.0, self.weight)
        return replace(self, weight=weight)

    def replaced(self, **arrays: Any) -> TrainingArrays:
        """The same arrays with some replaced by those of the caller; None replaces nothing."""
        return replace(self, **{name: value for name, value in arrays.items() if value is not None})


def input_arrays(
    X: Any,
    *,
    y: Any = None,
    groups: Any = None,
    feature_groups: Any = None,
    weight: Any = None,
    area: Any = None,
    together: Any = None,
) -> TrainingArrays:
    """The arrays of a dataset X, with the caller's in their place; without one the caller's.

    Images of a dataset that a person has rejected have weight 0. Arrays of the caller are not
    validated here, and None if there are none.
    """
    if is_dataset(X):
        arrays = training_arrays(X).without_rejected()
        if groups is not None:  # those of the dataset are groups of its images
            arrays = replace(arrays, together=None, trusted=NO_IMAGES)
        return arrays.replaced(
            y=y,
            groups=groups,
            feature_groups=feature_groups,
            weight=weight,
            area=area,
            together=together,
        )
    return TrainingArrays(X, y, groups, feature_groups, weight, area, together=together)


def training_arrays(dataset: xr.Dataset) -> TrainingArrays:
    """Features, labels, image names, feature groups, weights and areas of a dataset's rows.

    Raises
    ------
    CorruptedError
        If image numbers, labels or weights are out of range.
    """
    names = text_values(dataset["image_name"])
    image, label, weight = (dataset[name].values for name in ("image", "label", "weight"))
    _check_rows("image", (image >= 0) & (image < names.size), dataset)
    _check_rows("label", label < len(dataset.attrs.get("classes", range(256))), dataset)
    _check_rows("weight", np.isfinite(weight) & (weight >= 0), dataset)
    return TrainingArrays(
        X=dataset["features"].data,
        y=np.asarray(label),
        groups=pd.Categorical.from_codes(image, names),
        feature_groups=text_values(dataset["feature_group"]),
        weight=np.asarray(weight, dtype=np.float64),
        area=np.asarray(dataset["pixels"].values, dtype=np.float64),
        together=_together(dataset, image),
        trusted=_images_with(dataset, names, TRUSTED),
        rejected=_images_with(dataset, names, ("rejected",)),
    )


def _images_with(dataset: xr.Dataset, names: Labels, verdicts: tuple[str, ...]) -> Labels:
    """Names of the images with one of these verdicts."""
    if "verdict" not in dataset:
        return NO_IMAGES
    return names[np.isin(text_values(dataset["verdict"]), verdicts)]


def _together(dataset: xr.Dataset, image: Index) -> Any:
    """The group of each row; None if every image is a group of its own."""
    if "group" not in dataset:
        return None
    names, number = np.unique(text_values(dataset["group"]), return_inverse=True)
    if names.size == number.size:
        return None
    return pd.Categorical.from_codes(number[image], names)


def _check_rows(name: str, is_valid: Mask, dataset: xr.Dataset) -> None:
    wrong = np.flatnonzero(~is_valid)
    if wrong.size:
        raise CorruptedError(
            f"{dataset.encoding.get('source', 'the dataset')} is corrupted: {name} is out of range "
            f"in {wrong.size} row(s), the first is {wrong[0]}; create it again with gpgc ingest"
        )
