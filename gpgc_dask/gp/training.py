"""The training data of one fit, validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.gp.oracle.base import Rows

__all__ = ["Training"]


@dataclass(frozen=True)
class Training:
    """Validated training data: X a NumPy or dask array of floats, labels in their own type."""

    X: Any
    rows: Rows
    classes: Labels
    class_weight: Array
    groups: Labels
    feature_index: Index
    feature_groups: Labels
