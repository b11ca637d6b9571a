"""Margins of labels under decision values, and confidences from them."""

from __future__ import annotations

import numpy as np

from gpgc_dask.core.arrays import Array, Index, group_sums
from gpgc_dask.gp.oracle.base import Rows

__all__ = ["group_means", "label_margins", "margin_confidence"]


def label_margins(values: Array, codes: Index) -> Array:
    """(N,) margin of each row's label: y f, or its f minus the largest of the other classes'.

    Parameters
    ----------
    values : (N,) or (N, classes) array
        Decision values.
    codes : (N,) array of int
        Classes of the rows.
    """
    if values.ndim == 1:
        return np.where(codes == 1, values, -values)
    own = np.arange(len(values)), codes
    others = values.copy()
    others[own] = -np.inf
    return values[own] - others.max(1)


def group_means(values: Array, rows: Rows) -> Array:
    """(J,) weighted means of the groups' values (N,); NaN where there is no weight."""
    total = rows.group_weight
    sums = group_sums(rows.groups, rows.weights * values, rows.n_groups)
    return np.divide(sums, total, out=np.full(rows.n_groups, np.nan), where=total > 0)


def margin_confidence(margin: Array) -> Array:
    """(J,) share of the groups with a smaller margin; NaN where there is none."""
    known = np.sort(margin[np.isfinite(margin)])
    share = np.searchsorted(known, margin, side="left") / max(known.size, 1)
    return np.where(np.isfinite(margin), share, np.nan)
