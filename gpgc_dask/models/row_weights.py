"""Weights of the rows of a fit, by which its groups are found again later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpgc_dask.core.arrays import Array, Features, Index, Labels
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
    """

    weights: Features
    sizes: Index
    digests: Digests

    @classmethod
    def from_rows(cls, weights: Features, rows: Rows, sample_weight: Array) -> RowWeights:
        """Keep weights (N,) of rows with labels, groups and the caller's weights (N,)."""
        order = np.argsort(rows.groups, kind="stable")
        sizes = rows.group_sizes
        digests = _digests(rows.codes[order], sample_weight[order], sizes)
        return cls(weights[order], sizes, digests)

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
        order = np.argsort(rows.groups, kind="stable")
        sizes = rows.group_sizes
        place, known = find_labels(groups, names)
        digests = _digests(rows.codes[order], sample_weight[order], sizes)
        other = known & ((sizes != self.sizes[place]) | (digests != self.digests[place]))
        if other.any():
            raise InputError(
                f"the rows of group(s) {preview(names[other])} are not those of the fit, whose "
                "weights the second look has learned: pass all rows of a group with the labels and "
                "sample_weight of the fit, or fit the model to these rows"
            )
        starts = np.cumsum(self.sizes) - self.sizes
        position = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        index = np.repeat(np.where(known, starts[place], 0), sizes) + position
        own = np.repeat(known, sizes)
        found = np.zeros(len(rows))
        found[order[own]] = self.weights[index[own]]
        return found


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
