"""Agreement of predicted with given labels per group, weighted by the area of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, wilcoxon

from gpgc_dask.core.arrays import Array, Index, Labels, Mask, group_sums

__all__ = [
    "LEVEL",
    "GroupAgreement",
    "SignedRank",
    "average_class_accuracy",
    "confusion_matrix",
    "group_agreement",
    "mean_where",
    "signed_rank",
]

LEVEL = 1e-3
"""Significance level: differences with a smaller p are significant, as in the paper."""


@dataclass(frozen=True)
class GroupAgreement:
    """How well predictions agree with the given labels in each group.

    Attributes
    ----------
    groups : (J,) array
        Labels of the groups.
    iou : (J,) array
        Intersection over union of the positive class (two classes), or its mean over the classes
        that occur (more than two); 1 if neither labels nor predictions contain any.
    balanced_accuracy : (J,) array
        Recall, averaged over the classes that the labels contain.
    class_iou : (J, classes) array
        Intersection over union of each class; NaN if neither labels nor predictions contain it.
    """

    groups: Labels
    iou: Array
    balanced_accuracy: Array
    class_iou: Array


def group_agreement(
    given: Index,
    predicted: Index,
    groups: Index,
    area: Array,
    n_classes: int,
    labels: Labels,
) -> GroupAgreement:
    """Compare class codes ``given`` and ``predicted`` (N,) within each of ``groups`` (N,).

    Parameters
    ----------
    given, predicted : (N,) array of int
        Class codes.
    groups : (N,) array of int
        Number of the group of each row, 0 … J − 1.
    area : (N,) array
        Weight of each row, its number of pixels.
    n_classes : int
        Number of classes.
    labels : (J,) array
        Names of the groups.

    Returns
    -------
    GroupAgreement

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask.core.metrics import group_agreement
    >>> given, predicted = np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1])
    >>> groups = np.array([0, 0, 1, 1])
    >>> names = np.array(["a", "b"])
    >>> agreement = group_agreement(given, predicted, groups, np.ones(4), 2, names)
    >>> agreement.iou.tolist()
    [0.5, 1.0]
    """
    n_groups = labels.size
    shape = (n_groups, n_classes)

    def total(codes: Index, weight: Array) -> Array:
        cells = group_sums(groups * n_classes + codes, weight, n_groups * n_classes)
        return cells.reshape(shape)

    both = total(given, area * (given == predicted))
    truth, guess = total(given, area), total(predicted, area)
    union = truth + guess - both
    with np.errstate(invalid="ignore"):
        iou = both / union
        recall = both / truth
    if n_classes == 2:
        positive = np.where(union[:, 1] > 0, iou[:, 1], 1.0)
    else:
        positive = mean_where(iou, union > 0)
    return GroupAgreement(labels, positive, mean_where(recall, truth > 0), iou)


def mean_where(values: Array, where: Mask) -> Array:
    """Row means over the marked entries; NaN for rows without any."""
    count = where.sum(1)
    total = np.where(where, values, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def confusion_matrix(given: Index, predicted: Index, n_classes: int) -> Array:
    """Number of pixels by given and by predicted class.

    Parameters
    ----------
    given, predicted : array of int
        Class codes of one shape. Pixels with a code outside 0 … n_classes − 1 (void) in either do
        not count.
    n_classes : int
        Number of classes.

    Returns
    -------
    (n_classes, n_classes) array
        Rows are given classes, columns are predicted ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask.core.metrics import confusion_matrix
    >>> confusion_matrix(np.array([0, 1, 1, 255]), np.array([0, 1, 0, 1]), 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    inside = (given >= 0) & (given < n_classes) & (predicted >= 0) & (predicted < n_classes)
    cells = given[inside].astype(np.intp) * n_classes + predicted[inside].astype(np.intp)
    return group_sums(cells, None, n_classes * n_classes).reshape(n_classes, n_classes)


def average_class_accuracy(hits: Array, totals: Array) -> float:
    """Share of correctly predicted pixels per class, averaged over the classes that occur."""
    present = totals > 0
    return float(np.mean(hits[present] / totals[present]))


@dataclass(frozen=True)
class SignedRank:
    """Result of a two-sided Wilcoxon signed-rank test of paired values.

    Attributes
    ----------
    p : float
        The p-value; 1 if no pair differs.
    lean : float
        Sum of the signed ranks: above 0 if the first values tend to be larger.
    better, worse : int
        Number of pairs in which the first value is larger, and smaller.
    too_few : bool
        Whether so few pairs differ that p cannot be below LEVEL.
    """

    p: float
    lean: float
    better: int
    worse: int
    too_few: bool

    @property
    def significant(self) -> bool:
        """Whether p is below LEVEL."""
        return self.p < LEVEL


def signed_rank(first: Array, second: Array) -> SignedRank:
    """Test paired values (n,); pairs with a NaN are left out."""
    gain = first - second
    gain = gain[np.isfinite(gain)]
    uneven = gain[gain != 0]
    if not uneven.size:
        return SignedRank(1.0, 0.0, 0, 0, True)
    # No outcome has a smaller p than that in which all differences have one sign.
    min_p = float(wilcoxon(np.abs(gain)).pvalue)
    return SignedRank(
        p=float(wilcoxon(gain).pvalue),
        lean=float(rankdata(np.abs(uneven)) @ np.sign(uneven)),
        better=int(np.sum(gain > 0)),
        worse=int(np.sum(gain < 0)),
        too_few=min_p >= LEVEL,
    )
