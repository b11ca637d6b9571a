"""Conversion of labels of any type to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Index, Labels, Mask
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.core.text import preview

__all__ = ["code_labels", "find_labels", "missing_labels"]


def code_labels(name: str, labels: Any) -> tuple[Labels, Index]:
    """Sorted distinct labels, and the position of each value's label among them."""
    coded = isinstance(labels, pd.Categorical)
    missing = np.flatnonzero(labels.codes < 0) if coded else missing_labels(labels)
    if missing.size:
        raise InputError(
            f"{name} has NaN or None at position(s) {preview(missing)}: "
            "add the missing labels or drop those rows"
        )
    if coded:
        used, place = np.unique(labels.codes, return_inverse=True)
        names, order = code_labels(name, np.asarray(labels.categories[used], dtype=object))
        return names, order[place]
    try:
        distinct, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in labels})
        raise InputTypeError(
            f"{name} mixes labels of types {', '.join(kinds)} that cannot be ordered: "
            "use one type, for example all strings"
        ) from error
    return _narrow(distinct), codes.astype(np.intp)


def _narrow(distinct: Labels) -> Labels:
    """Convert objects of one plain type to an array of that type."""
    if distinct.dtype == object:
        if all(isinstance(value, str) for value in distinct):
            return distinct.astype(str)
        if all(isinstance(value, (bool, int, float, np.generic)) for value in distinct):
            return np.array(distinct.tolist())
    return distinct


def find_labels(known: Labels, labels: Labels) -> tuple[Index, Mask]:
    """Position of each label among the sorted ``known`` ones, and whether it is one of them."""
    if _kind(known) != _kind(labels):
        return np.zeros(labels.size, dtype=np.intp), np.zeros(labels.size, dtype=bool)
    place = np.minimum(np.searchsorted(known, labels), known.size - 1)
    return place, np.asarray(known[place] == labels)


def _kind(labels: Labels) -> str:
    """Kind of labels that can be compared with each other: numbers, or text."""
    return "number" if labels.dtype.kind in "biuf" else labels.dtype.kind


def missing_labels(labels: Labels) -> Index:
    """Positions of values that are None, NaN or NaT."""
    if labels.dtype.kind == "f":
        return np.flatnonzero(~np.isfinite(labels))
    if labels.dtype.kind in "mM":
        return np.flatnonzero(np.isnat(labels))
    if labels.dtype == object:
        return np.flatnonzero([_is_missing(value) for value in labels])
    return np.empty(0, dtype=np.intp)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA is neither true nor false
        return True
