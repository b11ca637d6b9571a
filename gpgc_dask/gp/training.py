"""The training data of one fit, validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpgc_dask.core.arrays import Array, Index, Labels
from gpgc_dask.gp.noise import NoiseModel
from gpgc_dask.gp.oracle.base import Rows

__all__ = ["Training"]


@dataclass(frozen=True)
class Training:
    """Validated training data of one fit.

    Attributes
    ----------
    X : NumPy or dask array of shape (N, k)
        Features.
    rows : Rows
        Class, weight and group of each row.
    sample_weight : array of shape (N,)
        Weights of the caller, which those of ``rows`` are times the class weights.
    classes : array of shape (C,)
        Class labels, sorted, in the type they were passed in.
    class_weight : array of shape (C,)
        Factor of the weights of each class.
    groups : array of shape (J,)
        Group labels, sorted.
    noise : NoiseModel
        Which noise variance each group uses.
    noise_groups : array of shape (M,) or None
        Labels of the owners that share a noise variance; None if there are no owners.
    feature_index : array of int of shape (k,)
        Feature group of each column.
    feature_groups : array of shape (n_g,)
        Labels of the feature groups, sorted.
    """

    X: Any
    rows: Rows
    sample_weight: Array
    classes: Labels
    class_weight: Array
    groups: Labels
    noise: NoiseModel
    noise_groups: Labels | None
    feature_index: Index
    feature_groups: Labels
