"""Weights of the rows of a fit, by which its groups are found again later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpgc_dask.core.arrays import Array, Features, Index, Labels, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.text import preview
from gpgc_dask.gp.oracle.base import Rows

__all__ = ["Digests", "RowWeights"]

Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a fit, group by group.

    Attributes
    ----------
    weights : (N,) array of float32
        Weights, first those of the first group. Rows of a group are in the order of the fit.
    sizes : (J,) array of int
        Number of rows of each group.
    digests : (J,) array of uint64
        Digest of the labels and weights that the caller passed for the rows of each group.
    codes : (N,) array of uint8 or uint16, or None
        Classes of the rows in the order of ``weights``; None if an older version has saved them.
    """

    weights: Features
    sizes: Index
    digests: Digests
    codes: npt.NDArray[np.unsignedinteger[Any]] | None = None

    @classmethod
    def from_rows(cls, weights: Features, rows: Rows, sample_weight: Array) -> RowWeights:
        """Keep weights (N,) of rows with labels, groups and the caller's weights (N,)."""
        order = np.argsort(rows.groups, kind="stable")
        sizes = rows.group_sizes
        digests = _digests(rows.codes[order], sample_weight[order], sizes)
        codes = rows.codes[order].astype(np.min_scalar_type(rows.n_classes))
        return cls(weights[order], sizes, digests, codes)

    def find(self, groups: Labels, names: Labels, rows: Rows, sample_weight: Array) -> Array:
        """Weights (N,) of rows, of all groups of the fit or of some of them.

        Parameters
        ----------
        groups : (J,) array
            Names of the groups of the fit.
        names : array
            Names of the groups of ``rows``.
        rows : Rows
            Labels and groups of the rows.
        sample_weight : (N,) array
            Weights of the caller.

        Returns
        -------
        (N,) array
            0 for rows of groups that were not in the fit.

        Raises
        ------
        InputError
            If a group has other rows, labels or weights than in the fit.
        """
        place, known = find_labels(groups, names)
        other = known & self.differ(place, rows, sample_weight)
        if other.any():
            raise InputError(
                f"the rows of group(s) {preview(names[other])} are not those of the fit, whose "
                "weights the second look has learned: pass all rows of a group with the labels and "
                "sample_weight of the fit, or fit the model to these rows"
            )
        order, index = self._order(place, known, rows)
        own = known[rows.groups[order]]
        found = np.zeros(len(rows))
        found[order[own]] = self.weights[index[own]]
        return found

    def differ(self, place: Index, rows: Rows, sample_weight: Array) -> Mask:
        """Whether groups at ``place`` among those of the fit have other rows, labels or weights."""
        order = np.argsort(rows.groups, kind="stable")
        digests = _digests(rows.codes[order], sample_weight[order], rows.group_sizes)
        other: Mask = rows.group_sizes != self.sizes[place]
        return other | (digests != self.digests[place])

    def at(self, place: Index, rows: Rows) -> tuple[Array, Index]:
        """Weights and classes (N,) in the fit of rows of its groups at ``place``, all of them."""
        assert self.codes is not None
        order, index = self._order(place, np.ones(place.size, dtype=bool), rows)
        weights, codes = np.empty(len(rows)), np.empty(len(rows), dtype=np.intp)
        weights[order], codes[order] = self.weights[index], self.codes[index]
        return weights, codes

    def _order(self, place: Index, known: Mask, rows: Rows) -> tuple[Index, Index]:
        """(N,) rows by group, and where the row of the fit is that each of them was."""
        order = np.argsort(rows.groups, kind="stable")
        sizes = rows.group_sizes
        starts = np.cumsum(self.sizes) - self.sizes
        position = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return order, np.repeat(np.where(known, starts[place], 0), sizes) + position


def _digests(codes: Index, weight: Array, sizes: Index) -> Digests:
    """(J,) sums of hashes of the position in the group, label and weight of its rows."""
    ends = np.cumsum(sizes)
    position = np.arange(codes.size) - np.repeat(ends - sizes, sizes)
    label = _mix((position.astype(np.uint64) << np.uint64(16)) + codes.astype(np.uint64))
    hashes = _mix(label ^ (np.asarray(weight, dtype=np.float64) + 0.0).view(np.uint64))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes)])  # modulo 2⁶⁴
    return total[ends] - total[ends - sizes]


def _mix(values: Digests) -> Digests:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the value."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
