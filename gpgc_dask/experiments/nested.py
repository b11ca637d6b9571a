"""The single-noise GP on nested subsets of a dataset's images, for one read of the data.

With one noise for all, the moments FᵀWF, FᵀWy of a subset are all that its fit needs, and class
weights only scale the moments of each class. So the moments of every ring (what a subset has more
than the one inside it) and class, summed in one read, serve all subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import ceil
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Index, Labels, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.dataset import provenance
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.row_blocks import sample_rows, select_rows
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.fit import fit_surveyed
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import FAN_IN, DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic, MomentSums
from gpgc_dask.gp.oracle.rows import Survey
from gpgc_dask.gp.oracle.statistics import StatisticsOracle
from gpgc_dask.gp.warm_start import LOOK_ROWS, sample_offset
from gpgc_dask.models.gp import GP
from gpgc_dask.models.validation import check_training

__all__ = ["fit_nested"]

PARTIAL_BYTES = 4 << 30
"""Memory that the sums of a task and of those it merges may take; beyond, there are more reads."""


def fit_nested(
    dataset: xr.Dataset, subsets: Sequence[Labels], *, redundancy: float = 1.0
) -> list[GP | None]:
    """A ``GP(redundancy=…)`` for each of some nested subsets of a dataset's photos.

    subsets : numbers of photos, each a subset of the next
    redundancy : c, a number: solving for it would ask for the rows again

    Equal to fits on the subsets alone, in float64. None for a subset that lacks a class.
    ``n_reads_`` of the models is what all of them took together: 1, more only where the moments
    of all rings and classes do not fit into memory at once.
    """
    given = training_arrays(dataset)
    ring = _rings(subsets, dataset.sizes["photo"])
    codes = np.asarray(given.y, dtype=np.intp)
    n_classes = int(codes.max()) + 1
    image = np.asarray(dataset["image"].values)
    cell = ring[image] * n_classes + codes
    sums, arithmetic, reads = _cell_sums(given, codes, cell, n_classes, len(subsets) * n_classes)
    models: list[GP | None] = []
    for number in range(len(subsets)):
        own = (ring <= number)[image]
        found = [(c, sums.get(c)) for c in range((number + 1) * n_classes)]
        models.append(
            _fit(dataset, given, own, [(c % n_classes, s) for c, s in found if s is not None],
                 arithmetic, reads, redundancy)
        )  # fmt: skip
    return models


def _rings(subsets: Sequence[Labels], n_photos: int) -> Index:
    """(photos,) the first subset that each photo is in; their number where it is in none."""
    ring = np.full(n_photos, len(subsets), dtype=np.intp)
    inside = np.zeros(n_photos, dtype=bool)
    for number, photos in enumerate(subsets):
        chosen = np.zeros(n_photos, dtype=bool)
        chosen[np.asarray(photos)] = True
        if np.any(inside & ~chosen):
            raise InputError(f"subset {number} lacks photos of the one before: pass nested subsets")
        ring[chosen & ~inside] = number
        inside = chosen
    return ring


def _cell_sums(
    given: Any, codes: Index, cell: Index, n_classes: int, n_cells: int
) -> tuple[dict[int, MomentSums], Arithmetic, int]:
    """Moments at unit noise of each (ring, class), and how many reads they took."""
    k = given.X.shape[1]
    _, sample = sample_rows(given.X, LOOK_ROWS)
    arithmetic = Arithmetic(np.dtype(np.float64), sample_offset(sample))
    rows = Rows(codes, given.weight, cell, n_classes, int(max(cell.max() + 1, n_cells)))
    sweeps = DaskSweeps(given.X, rows, arithmetic)
    passes = ceil(n_cells * 8 * k * k * (FAN_IN + 4) / PARTIAL_BYTES)
    found: dict[int, MomentSums] = {}
    for part in np.array_split(np.arange(n_cells), passes):
        apart = np.zeros(rows.n_groups, dtype=bool)
        apart[part] = True
        found |= {c: sums for c, sums in sweeps.group_sums(apart).items() if c >= 0}
    return found, arithmetic, passes


def _fit(
    dataset: xr.Dataset,
    given: Any,
    own: Mask,
    cells: list[tuple[int, MomentSums]],
    arithmetic: Arithmetic,
    reads: int,
    redundancy: float,
) -> GP | None:
    """The GP of the rows in ``own``, whose moments at unit noise are ``cells`` of (class, sums)."""
    model = GP(redundancy=redundancy, dtype="float64")
    weighted = own & (given.weight > 0)
    if np.unique(given.y[weighted]).size < np.unique(given.y).size:
        return None
    training = check_training(
        select_rows(given.X, own),
        given.y[own],
        given.groups[own].remove_unused_categories(),
        given.feature_groups,
        given.weight[own],
        model.class_weight,
    )
    moments: Moments = reduce(
        Moments.__add__,
        (sums.finish(arithmetic).scaled(training.class_weight[c]) for c, sums in cells),
    )
    weight = np.array([training.rows.weights.sum()])
    oracle = StatisticsOracle(
        moments.gram[None], moments.cross[None], np.array([moments.yy]), weight
    )
    oracle.reads = reads
    variance = MomentSums.merge([sums for _, sums in cells]).column_variance()
    model._learn(
        training, fit_surveyed(training, model._options(), Survey(moments, oracle, variance))
    )
    model._remember(provenance(dataset))
    model.n_features_in_ = given.X.shape[1]
    return model
