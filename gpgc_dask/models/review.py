"""The review: how reliable a model estimates each image of its dataset to be, and their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Features, Index, Labels, group_sums
from gpgc_dask.core.errors import InputError, NotReviewedError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.metrics import group_agreement
from gpgc_dask.data.dataset import (
    text_values,
)
from gpgc_dask.data.training import TrainingArrays, training_arrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.fitted_dataset import check_fitted_on
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.models.objects import objects_table
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.second_look import MIN_GROUPS
from gpgc_dask.models.validation import naming_groups
from gpgc_dask.quality.calibration import Calibration, calibrate
from gpgc_dask.quality.consensus import compare_answers, reliability_weights
from gpgc_dask.quality.estimate import estimate_quality, learn_quality
from gpgc_dask.quality.predictions import Evidence
from gpgc_dask.quality.scorer import QualityScorer

__all__ = [
    "CLASS_IOU",
    "By",
    "Review",
    "count_confusions",
    "has_quality",
    "leave_out_values",
    "predict_and_review",
    "rank",
    "require_review",
    "review",
    "review_objects",
]


By = Literal["quality", "agreement", "confidence"]

PATHS = ("image_path", "mask_path")
ABOUT = ("photo_name", "group", "annotator", "annotated")
"""What is known of the images and their masks, in the dataset and in reviews."""

CLASS_IOU = "iou:"
"""Columns of the IoU of single classes start with this."""


@dataclass(frozen=True)
class Review:
    """What :func:`review` returns.

    Attributes
    ----------
    leave_out : KeptPredictions
        Decision values of the rows, from models that never saw the row's image.
    calibration : Calibration or None
        Probabilities of decision values; None with fewer than 10 labelled images.
    table : DataFrame
        One row per image.
    objects : DataFrame
        One row per annotation and per region where a mask is probably wrong: see
        :func:`gpgc_dask.models.objects.objects_table`.
    scorer : QualityScorer
        Estimates the quality of masks of other photos.
    """

    leave_out: KeptPredictions
    calibration: Calibration | None
    table: pd.DataFrame
    objects: pd.DataFrame
    scorer: QualityScorer


def review(model: FittedModel, dataset: xr.Dataset) -> Review:
    """Assess each image of the dataset that a model was fitted on.

    Parameters
    ----------
    model : FittedModel
        Fitted on ``dataset``.
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`.

    Returns
    -------
    Review
        Its table has one row per image, in the dataset's order:

        - ``image``, ``image_path``, ``mask_path``, ``flags``, ``superpixels`` of the dataset; the
          flags include what a person has decided: confirmed, corrected or rejected.
        - ``quality``: estimated IoU of the given mask with a correct one, ``quality_low`` and
          ``quality_high`` around it, and ``bad_probability`` that it is below 0.5: see
          ``estimate_quality``. 1 if a person has confirmed or corrected the mask, 0 if rejected.
        - ``agreement``: IoU of the given mask with the prediction made without the image, over
          superpixels by their area; NaN where the mask is void.
        - With more than two classes, ``iou:CLASS`` for each of them, its part of the agreement; NaN
          where neither mask nor prediction contain it.
        - ``usual_agreement``: what the agreement with calibrated probabilities would be if the mask
          were right; low for images that are hard to predict.
        - ``consensus``: IoU of the mask with the majority of the other answers for its photo,
          which vote by 1/noise; only if photos have several answers. ``consensus_of_all`` includes
          its own vote.
        - ``photo_name``, ``group``, ``annotator``, ``annotated`` of the dataset.
        - ``noise_variance``, ``confidence`` of the model, NaN for images left out of the fit. A GP
          has one noise for all images and no confidence, an SVM a confidence by its margin and no
          noise.
    """
    arrays = _check_and_read(model, dataset)
    values = _leave_out_values(model, dataset, arrays).astype(np.float32, copy=False)
    evidence = _evidence(model, dataset, arrays, values)
    calibration = _calibration(evidence)
    quality, scorer = learn_quality(dataset, evidence)
    table = _table(model, dataset, evidence, calibration, quality)
    return Review(
        KeptPredictions(arrays.digest(), values),
        calibration,
        table,
        objects_table(dataset, evidence, table["quality"].to_numpy()),
        scorer,
    )


def review_objects(model: FittedModel, dataset: xr.Dataset) -> pd.DataFrame:
    """Score the annotations of the dataset that a model was fitted on, and find wrong regions.

    Features are not read if the model keeps a review.

    Returns
    -------
    DataFrame
        See :func:`gpgc_dask.models.objects.objects_table`.
    """
    arrays = _check_and_read(model, dataset)
    values = _leave_out_values(model, dataset, arrays)
    evidence = _evidence(model, dataset, arrays, values)
    table = model.review_table if _is_kept(model, arrays) else None
    if table is None or not has_quality(table):
        table = estimate_quality(dataset, evidence)
    return objects_table(dataset, evidence, table["quality"].to_numpy())


def predict_and_review(model: FittedModel, dataset: xr.Dataset) -> tuple[Index, pd.DataFrame]:
    """Predict each image by a model that never saw it, and review the images.

    Neither features nor masks are read if the model keeps its review of the same rows.

    Returns
    -------
    predicted : (N,) array of int
        Numbers of the superpixels' classes.
    table : DataFrame
        As that of :func:`review`.
    """
    arrays = _check_and_read(model, dataset)
    values = _leave_out_values(model, dataset, arrays)
    predicted = np.asarray(decide(values, model.classes_, model.calibration), dtype=np.intp)
    table = model.review_table if _is_kept(model, arrays) else None
    if table is None or not has_quality(table):
        evidence = _evidence(model, dataset, arrays, values)
        quality = estimate_quality(dataset, evidence)
        return predicted, _table(model, dataset, evidence, model.calibration, quality)
    paths = {name: text_values(dataset[name]) for name in PATHS}  # the files may have moved
    return predicted, table.assign(**paths)


def count_confusions(model: FittedModel, dataset: xr.Dataset) -> pd.DataFrame:
    """Pixels of each given class by the class that is predicted without their image.

    Parameters
    ----------
    model : FittedModel
        Fitted on ``dataset``. Features are not read if it keeps a review.
    dataset : xarray.Dataset
        From :func:`gpgc_dask.open_dataset`.

    Returns
    -------
    (classes, classes) DataFrame of int
        Rows are given classes, columns predicted ones. Pixels count by their superpixel; void ones
        do not count.
    """
    arrays = _check_and_read(model, dataset)
    evidence = _evidence(model, dataset, arrays, _leave_out_values(model, dataset, arrays))
    n_classes = evidence.n_classes
    predicted = decide(evidence.values, np.arange(n_classes), model.calibration)
    pixels = group_sums(evidence.codes * n_classes + predicted, evidence.area, n_classes**2)
    names = _class_names(model, dataset)
    counts = pixels.reshape(n_classes, n_classes).round().astype(np.int64)
    return pd.DataFrame(counts, names, names)


def leave_out_values(model: FittedModel, dataset: xr.Dataset) -> Array:
    """Decision values of the rows of a model's dataset, from models that never saw their image.

    Those that the model keeps of its review, or computed in one read of the features.

    Returns
    -------
    (N,) array, or (N, classes) for more than two classes
    """
    values = _leave_out_values(model, dataset, _check_and_read(model, dataset))
    return values.astype(np.float64, copy=False)


def _check_and_read(model: FittedModel, dataset: xr.Dataset) -> TrainingArrays:
    check_fitted_on(model, dataset)
    return training_arrays(dataset)


def _is_kept(model: FittedModel, arrays: TrainingArrays) -> bool:
    """Whether the model keeps its review of these rows."""
    return model.leave_out is not None and model.leave_out.rows == arrays.digest()


def _leave_out_values(model: FittedModel, dataset: xr.Dataset, arrays: TrainingArrays) -> Features:
    kept = model.leave_out
    if kept is not None and _is_kept(model, arrays):
        return kept.values
    values = model.leave_group_out(dataset)
    if is_dask(values):
        with naming_groups(arrays.groups):
            (values,) = compute(values)
    return np.asarray(values)


def _evidence(
    model: FittedModel, dataset: xr.Dataset, arrays: TrainingArrays, values: Features
) -> Evidence:
    """What is known of the rows after the fit."""
    names = text_values(dataset["image_name"])
    return Evidence(
        values=values,
        codes=find_labels(model.classes_, arrays.y)[0],
        area=arrays.area * (arrays.weight > 0),
        image=np.asarray(arrays.groups.codes, dtype=np.intp),
        noise=_of_images(model, model.group_noise, names, model.typical_noise),
        classes=np.asarray(model.classes_, dtype=np.intp),
        unit=_units(dataset),
        right=np.isin(names, arrays.trusted),
        wrong=np.isin(names, arrays.rejected),
    )


def _units(dataset: xr.Dataset) -> Index | None:
    """(J,) number of each image's group; None if the dataset has no groups."""
    if "group" not in dataset:
        return None
    return _first_numbers(text_values(dataset["group"]))


def _first_numbers(names: Labels) -> Index:
    """(n,) number of each name, in the order in which they first occur."""
    _, first, number = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def _table(
    model: FittedModel,
    dataset: xr.Dataset,
    evidence: Evidence,
    calibration: Calibration | None,
    quality: pd.DataFrame,
) -> pd.DataFrame:
    names = text_values(dataset["image_name"])
    table = quality.copy()
    if "photo_name" in dataset:
        photo = _first_numbers(text_values(dataset["photo_name"]))
        weights = reliability_weights(evidence.noise, table["quality"].to_numpy())
        consensus = compare_answers(dataset, photo, weights, evidence.classes)
        if consensus is not None:
            for name, values in zip(("consensus", "consensus_of_all"), consensus.T, strict=True):
                table[name] = np.where(evidence.labelled, values, np.nan)
    table.insert(0, "image", names)
    return table.assign(
        **_agreement(evidence, _class_names(model, dataset), calibration),
        noise_variance=evidence.noise,
        confidence=_of_images(model, model.group_confidence, names),
        flags=_flags(dataset),
        superpixels=np.bincount(evidence.image, minlength=names.size),
        **{name: text_values(dataset[name]) for name in (*PATHS, *ABOUT) if name in dataset},
    )


def _flags(dataset: xr.Dataset) -> Labels:
    """(J,) flags of the images, joined by ``;``, with the verdict of a person as the last one."""
    flags = text_values(dataset["flags"])
    if "verdict" not in dataset:
        return flags
    pairs = zip(flags.tolist(), text_values(dataset["verdict"]).tolist(), strict=True)
    return np.array([";".join(filter(None, pair)) for pair in pairs], dtype=str)


def _calibration(evidence: Evidence) -> Calibration | None:
    if evidence.labelled.sum() < MIN_GROUPS:
        return None
    if evidence.n_classes > 2:  # Scores use the same columns then.
        return evidence.predictions.calibration
    return calibrate(
        evidence.values,
        evidence.codes,
        evidence.area,
        evidence.image,
        evidence.n_images,
        evidence.n_classes,
    )


def _agreement(
    evidence: Evidence, class_names: list[str], calibration: Calibration | None
) -> dict[str, Array]:
    """Columns of the IoU of given with predicted labels; NaN for images without labels."""
    n_classes = evidence.n_classes
    agreement = group_agreement(
        evidence.codes,
        decide(evidence.values, np.arange(n_classes), calibration),
        evidence.image,
        evidence.area,
        n_classes,
        np.arange(evidence.n_images),
    )
    labelled = evidence.labelled
    if labelled.sum() < 2:  # there is no other image to agree with
        labelled = np.zeros_like(labelled)
    columns = {"agreement": np.where(labelled, agreement.iou, np.nan)}
    if n_classes > 2:
        for name, iou in zip(class_names, agreement.class_iou.T, strict=True):
            columns[CLASS_IOU + name] = np.where(labelled, iou, np.nan)
    return columns


def _class_names(model: FittedModel, dataset: xr.Dataset) -> list[str]:
    """Names of the model's classes, which are numbers in the dataset."""
    return [str(dataset.attrs["classes"][number]) for number in model.classes_]


def require_review(model: FittedModel, name: str = "the model") -> pd.DataFrame:
    """The table of a model's review; raise an InputError, with its ``name``, if there is none."""
    if model.review_table is not None:
        return model.review_table
    raise NotReviewedError(
        f"{name} has not reviewed its images yet: "
        + (
            "run the same gpgc fit with --resume, or in Python model.review(dataset)"
            if model.dataset_info is not None
            else "it was fitted on arrays, not on a dataset; use gpgc fit, or in Python its "
            "groups_, noise_variance_ and leave_group_out"
        )
    )


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


def rank(table: pd.DataFrame, by: By = "quality") -> pd.DataFrame:
    """Sort a review, the least reliable image first.

    Images without a value come first: nothing supports them. Ties are resolved by the agreement,
    then by the confidence, then by name.

    Parameters
    ----------
    table : DataFrame
        What ``model.review(dataset)`` returns, or ``model.review_``.
    by : {"quality", "agreement", "confidence"}, default "quality"
        The measure to sort by.

    Returns
    -------
    DataFrame
        The rows in that order, with a first column ``rank``: 1 is the least reliable.

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask import rank
    >>> ranking = rank(load("model.zarr").review_)
    >>> ranking["rank"].tolist() == list(range(1, 13))
    True
    >>> bool(ranking["quality"].is_monotonic_increasing)
    True
    """
    if by not in get_args(By):
        raise InputError(f"by must be {', '.join(get_args(By))}, got {by!r}")
    if not has_quality(table):
        raise NotReviewedError(
            "the review was made by an older version, without the quality of the masks: make it "
            "again (gpgc fit --overwrite, or in Python model.review(dataset))"
        )
    if by == "confidence" and table["confidence"].isna().all():
        raise InputError(
            "this model has one noise for all images, so no confidences: rank by quality, or "
            "fit with one noise per image (GPGC, --method gpgc)"
        )
    keys = [by, *(name for name in ("agreement", "confidence") if name != by), "image"]
    ordered = table.sort_values(keys, na_position="first", kind="stable")
    ordered = ordered.reset_index(drop=True)
    ordered.insert(0, "rank", np.arange(1, len(ordered) + 1))
    return ordered


def has_quality(table: pd.DataFrame) -> bool:
    """Whether a review has the quality of the masks; those of older versions have not."""
    return "quality" in table and "bad_probability" in table
