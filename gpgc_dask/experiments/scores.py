"""Scores by which images are kept or left out: one number per image, high = reliable."""

from __future__ import annotations

from itertools import chain

import numpy as np
import xarray as xr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.labels import find_labels
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.training import training_arrays
from gpgc_dask.imaging.painting import rows_of, segment_chunks

__all__ = ["group_scores", "random_scores", "softmin_scores"]

FOLDS = 5


def group_scores(dataset: xr.Dataset, groups: Labels, values: Array) -> Array:
    """Values of groups by photo.

    Parameters
    ----------
    dataset : xarray.Dataset
    groups : (J,) array
        Names of photos.
    values : (J,) array
        One value per group.

    Returns
    -------
    (photos,) array
        NaN for photos that are not among the groups.
    """
    place, known = find_labels(groups, text_values(dataset["image_name"]))
    return np.where(known, values[place], np.nan)


def random_scores(n_photos: int, seed: int) -> Array:
    """Random scores, which show the cost of filtering without information.

    Parameters
    ----------
    n_photos, seed : int

    Returns
    -------
    (photos,) array
    """
    return np.random.default_rng(seed).permutation(n_photos).astype(np.float64)


def softmin_scores(dataset: xr.Dataset) -> Array:
    """cleanlab's label quality of each mask (segmentation, softmin).

    Parameters
    ----------
    dataset : xarray.Dataset

    Returns
    -------
    (photos,) array
        Scores in [0, 1]; NaN for masks that are all void.

    Notes
    -----
    The probabilities are those of a class-balanced logistic regression on standardised features,
    out of fold, with folds by image. The features are held in memory in float32.
    """
    from cleanlab.segmentation.rank import get_label_quality_scores

    arrays = training_arrays(dataset)
    X = np.asarray(arrays.X, dtype=np.float32)
    weight, y = np.asarray(arrays.weight), arrays.y
    image = np.asarray(dataset["image"].values)
    classes = np.unique(y[weight > 0])
    probability = np.full((len(y), len(dataset.attrs["classes"])), 1e-9)
    folds = GroupKFold(min(FOLDS, np.unique(image).size))
    for train, test in folds.split(X, y, image):
        used = train[weight[train] > 0]
        model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=200)
        )
        model.fit(X[used], y[used])
        columns = np.searchsorted(classes, model.classes_)
        probability[np.ix_(test, classes[columns])] = model.predict_proba(X[test])
    probability /= probability.sum(1, keepdims=True)
    scores = np.full(dataset.sizes["photo"], np.nan)
    for photo, segments in chain.from_iterable(segment_chunks(dataset)):
        rows = rows_of(image, photo)
        if weight[rows].any():
            labels = y[rows].astype(np.int64)[segments][None]
            painted = np.moveaxis(probability[rows][segments], -1, 0)[None]
            quality, _ = get_label_quality_scores(labels, painted, verbose=False)
            scores[photo] = quality[0]
    return scores
