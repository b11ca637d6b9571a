"""What a model thinks of each image of its dataset, and their order."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.data.dataset import check_same_features, is_dataset, provenance, text_values
from gpgc_dask.models.decisions import to_labels
from gpgc_dask.models.protocol import FittedModel

__all__ = [
    "By",
    "check_fitted_on",
    "predict_and_review",
    "rank",
    "require_dataset_info",
    "review",
    "reviewed",
]


By = Literal["agreement", "confidence"]


def review(model: FittedModel, dataset: xr.Dataset) -> pd.DataFrame:
    """What a model thinks of each image of its dataset, in the dataset's order.

    image, image_path, mask_path, flags, superpixels : of the dataset
    agreement : IoU of the given mask with the prediction made without the image, over superpixels
        by their area; NaN where the mask says nothing (void)
    noise_variance, confidence : the model's, NaN for images left out of the fit; a GP has one
        noise for all images and no confidence, an SVM a confidence by its margin and no noise
    """
    return predict_and_review(model, dataset)[1]


def predict_and_review(model: FittedModel, dataset: xr.Dataset) -> tuple[Index, pd.DataFrame]:
    """((N,) class numbers of the superpixels, predicted without their image; the review)."""
    check_fitted_on(model, dataset)
    values, found = model.leave_group_out(dataset, return_agreement=True)
    names = text_values(dataset["image_name"])
    image, weight = dataset["image"].values, dataset["weight"].values
    place, known = find_labels(found.groups, names)
    labelled = np.bincount(image, weight > 0, names.size) > 0
    if labelled.sum() < 2:  # there is no other image that could agree
        labelled[:] = False
    table = pd.DataFrame(
        {
            "image": names,
            "agreement": np.where(known & labelled, found.iou[place], np.nan),
            "noise_variance": _of_images(model, model.group_noise, names, model.typical_noise),
            "confidence": _of_images(model, model.group_confidence, names),
            "flags": text_values(dataset["flags"]),
            "superpixels": np.bincount(image, minlength=names.size),
        }
    )
    for path in ("image_path", "mask_path"):
        table[path] = text_values(dataset[path])
    return np.asarray(to_labels(np.asarray(values), model.classes_), dtype=np.intp), table


def check_fitted_on(model: FittedModel, dataset: xr.Dataset) -> None:
    """Complain where a model was fitted on something else than this dataset."""
    if not is_dataset(dataset):
        raise InputTypeError(
            "pass the dataset that the model was fitted on, as open_dataset gives it"
        )
    fitted = require_dataset_info(model)
    check_same_features(dataset, fitted, model.coef_.shape[1])
    here = provenance(dataset)
    if fitted.get("files_digest") != here.get("files_digest"):
        if fitted.get("url") == here["url"]:
            raise InputError(
                f"{here['url']} has been made anew since the model was fitted: fit it again "
                "(gpgc fit --overwrite)"
            )
        raise InputError(
            f"the model was fitted on another dataset ({fitted.get('url')}, of "
            f"{fitted.get('images')} images) than {here['url']}: pass that one, or fit a model on "
            "this one"
        )


def require_dataset_info(model: FittedModel) -> dict[str, Any]:
    """Where the rows of the fit come from; an InputError where it was a fit on arrays."""
    if model.dataset_info is None:
        raise InputError(
            "the model was fitted on arrays, not on a dataset: fit one on the dataset (gpgc fit)"
        )
    return model.dataset_info


def _of_images(
    model: FittedModel, values: Array | None, names: Labels, common: float | None = None
) -> Array:
    """Values (J,) of the model's groups by image; NaN for images that were not in the fit.

    Where the groups have no values of their own, all images have the one in common.
    """
    if values is None:
        return np.full(names.size, np.nan if common is None else common)
    place, known = find_labels(model.groups_, names)
    return np.where(known, values[place], np.nan)


def rank(table: pd.DataFrame, by: By = "agreement") -> pd.DataFrame:
    """The review with a column ``rank``, 1 = worst, in that order.

    Images that nothing is known of come first: nothing speaks for them. Ties go by the other
    measure, then by name.

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask import rank
    >>> ranking = rank(load("model.zarr").review_)
    >>> ranking["rank"].tolist() == list(range(1, 13))
    True
    >>> bool(ranking["agreement"].is_monotonic_increasing)
    True
    """
    if by not in ("agreement", "confidence"):
        raise InputError(f"by must be agreement or confidence, got {by!r}")
    if by == "confidence" and table["confidence"].isna().all():
        raise InputError(
            "this model has one noise for all images, so no confidences: rank by agreement, or "
            "fit with one noise an image (GPGC, --method gpgc)"
        )
    first, second = (by, "confidence") if by == "agreement" else (by, "agreement")
    ordered = table.sort_values([first, second, "image"], na_position="first", kind="stable")
    ordered = ordered.reset_index(drop=True)
    ordered.insert(0, "rank", np.arange(1, len(ordered) + 1))
    return ordered


def reviewed(model: FittedModel, name: str = "the model") -> pd.DataFrame:
    """The review that a model has made; ``name`` is told where it has made none."""
    if model.review_table is not None:
        return model.review_table
    raise InputError(
        f"{name} has not reviewed its images yet: "
        + (
            "the same gpgc fit with --resume does, or in Python model.review(dataset)"
            if model.dataset_info is not None
            else "it was fitted on arrays, not on a dataset; use gpgc fit, or in Python its "
            "groups_, noise_variance_ and leave_group_out"
        )
    )
