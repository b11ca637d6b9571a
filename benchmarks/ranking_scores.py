"""Scores by which masks are ranked, and measures of the rankings, for ``ranking.py``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import seconds
from scipy.stats import kendalltau
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from gpgc_dask import MarginSVM, rank
from gpgc_dask.data.training import training_arrays
from gpgc_dask.experiments.scores import random_scores
from gpgc_dask.models.review import leave_out_values
from gpgc_dask.results.columns import COLUMNS
from gpgc_dask.results.ranking import count_bad, is_suspect

DEFAULT = "**default order** (`gpgc rank`)"
LOGISTIC = "cleanlab softmin, logistic regression"
OWN = "cleanlab softmin, leave-image-out predictions"
MARGIN = "SVM margin"
RANDOM = "random order"
ESTIMATE = ("quality", "quality_low", "quality_high")
"""Columns of the estimated quality; the default order is theirs."""

NO_SCORES = ("confidence", "bad_probability")
"""Columns that are left out: a confidence is the rank of its noise variance."""

BAD_BELOW = 0.5
SHARES = (0.05, 0.1, 0.25)
FOLDS = 5
COSTS = (0.0001, 0.001, 0.01)
TEMPERATURE = 0.1
"""cleanlab's default."""

TINY = 1e-6
"""Smallest probability."""


@dataclass(frozen=True)
class Rows:
    """The superpixels of a dataset in memory.

    Attributes
    ----------
    X : (N, k) array of float32
        Features.
    y : (N,) array of int
        Given classes.
    image : (N,) array of int
        Numbers of the images.
    area : (N,) array
        Pixels; 0 if the superpixel is void.
    n_images, n_classes : int
    """

    X: np.ndarray
    y: np.ndarray
    image: np.ndarray
    area: np.ndarray
    n_images: int
    n_classes: int

    @classmethod
    def read(cls, dataset: xr.Dataset) -> Rows:
        arrays = training_arrays(dataset)
        return cls(
            np.asarray(arrays.X, dtype=np.float32),
            np.asarray(arrays.y, dtype=np.intp),
            np.asarray(arrays.groups.codes, dtype=np.intp),
            np.where(arrays.weight > 0, arrays.area, 0.0),
            dataset.sizes["photo"],
            len(dataset.attrs["classes"]),
        )

    @property
    def digest(self) -> str:
        """Changes with features, classes, images and areas."""
        content = hashlib.sha256()
        for each in (self.X, self.y, self.image, self.area):
            content.update(np.ascontiguousarray(each))
        return content.hexdigest()[:16]

    def known(self, rows: np.ndarray) -> np.ndarray:
        """Those of some rows that have a class."""
        return rows[self.area[rows] > 0]


# -- scores: one number per image, high = reliable -------------------------------------------


def review_scores(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """All scores in a review, and the order of the ranking.

    Parameters
    ----------
    table : pandas.DataFrame
        A review. Its columns of real numbers are scores; they are high for reliable images unless
        ``gpgc_dask.results.columns`` declares otherwise.

    Returns
    -------
    dict
        {name: (images,) scores}.
    """
    place = dict(zip(rank(table)["image"], range(len(table)), strict=True))
    scores = {DEFAULT: table["image"].map(place).to_numpy(dtype=np.float64)}
    reverse = {column.name for column in COLUMNS if column.higher_is_better is False}
    for name in table.columns:
        values = table[name]
        if values.dtype.kind == "f" and name not in NO_SCORES and not values.isna().all():
            scores[f"`{name}`"] = (-1.0 if name in reverse else 1.0) * values.to_numpy()
    return scores


def softmin(probability: np.ndarray, rows: Rows) -> np.ndarray:
    """cleanlab's label quality of images from probabilities of the given classes.

    Parameters
    ----------
    probability : (N, classes) array
        Out of sample.
    rows : Rows

    Returns
    -------
    (images,) array
        As ``cleanlab.segmentation.rank`` computes it from the pixels that the superpixels cover;
        void ones do not count. NaN for images that are all void.
    """
    q = probability[np.arange(rows.y.size), rows.y]
    weight = rows.area * np.exp((1 - q) / TEMPERATURE)
    total = np.bincount(rows.image, weight, rows.n_images)
    with np.errstate(invalid="ignore"):
        return np.bincount(rows.image, weight * q, rows.n_images) / total


def _probabilities(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    result = np.full((len(X), n_classes), TINY)
    result[:, model.classes_] = np.maximum(model.predict_proba(X), TINY)
    return result / result.sum(1, keepdims=True)


def logistic_probabilities(rows: Rows) -> tuple[np.ndarray, float]:
    """Out-of-fold probabilities of a logistic regression, and its C.

    Multinomial, on standardised features, without class weights, with folds by image. C is the one
    of ``COSTS`` with the smallest log loss of the given labels in the first fold.

    Returns
    -------
    probability : (N, classes) array
    C : float
    """

    def fit(train: np.ndarray, cost: float) -> Any:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=cost, max_iter=300))
        used = rows.known(train)
        return model.fit(rows.X[used], rows.y[used])

    def loss(probability: np.ndarray, test: np.ndarray) -> float:
        used = rows.area[test] > 0
        return log_loss(rows.y[test][used], probability[used], labels=range(rows.n_classes))

    folds = [*GroupKFold(min(FOLDS, rows.n_images)).split(rows.X, rows.y, rows.image)]
    train, test = folds[0]
    tried = {c: _probabilities(fit(train, c), rows.X[test], rows.n_classes) for c in COSTS}
    cost = min(tried, key=lambda c: loss(tried[c], test))
    result = np.empty((rows.y.size, rows.n_classes))
    result[test] = tried[cost]
    for train, test in folds[1:]:
        result[test] = _probabilities(fit(train, cost), rows.X[test], rows.n_classes)
    return result, cost


def leave_out_probabilities(values: np.ndarray, rows: Rows) -> np.ndarray:
    """Probabilities from leave-image-out decision values, with the natural class frequencies.

    A logistic regression of the given labels on the decision values, in which all images have the
    same weight. It has so few parameters that the probabilities remain out of sample.

    Parameters
    ----------
    values : (N,) or (N, classes) array
    rows : Rows

    Returns
    -------
    (N, classes) array
    """
    values = values.reshape(rows.y.size, -1)
    used = rows.known(np.arange(rows.y.size))
    weight = (
        rows.area / np.maximum(np.bincount(rows.image, rows.area, rows.n_images), 1)[rows.image]
    )
    weight *= used.size / weight.sum()
    model = LogisticRegression(C=10.0, max_iter=300)
    model.fit(values[used], rows.y[used], sample_weight=weight[used])
    return _probabilities(model, values, rows.n_classes)


def margin_scores(dataset: xr.Dataset) -> np.ndarray:
    """Share of the images with a smaller mean margin, by a linear SVM."""
    return MarginSVM().fit(dataset).review(dataset)["confidence"].to_numpy()


def other_scores(
    model: Any, dataset: xr.Dataset, seed: int, cache: Path, *, svm: bool
) -> tuple[dict[str, np.ndarray], float, float]:
    """Scores that are not in the review, C of the logistic regression, and the seconds taken.

    Scores that do not depend on the model take long, and are kept in ``cache`` by the data.
    """
    rows = Rows.read(dataset)
    values = leave_out_values(model, dataset)
    taken, own = seconds(lambda: leave_out_probabilities(values, rows))
    scores = {OWN: softmin(own, rows)}
    kept = cache / f"scores-{rows.digest}.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    # Its many small steps wait for threads: 15 times longer with two of them on a busy machine.
    with threadpool_limits(1):
        if LOGISTIC not in known:
            time, (probability, cost) = seconds(lambda: logistic_probabilities(rows))
            known[LOGISTIC] = {"scores": softmin(probability, rows).tolist(), "C": cost, "s": time}
    if svm and MARGIN not in known:
        time, margins = seconds(lambda: margin_scores(dataset))
        known[MARGIN] = {"scores": margins.tolist(), "s": time}
    kept.write_text(json.dumps(known))
    for name in (LOGISTIC, MARGIN) if svm else (LOGISTIC,):
        scores[name] = np.array(known[name]["scores"], dtype=np.float64)
        taken += known[name]["s"]
    scores[RANDOM] = random_scores(rows.n_images, seed)
    return scores, known[LOGISTIC]["C"], taken


# -- measures ----------------------------------------------------------------------------------


def to_badness(score: np.ndarray) -> np.ndarray:
    """Scores with the opposite sign; unknown ones are the worst."""
    finite = score[np.isfinite(score)]
    worst = finite.min() - 1.0 if finite.size else 0.0
    return -np.where(np.isfinite(score), score, worst)


def auroc(bad: np.ndarray, badness: np.ndarray) -> float:
    return float(roc_auc_score(bad, badness)) if bad.any() and not bad.all() else float("nan")


def measure(score: np.ndarray, truth: pd.DataFrame) -> dict[str, float]:
    """How well a score finds bad masks.

    Parameters
    ----------
    score : (images,) array
        High = reliable.
    truth : pandas.DataFrame
        ``bad``, ``kind``, ``quality`` and ``empty`` of the masks, in the same order.

    Returns
    -------
    dict
        ``AUROC``; ``AUROC, not empty`` among the masks that are not empty, if some are;
        ``average precision``; ``Kendall τ`` with the true quality; the share of bad masks among
        the worst 5, 10 and 25 %; and for each kind of error its AUROC against the masks that are
        not bad.
    """
    badness, bad = to_badness(score), truth["bad"].to_numpy(dtype=bool)
    empty, kinds = truth["empty"].to_numpy(dtype=bool), truth["kind"].to_numpy()
    result = {"AUROC": auroc(bad, badness)}
    if empty.any():
        result["AUROC, not empty"] = auroc(bad[~empty], badness[~empty])
    both = bad.any() and not bad.all()
    result["average precision"] = (
        float(average_precision_score(bad, badness)) if both else float("nan")
    )
    result["Kendall τ"] = float(kendalltau(-badness, truth["quality"]).statistic)
    order = np.argsort(-badness, kind="stable")
    for share in SHARES:
        worst = order[: max(round(share * bad.size), 1)]
        result[f"bad in worst {100 * share:.0f} %"] = float(bad[worst].mean())
    for kind in sorted({*kinds.tolist()} - {""}):
        chosen = ~bad | (kinds == kind)
        result[f"AUROC, {kind}"] = auroc(bad[chosen], badness[chosen])
    return result


def measure_estimates(table: pd.DataFrame, truth: pd.DataFrame) -> dict[str, Any]:
    """How well the numbers of a review estimate the true quality.

    Parameters
    ----------
    table : pandas.DataFrame
        A review.
    truth : pandas.DataFrame
        As in :func:`measure`.

    Returns
    -------
    dict
        The mean absolute ``error`` of the quality; ``coverage``, the share of true qualities within
        quality_low … quality_high (NaN without these); numbers of masks: ``estimated below`` 0.5
        with its limits ``low`` and ``high`` (NaN without these), ``truly below``, ``suspect``,
        ``bad``; ``count inside``, whether the true number is within the limits; ``suspect share``.
    """
    quality, estimate = truth["quality"].to_numpy(), table["quality"].to_numpy()
    suspect, count = is_suspect(table), count_bad(table)
    low, high = table["quality_low"].to_numpy(), table["quality_high"].to_numpy()
    inside = (low <= quality) & (quality <= high)
    below = int((quality < BAD_BELOW).sum())
    nan = float("nan")
    return {
        "error": float(np.nanmean(np.abs(estimate - quality))),
        "coverage": nan if count is None else float(np.mean(inside)),
        "estimated below": nan if count is None else count.estimate,
        "low": nan if count is None else count.low,
        "high": nan if count is None else count.high,
        "count inside": nan if count is None else float(count.low <= below <= count.high),
        "truly below": below,
        "suspect": int(suspect.sum()),
        "bad": int(truth["bad"].sum()),
        "suspect share": float(suspect.mean()),
    }
