"""Rules by which images are kept or left out: a score an image, high = reliable."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import xarray as xr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpgc_dask.core.arrays import Array
from gpgc_dask.core.labels import find_labels
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.training import training_arrays
from gpgc_dask.imaging.painting import rows_of, segment_chunks

__all__ = ["of_groups", "random_scores", "softmin_scores"]

FOLDS = 5


def of_groups(dataset: xr.Dataset, groups: Any, values: Array) -> Array:
    """(photos,) values of the photos by their names; NaN for those that are none of ``groups``."""
    place, known = find_labels(groups, text_values(dataset["image_name"]))
    return np.where(known, values[place], np.nan)


def random_scores(n_photos: int, seed: int) -> Array:
    """No rule at all: what filtering costs where it knows nothing."""
    return np.random.default_rng(seed).permutation(n_photos).astype(np.float64)


def softmin_scores(dataset: xr.Dataset) -> Array:
    """(photos,) cleanlab's label quality of each mask (segmentation, softmin).

    Its probabilities are out of fold, of a class-balanced logistic regression on standardised
    features, folds by image. The features are held in memory, in float32.
    """
    from cleanlab.segmentation.rank import get_label_quality_scores

    given = training_arrays(dataset)
    X = np.asarray(given.X, dtype=np.float32)
    weight, y = np.asarray(given.weight), given.y
    image = np.asarray(dataset["image"].values)
    classes = np.unique(y[weight > 0])
    probability = np.full((len(y), len(dataset.attrs["classes"])), 1e-9)
    folds = GroupKFold(min(FOLDS, np.unique(image).size))
    for fitted, judged in folds.split(X, y, image):
        used = fitted[weight[fitted] > 0]
        model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=200)
        )
        model.fit(X[used], y[used])
        columns = np.searchsorted(classes, model.classes_)
        probability[np.ix_(judged, classes[columns])] = model.predict_proba(X[judged])
    probability /= probability.sum(1, keepdims=True)
    scores = np.full(dataset.sizes["photo"], np.nan)
    for photo, segments in chain.from_iterable(segment_chunks(dataset)):
        rows = rows_of(image, photo)
        if weight[rows].any():
            labels = y[rows].astype(np.int64)[segments][None]
            painted = np.moveaxis(probability[rows][segments], -1, 0)[None]
            found, _ = get_label_quality_scores(labels, painted, verbose=False)
            scores[photo] = found[0]
    return scores
