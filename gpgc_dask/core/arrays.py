"""Types of the arrays that modules exchange, and sums over groups."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Features",
    "Index",
    "Labels",
    "Mask",
    "fill_upper",
    "group_sums",
    "nearest_rows",
]

Array: TypeAlias = NDArray[np.float64]
Features: TypeAlias = NDArray[Any]
"""Rows × features, in the float type in which they are stored."""
Index: TypeAlias = NDArray[np.intp]
Labels: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]


def group_sums(index: Index, values: Any, n: int) -> Array:
    """Sums of ``values`` over the rows of each of n groups, (n,)."""
    return np.bincount(index, values, n).astype(np.float64, copy=False)


def fill_upper(matrix: Array, block: int = 256) -> Array:
    """Copy the lower triangle of a square matrix to the upper one, in place and by blocks."""
    for start in range(0, len(matrix), block):
        rows = slice(start, start + block)
        matrix[:start, rows] = matrix[rows, :start].T
        corner = matrix[rows, rows]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return matrix


def nearest_rows(n: int, source: int) -> Index:
    """(n,) index of the nearest of ``source`` pixels in a line, for each of n pixels in a line."""
    return (2 * np.arange(n) + 1) * source // (2 * n)
