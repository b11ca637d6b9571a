"""Images in the order of their reliability, and which of them to keep."""

from __future__ import annotations

import csv
import io
import math
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.arrays import Index, Mask
from gpgc_dask.dataset import check_same_features, is_dataset, provenance, text_values
from gpgc_dask.decisions import to_labels
from gpgc_dask.validation import find_labels

__all__ = [
    "COLUMNS",
    "SUSPECT_BELOW",
    "By",
    "check_fitted_on",
    "is_suspect",
    "kept",
    "predict_and_review",
    "rank",
    "records",
    "review",
    "reviewed",
    "to_csv",
    "worst",
]

By = Literal["agreement", "confidence"]

COLUMNS = ["rank", "image", "agreement", "confidence", "noise_variance", "flags"]
"""What programs read."""

SUSPECT_BELOW = 0.5
"""A mask is suspect where a model that never saw it shares less than this with it (IoU)."""


def review(model: Any, dataset: xr.Dataset) -> pd.DataFrame:
    """What a model thinks of each image of its dataset, in the dataset's order.

    image, image_path, mask_path, flags, superpixels : of the dataset
    agreement : IoU of the given mask with the prediction made without the image, over superpixels
        by their area; NaN where the mask says nothing (void)
    noise_variance, confidence : the model's, NaN for images left out of the fit; a GP has one
        noise for all images and no confidence, an SVM a confidence by its margin and no noise
    """
    return predict_and_review(model, dataset)[1]


def predict_and_review(model: Any, dataset: xr.Dataset) -> tuple[Index, pd.DataFrame]:
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
            "noise_variance": _of_images(model, getattr(model, "noise_variance_", np.nan), names),
            "confidence": _of_images(model, getattr(model, "confidence_", np.nan), names),
            "flags": text_values(dataset["flags"]),
            "superpixels": np.bincount(image, minlength=names.size),
        }
    )
    for path in ("image_path", "mask_path"):
        table[path] = text_values(dataset[path])
    return np.asarray(to_labels(np.asarray(values), model.classes_), dtype=np.intp), table


def check_fitted_on(model: Any, dataset: xr.Dataset) -> None:
    """Complain where a model was fitted on something else than this dataset."""
    if not is_dataset(dataset):
        raise TypeError("pass the dataset that the model was fitted on, as open_dataset gives it")
    if not hasattr(model, "dataset_"):
        raise ValueError(
            "the model was fitted on arrays, not on a dataset: fit one on the dataset (gpgc fit)"
        )
    fitted = model.dataset_
    check_same_features(dataset, fitted, model.coef_.shape[1])
    here = provenance(dataset)
    if fitted.get("files_digest") != here.get("files_digest"):
        if fitted.get("url") == here["url"]:
            raise ValueError(
                f"{here['url']} has been made anew since the model was fitted: fit it again "
                "(gpgc fit --overwrite)"
            )
        raise ValueError(
            f"the model was fitted on another dataset ({fitted.get('url')}, of "
            f"{fitted.get('images')} images) than {here['url']}: pass that one, or fit a model on "
            "this one"
        )


def _of_images(model: Any, values: Any, names: Any) -> Any:
    """Values of the model's groups, by image; NaN for images that were not in the fit."""
    if np.ndim(values) == 0:
        return np.full(names.size, values)
    place, known = find_labels(model.groups_, names)
    return np.where(known, values[place], np.nan)


def rank(table: pd.DataFrame, by: By = "agreement") -> pd.DataFrame:
    """The review with a column ``rank``, 1 = worst, in that order.

    Images that nothing is known of come first: nothing speaks for them. Ties go by the other
    measure, then by name.

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask.ranking import rank
    >>> ranking = rank(load("model.zarr").review_)
    >>> ranking["rank"].tolist() == list(range(1, 13))
    True
    >>> bool(ranking["agreement"].is_monotonic_increasing)
    True
    """
    if by not in ("agreement", "confidence"):
        raise ValueError(f"by must be agreement or confidence, got {by!r}")
    if by == "confidence" and table["confidence"].isna().all():
        raise ValueError(
            "this model has one noise for all images, so no confidences: rank by agreement, or "
            "fit with one noise an image (GPGC, --method gpgc)"
        )
    first, second = (by, "confidence") if by == "agreement" else (by, "agreement")
    ordered = table.sort_values([first, second, "image"], na_position="first", kind="stable")
    ordered = ordered.reset_index(drop=True)
    ordered.insert(0, "rank", np.arange(1, len(ordered) + 1))
    return ordered


def reviewed(model: Any, name: str = "the model") -> pd.DataFrame:
    """The review that a model has made; ``name`` is told where it has made none."""
    if hasattr(model, "review_"):
        return model.review_
    raise ValueError(
        f"{name} has not reviewed its images yet: "
        + (
            "the same gpgc fit with --resume does, or in Python model.review(dataset)"
            if hasattr(model, "dataset_")
            else "it was fitted on arrays, not on a dataset; use gpgc fit, or in Python its "
            "groups_, noise_variance_ and leave_group_out"
        )
    )


def is_suspect(table: pd.DataFrame, below: float = SUSPECT_BELOW) -> Mask:
    """(images,) whether somebody should look at the mask: little agreement, or none to be had."""
    return ~(table["agreement"].to_numpy() >= below)


def kept(
    ranking: pd.DataFrame,
    *,
    top: int | str | None = None,
    threshold: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """The most reliable images of a ranking, best first.

    top : how many, or a share such as "25%";  threshold : at least this agreement (or confidence)

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask.ranking import kept, rank
    >>> len(kept(rank(load("model.zarr").review_), top="25%"))
    3
    """
    if (top is None) == (threshold is None):
        raise ValueError("say how many to keep: one of top (--top 25%) and threshold (--threshold)")
    best = ranking.iloc[::-1]
    if threshold is not None and not math.isfinite(threshold):
        raise ValueError(f"threshold must be a number such as 0.7, got {threshold}")
    if threshold is not None:
        return best[best[by].to_numpy() >= threshold]
    return best.head(count_of(top, len(ranking)))


def worst(
    ranking: pd.DataFrame,
    count: int | str | None = None,
    *,
    below: float | None = None,
    by: By = "agreement",
) -> pd.DataFrame:
    """The least reliable images of a ranking, worst first; all of them if nothing is said.

    count : how many, or a share such as "10%";  below : less agreement (or confidence) than this,
        and those of which nothing is known
    """
    if count is not None and below is not None:
        raise ValueError("say one of worst (--worst 10%) and below (--below 0.5), not both")
    if below is not None:
        if not math.isfinite(below):
            raise ValueError(f"below must be a number such as 0.5, got {below}")
        return ranking[~(ranking[by].to_numpy() >= below)]
    return ranking if count is None else ranking.head(count_of(count, len(ranking), "worst"))


def count_of(count: int | str | None, n: int, name: str = "top") -> int:
    """How many of n: "25%" is a share, at least one image; 500 or "500" a number."""
    text = str(count).strip()
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
            if 0 < share <= 1:
                return max(round(share * n), 1)
        elif (number := int(text)) > 0:
            return min(number, n)
    except ValueError:
        pass
    raise ValueError(
        f"{name} must be a share above 0% up to 100%, such as 25%, or a number, such as 500; got "
        f"{count}"
    )


def to_csv(ranking: pd.DataFrame) -> str:
    """The ranking as CSV: ``COLUMNS``, rank 1 = worst, flags joined by ; and unknowns empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in ranking[COLUMNS].itertuples(index=False):
        cells = map(_plain, row)
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def records(ranking: pd.DataFrame) -> list[dict[str, Any]]:
    """The ranking as plain values for JSON: ``COLUMNS``, flags a list, None for unknown."""
    rows = ranking[COLUMNS].itertuples(index=False)
    found = [dict(zip(COLUMNS, map(_plain, row), strict=True)) for row in rows]
    return [one | {"flags": [flag for flag in one["flags"].split(";") if flag]} for one in found]


def _plain(cell: Any) -> Any:
    """Six digits are more than anybody ranks by; NaN is no value."""
    if not isinstance(cell, float):
        return cell
    return None if math.isnan(cell) else float(f"{cell:.6g}")
