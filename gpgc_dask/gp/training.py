"""The training data of one fit, validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Index, Labels, Mask
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
    owners : array of int of shape (J,) or None
        Owner of each group.
    feature_index : array of int of shape (k,)
        Feature group of each column.
    feature_groups : array of shape (n_g,)
        Labels of the feature groups, sorted.
    trusted : bool array of shape (J,) or None
        Groups whose labels are known to be right; None if none are.
    """

    X: Any
    rows: Rows
    sample_weight: Array
    classes: Labels
    class_weight: Array
    groups: Labels
    noise: NoiseModel
    noise_groups: Labels | None
    owners: Index | None
    feature_index: Index
    feature_groups: Labels
    trusted: Mask | None = None

    def owner_values(self, per_group: Array) -> Array:
        """(M,) values of the owners, from (J,) values of their groups.

        Those of an owner's trusted groups count only if it has no others.
        """
        assert self.owners is not None
        values = np.empty(int(self.owners.max()) + 1)
        values[self.owners] = per_group
        if self.noise.held is not None:
            free = ~self.noise.held
            values[self.owners[free]] = per_group[free]
        return values
