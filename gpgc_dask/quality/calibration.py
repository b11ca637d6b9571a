"""Calibrated probabilities from decision values of models that never saw the row's image.

The decision value of a row does not depend on the labels of its image if the image was left out of
the fit. One logistic regression from these values to the labels has a handful of parameters, so
its probabilities are still out-of-sample for each image. Images that disagree with the predictions
have little weight in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.core.threads import one_blas_thread

__all__ = ["MIN_PROBABILITY", "Calibration", "calibrate", "reliability", "terms"]

MIN_PROBABILITY = 1e-4
"""No class of a row is less likely than this: a model can be wrong in ways it does not know."""

MAX_ROWS = 200_000
"""Rows that the regression is fitted to: more do not change a handful of parameters."""

PENALTY = 10.0
"""Inverse strength of the L2 penalty of the regression, per row of weight 1."""

MAX_STEPS, MIN_STEP, STEP_TOLERANCE = 50, 1e-6, 1e-12
"""Of Newton's method: number and smallest size of steps, and predicted gain per row at its end."""

ROWS_PER_TERM = 500
"""With fewer rows per term, squares are left out: rows of one image are not independent."""

ROUNDS = 2
"""How often the weights of the images and the regression are computed in turn."""

MIN_RELIABILITY = 0.02
"""Weights of images are squares of their reliability, of at least this."""

EXPONENTS = np.linspace(0.0, 1.0, 9)
"""Powers of the class frequencies among which the one of the best decisions is chosen."""

HALFWAY = 0.5
"""Power of the class frequencies where none is chosen."""


@dataclass(frozen=True)
class Calibration:
    """Logits of the classes as a linear function of decision values.

    Attributes
    ----------
    coef : (classes, t) array
        Slopes of the first t :func:`terms` of the decision values.
    intercept : (classes,) array
        Logits at decision values of 0.
    frequency : (classes,) array
        Frequencies of the classes that the logits are for.
    exponent : float, default 0.5
        Power of the frequencies by which probabilities are divided to decide.
    """

    coef: Array
    intercept: Array
    frequency: Array
    exponent: float = HALFWAY

    def logits(self, values: Any) -> Any:
        """Logits (N, classes) of decision values (N,) or (N, t); lazy for a dask array."""
        columns = terms(values, self.intercept.size)
        return columns[:, : self.coef.shape[1]] @ self.coef.T + self.intercept

    def scores(self, values: Any) -> Any:
        """Logits (N, classes) of P / πʳ, whose largest one decides; lazy as the logits.

        The largest probability P has the highest share of right pixels, but rarely chooses a rare
        class. Divided by the class frequencies π, as if all classes were equally frequent, common
        classes lose too many pixels to rare ones. r is the :attr:`exponent` between 0 and 1.
        """
        return self.logits(values) - self.exponent * np.log(self.frequency)

    def probabilities(self, values: Features) -> Array:
        """Probabilities (N, classes) of decision values (N,) or (N, t), each at least 1e-4."""
        logits = np.asarray(self.logits(np.asarray(values, dtype=np.float64)))
        exponents = np.exp(logits - logits.max(1, keepdims=True))
        shares = exponents / exponents.sum(1, keepdims=True)
        n_classes = self.intercept.size
        return MIN_PROBABILITY + (1.0 - n_classes * MIN_PROBABILITY) * shares

    def to_array(self) -> Array:
        """All in one array (classes, t + 3), as models are saved."""
        exponent = np.full(self.frequency.size, self.exponent)
        return np.column_stack([self.coef, self.intercept, self.frequency, exponent])

    @classmethod
    def from_array(cls, stored: Array) -> Calibration:
        """The inverse of :meth:`to_array`."""
        return cls(stored[:, :-3], stored[:, -3], stored[:, -2], float(stored[0, -1]))


def terms(values: Any, n_classes: int) -> Any:
    """Columns (N, t) that logits are linear in; lazy for a dask array.

    Of two classes the values themselves. Of more, also their squares: least squares give a class in
    the middle of others values that are never the largest, although they distinguish it.
    """
    columns = values[:, None] if values.ndim == 1 else values
    return columns if n_classes == 2 else np.concatenate([columns, columns**2], axis=1)


def calibrate(
    values: Features,
    codes: Index,
    area: Array,
    groups: Index,
    n_groups: int,
    n_classes: int,
    *,
    balanced: bool = False,
) -> Calibration:
    """Fit probabilities of the classes to the given labels.

    Parameters
    ----------
    values : (N,) or (N, classes) array
        Decision values, each from a model that never saw the row's group.
    codes : (N,) array of int
        Given classes, 0 … n_classes − 1.
    area : (N,) array
        Pixels of each row; 0 for rows that do not count.
    groups : (N,) array of int
        Image of each row, 0 … n_groups − 1.
    n_groups, n_classes : int
        Number of images and of classes.
    balanced : bool, default False
        Whether all classes have the same frequency. By default they have their natural ones.

    Returns
    -------
    Calibration
        Classes without rows have a probability of 1e-4.

    Notes
    -----
    Multinomial logistic regression, in which the rows of an image have weights in proportion to
    their area, with a sum of ρ². ρ is first the agreement of the predicted labels with the given
    ones and then their expected agreement under the probabilities (:func:`reliability`).

    With more than two classes of natural frequencies, the exponent of the decisions is the one with
    the highest mean IoU of decided and given classes, with the same weights.
    """
    index = _sample(groups, area)
    values = np.asarray(values, dtype=np.float64)[index]
    columns = terms(values, n_classes)
    if len(columns) < ROWS_PER_TERM * columns.shape[1]:
        columns = columns[:, : values[0].size if len(values) else 1]
    codes, area, groups = codes[index], area[index], groups[index]
    shares = _hard_shares(columns, n_classes)
    fitted: Calibration | None = None
    for _ in range(ROUNDS):
        rho = reliability(shares, codes, area, groups, n_groups)
        weight = _row_weights(rho, area, groups, n_groups)
        fitted = _fit(columns, codes, weight, n_classes, balanced=balanced)
        shares = fitted.probabilities(values)
    assert fitted is not None
    if n_classes == 2 or balanced:
        return fitted
    return replace(fitted, exponent=_best_exponent(fitted, values, codes, weight))


def reliability(shares: Array, codes: Index, area: Array, groups: Index, n_groups: int) -> Array:
    """Agreement ρ of probabilities with the given labels, per image.

    Parameters
    ----------
    shares : (N, classes) array
        Probabilities of the classes.
    codes, area, groups, n_groups
        As in :func:`calibrate`.

    Returns
    -------
    (J,) array
        Soft IoU, Σ a Y P / Σ a (Y + P − Y P), of the second class if there are two, else over all
        classes together, so that classes of a few pixels do not decide; 0 for images without area.
    """
    given = shares[np.arange(codes.size), codes]
    if shares.shape[1] == 2:
        positive = codes == 1
        both = np.where(positive, shares[:, 1], 0.0)
        union = np.where(positive, 1.0, shares[:, 1])
    else:
        both, union = given, 2.0 - given
    inside, total = (group_sums(groups, area * part, n_groups) for part in (both, union))
    return np.divide(inside, total, out=np.zeros(n_groups), where=total > 0)


def _sample(groups: Index, area: Array) -> Index:
    """Rows with an area; if there are very many, every n-th of them."""
    index = np.flatnonzero(area > 0)
    return index[:: -(-index.size // MAX_ROWS) or 1]


def _hard_shares(columns: Features, n_classes: int) -> Array:
    two = n_classes == 2
    best = (columns[:, 0] > 0).astype(np.intp) if two else columns[:, :n_classes].argmax(1)
    return np.eye(n_classes)[best]


def _row_weights(rho: Array, area: Array, groups: Index, n_groups: int) -> Array:
    total = group_sums(groups, area, n_groups)[groups]
    weight: Array = area / total * np.clip(rho, MIN_RELIABILITY, 1.0)[groups] ** 2
    return weight


def _best_exponent(
    calibration: Calibration, values: Features, codes: Index, weight: Array
) -> float:
    """The power of the class frequencies with the highest mean IoU of decided and given classes."""
    logits = calibration.logits(values)
    n_classes = calibration.frequency.size
    scores = []
    for exponent in EXPONENTS:
        decided = (logits - exponent * np.log(calibration.frequency)).argmax(1)
        table = np.bincount(codes * n_classes + decided, weight, n_classes**2)
        table = table.reshape(n_classes, n_classes)
        right, given = np.diagonal(table), table.sum(1)
        union = table.sum(0) + given - right
        scores.append(np.mean(right[given > 0] / union[given > 0]))
    return float(EXPONENTS[int(np.argmax(scores))])


def _fit(
    columns: Features, codes: Index, weight: Array, n_classes: int, *, balanced: bool
) -> Calibration:
    if balanced:
        totals = group_sums(codes, weight, n_classes)
        weight = weight / totals[codes]
    totals = group_sums(codes, weight, n_classes)
    frequency = np.maximum(totals / totals.sum(), MIN_PROBABILITY)
    present = np.unique(codes)
    coef = np.zeros((n_classes, columns.shape[1]))
    intercept = np.full(n_classes, np.log(MIN_PROBABILITY))
    if present.size < 2:
        intercept[present] = 0.0
        return Calibration(coef, intercept, frequency)
    weight = weight / weight.mean()
    if present.size == 2:
        with one_blas_thread():
            slopes = _fit_two(columns, codes == present[1], weight)
        coef[present[1]], intercept[present] = slopes[:-1], [0.0, slopes[-1]]
        return Calibration(coef, intercept, frequency)
    # Newton's method: few parameters, many rows, and values that are far from independent.
    regression = LogisticRegression(C=PENALTY, solver="newton-cholesky")
    regression.fit(columns, codes, sample_weight=weight)
    coef[present], intercept[present] = regression.coef_, regression.intercept_
    return Calibration(coef, intercept, frequency)


def _fit_two(columns: Features, positive: Mask, weight: Array) -> Array:
    """(t + 1,) slopes and intercept of the regression for two classes, by Newton's method.

    That of scikit-learn takes five times as long, and far longer on a machine with other work, as
    it starts threads for a few milliseconds.
    """
    rows = np.column_stack([columns, np.ones(len(columns))])
    target = positive.astype(np.float64)
    penalty = np.append(np.full(columns.shape[1], 1.0 / PENALTY), 0.0)

    def loss(slopes: Array) -> tuple[float, Array]:
        logits = rows @ slopes
        p = expit(logits)
        # -ln P of the given class, which is ln(1 + e^z) - y z.
        cost = np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0.0) - target * logits
        return float(weight @ cost) + 0.5 * float(penalty @ slopes**2), p

    slopes = np.zeros(rows.shape[1])
    value, p = loss(slopes)
    for _ in range(MAX_STEPS):
        gradient = rows.T @ (weight * (p - target)) + penalty * slopes
        curvature = rows.T @ (rows * (weight * p * (1.0 - p))[:, None]) + np.diag(penalty)
        step, *_ = np.linalg.lstsq(curvature, -gradient)
        decrease = -float(gradient @ step)
        if decrease <= STEP_TOLERANCE * len(rows):
            break
        size = 1.0
        while size > MIN_STEP:
            new_value, new_p = loss(slopes + size * step)
            if new_value <= value - 1e-4 * size * decrease:
                break
            size /= 2
        else:
            break
        slopes, value, p = slopes + size * step, new_value, new_p
    return slopes
