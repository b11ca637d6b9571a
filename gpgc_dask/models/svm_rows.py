"""Rows that an SVM is trained on: which, in which folds, and loading them into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.utils import check_random_state

from gpgc_dask.core.arrays import Array, Index, group_sums
from gpgc_dask.core.errors import InputError, NotFiniteError
from gpgc_dask.core.text import preview
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask, select_rows
from gpgc_dask.gp.training import Training

__all__ = ["check_finite_values", "fold_numbers", "is_usable_in_place", "load_rows", "sample_rows"]


def sample_rows(
    training: Training, max_rows: int | None, random_state: Any, *, grouped: bool
) -> Index:
    """Numbers of the rows to train on, increasing: those with weight, or a sample of them.

    A sample consists of whole groups, or of single rows if there are no groups.
    """
    rows = training.rows
    used = np.flatnonzero(rows.weights > 0)
    if max_rows is None or used.size <= max_rows:
        return used
    permutation = check_random_state(random_state).permutation
    if not grouped:
        sample = np.sort(permutation(used)[:max_rows])
    else:
        sizes = group_sums(rows.groups[used], None, rows.n_groups)
        order = permutation(np.flatnonzero(sizes))
        groups = order[np.cumsum(sizes[order]) <= max_rows]
        sample = used[np.isin(rows.groups[used], groups)]
    missing = group_sums(rows.codes[sample], None, rows.n_classes) == 0
    missing &= group_sums(rows.codes[used], None, rows.n_classes) > 0
    if missing.any():
        raise InputError(
            f"max_rows={max_rows} is too small: whole groups drawn at random make {sample.size} "
            f"rows, with none of class(es) {preview(training.classes[missing])}; raise it"
        )
    return sample.astype(np.intp)


def fold_numbers(codes: Index, groups: Index | None, n_folds: int) -> Index:
    """(n,) fold of each row: whole groups, or single rows of each class in turn."""
    fold = np.empty(codes.size, dtype=np.intp)
    if groups is None:
        fold[np.argsort(codes, kind="stable")] = np.arange(codes.size) % n_folds
        return fold
    n_folds = min(n_folds, np.unique(groups).size)
    if n_folds < 2:
        raise InputError(
            "groups has one group only among the rows to train on, and C is chosen on held-out "
            "groups: pass C=, or no groups (folds of single rows), or more groups (a larger "
            "max_rows)"
        )
    for number, (_, held) in enumerate(GroupKFold(n_folds).split(codes, groups=groups)):
        fold[held] = number
    return fold


def is_usable_in_place(X: Any, rows: Index) -> bool:
    """Whether LibLinear can use X without a copy."""
    whole = not is_dask(X) and len(rows) == len(X)
    return whole and X.dtype == np.float64 and X.flags.c_contiguous


def load_rows(X: Any, rows: Index) -> Array:
    """Rows of X in memory, float64 and C-ordered; X itself if LibLinear can share it."""
    whole = rows.size == X.shape[0]
    if not is_dask(X):
        return np.ascontiguousarray(X if whole else X[rows], dtype=np.float64)
    if not whole:
        X = select_rows(X, np.isin(np.arange(X.shape[0]), rows))
    (loaded,) = compute(X.astype(np.float64))
    return check_finite_values(np.ascontiguousarray(loaded), rows)


def check_finite_values(values: Array, rows: Index | None = None) -> Array:
    """The values, (N,) or (N, any); raise a NotFiniteError that names the rows if some are not."""
    if np.isfinite(values.sum()):
        return values
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if not bad.size:
        return values
    raise NotFiniteError((bad if rows is None else rows[bad]).tolist())
