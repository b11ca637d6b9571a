"""The GP with one noise variance on nested subsets of the images, with one read of the data.

With one noise variance, a fit needs the moments FᵀWF, FᵀWy of its subset only, and class weights
scale the moments of each class. The moments of each class in each ring (the images that a subset
has in addition to the previous one) are therefore summed in one read and serve all subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import ceil

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Index, Labels, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.dataset import provenance
from gpgc_dask.data.training import TrainingArrays, training_arrays
from gpgc_dask.execution.row_blocks import sample_rows, select_rows
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.fit import fit_surveyed
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import FAN_IN, DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic, MomentSums
from gpgc_dask.gp.oracle.rows import Survey
from gpgc_dask.gp.oracle.statistics import StatisticsOracle
from gpgc_dask.gp.warm_start import SAMPLE_ROWS, sample_offset
from gpgc_dask.models.gp import GP
from gpgc_dask.models.validation import check_training

__all__ = ["fit_nested"]

PARTIAL_BYTES = 4 << 30
"""Memory for the sums of a task and of those it merges; beyond it, there are more reads."""


def fit_nested(
    dataset: xr.Dataset, subsets: Sequence[Labels], *, redundancy: float = 1.0
) -> list[GP | None]:
    """Fit a GP to each of several nested subsets of the photos of a dataset.

    Parameters
    ----------
    dataset : xarray.Dataset
    subsets : sequence of (n,) array of int
        Numbers of photos, each a subset of the next.
    redundancy : float, default 1.0
        Redundancy c. It cannot be learned here, because that needs the rows again.

    Returns
    -------
    list of GP or None
        Equal to fits to the subsets alone, in float64. None for a subset that lacks a class.
        ``n_reads_`` is the number of reads for all models together: 1, or more if the moments of
        all rings and classes do not fit into memory at once.
    """
    arrays = training_arrays(dataset)
    ring = _rings(subsets, dataset.sizes["photo"])
    codes = np.asarray(arrays.y, dtype=np.intp)
    n_classes = int(codes.max()) + 1
    image = np.asarray(dataset["image"].values)
    cell = ring[image] * n_classes + codes
    sums, arithmetic, reads = _cell_sums(arrays, codes, cell, n_classes, len(subsets) * n_classes)
    models: list[GP | None] = []
    for number in range(len(subsets)):
        own = (ring <= number)[image]
        cells = [(c, sums.get(c)) for c in range((number + 1) * n_classes)]
        models.append(
            _fit(dataset, arrays, own, [(c % n_classes, s) for c, s in cells if s is not None],
                 arithmetic, reads, redundancy)
        )  # fmt: skip
    return models


def _rings(subsets: Sequence[Labels], n_photos: int) -> Index:
    """(photos,) index of the first subset that contains the photo, or the number of subsets."""
    ring = np.full(n_photos, len(subsets), dtype=np.intp)
    inside = np.zeros(n_photos, dtype=bool)
    for number, photos in enumerate(subsets):
        chosen = np.zeros(n_photos, dtype=bool)
        chosen[np.asarray(photos)] = True
        if np.any(inside & ~chosen):
            raise InputError(
                f"subset {number} lacks photos of the previous one: pass nested subsets"
            )
        ring[chosen & ~inside] = number
        inside = chosen
    return ring


def _cell_sums(
    arrays: TrainingArrays, codes: Index, cell: Index, n_classes: int, n_cells: int
) -> tuple[dict[int, MomentSums], Arithmetic, int]:
    """Moments at unit noise of each (ring, class), the arithmetic, and the number of reads."""
    k = arrays.X.shape[1]
    _, sample = sample_rows(arrays.X, SAMPLE_ROWS)
    arithmetic = Arithmetic(np.dtype(np.float64), sample_offset(sample))
    rows = Rows(codes, arrays.weight, cell, n_classes, int(max(cell.max() + 1, n_cells)))
    sweeps = DaskSweeps(arrays.X, rows, arithmetic)
    passes = ceil(n_cells * 8 * k * k * (FAN_IN + 4) / PARTIAL_BYTES)
    sums: dict[int, MomentSums] = {}
    for part in np.array_split(np.arange(n_cells), passes):
        apart = np.zeros(rows.n_groups, dtype=bool)
        apart[part] = True
        sums |= {c: each for c, each in sweeps.group_sums(apart).items() if c >= 0}
    return sums, arithmetic, passes


def _fit(
    dataset: xr.Dataset,
    arrays: TrainingArrays,
    own: Mask,
    cells: list[tuple[int, MomentSums]],
    arithmetic: Arithmetic,
    reads: int,
    redundancy: float,
) -> GP | None:
    """Fit the GP to the rows in ``own``; ``cells`` are their (class, moments at unit noise)."""
    model = GP(redundancy=redundancy, dtype="float64")
    weighted = own & (arrays.weight > 0)
    if np.unique(arrays.y[weighted]).size < np.unique(arrays.y).size:
        return None
    training = check_training(
        select_rows(arrays.X, own),
        arrays.y[own],
        arrays.groups[own].remove_unused_categories(),
        arrays.feature_groups,
        arrays.weight[own],
        model.class_weight,
    )
    moments: Moments = reduce(
        Moments.__add__,
        (sums.finish(arithmetic).scale(training.class_weight[c]) for c, sums in cells),
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
    model.n_features_in_ = arrays.X.shape[1]
    return model
