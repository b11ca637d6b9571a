"""A sample of rows before the first read: for the offset, the arithmetic, and a warm start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.execution.row_blocks import SAMPLE_BLOCKS, is_dask, sample_rows, take_rows
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.layout import is_adjacent

__all__ = ["Sample", "draw_sample", "sample_offset", "warm_start_rows"]

SAMPLE_ROWS = 2048
"""Number of rows used to choose the offset and to check float32."""

WARM_ROWS_PER_FEATURE = 4
"""Rows per feature in the sample of a warm start."""

WARM_PART = 1 / 32
"""Share of the rows that the sample may have beyond that: it costs about a tenth of a read."""

WARM_GROUPS = 24
"""Minimum number of groups of that sample: the redundancy is estimated on it."""

WARM_SHARE = 1 / 8
"""Maximum share of all rows for which the sample is worth its time."""

WARM_BYTES = 1 << 28
"""Maximum size of the sample in the memory of the driver, as stored."""


@dataclass(frozen=True)
class Sample:
    """Some rows of X in memory.

    Attributes
    ----------
    index : array of int of shape (n,)
        Positions of the rows in X.
    features : array of shape (n, k)
        Features of the rows.
    groups : array of int or None
        Groups of the rows if the sample consists of whole groups, else None.
    share : float
        Share of X that was read for the sample.
    """

    index: Index
    features: Features
    groups: Index | None = None
    share: float = 0.0

    def thin(self) -> tuple[Index, Features]:
        """Positions and features of about SAMPLE_ROWS of the rows."""
        step = max(len(self.index) // SAMPLE_ROWS, 1)
        return self.index[::step], self.features[::step]


def warm_start_rows(
    n_rows: int, n_features: int, n_groups: int, largest_group: int, itemsize: int
) -> int:
    """Number of rows in the sample of a warm start, 0 if a warm start is not worth it.

    Parameters
    ----------
    n_rows, n_features, n_groups : int
        Sizes of the data.
    largest_group : int
        Number of rows of the largest group.
    itemsize : int
        Bytes per stored number.
    """
    groups = WARM_GROUPS * n_rows // n_groups
    part = int(WARM_PART * n_rows)
    wanted = max(WARM_ROWS_PER_FEATURE * n_features, groups, SAMPLE_ROWS, part)
    wanted = min(wanted, WARM_BYTES // (n_features * itemsize))
    worth = groups <= wanted <= WARM_SHARE * n_rows
    # Larger groups become sufficient statistics: they are read once anyway.
    return wanted if worth and largest_group <= n_features else 0


def draw_sample(X: Any, rows: Rows, *, warm: bool) -> Sample:
    """Draw whole groups for a warm start if ``warm`` and if it is worth it; else some rows of X.

    Parameters
    ----------
    X : array or dask array of shape (N, k)
        Features.
    rows : Rows
        Classes, weights and groups of the rows.
    warm : bool
        Whether the fit can use a warm start.
    """
    n, k = X.shape
    largest = int(rows.group_sizes.max())
    wanted = warm_start_rows(n, k, rows.n_groups, largest, X.dtype.itemsize) if warm else 0
    if wanted and is_adjacent(rows.groups):
        return _whole_groups(X, rows, wanted)
    if is_dask(X):
        return Sample(*sample_rows(X, SAMPLE_ROWS))
    index = np.arange(0, len(X), max(len(X) // SAMPLE_ROWS, 1))
    return Sample(index, np.asarray(X[index]))


def _whole_groups(X: Any, rows: Rows, wanted: int) -> Sample:
    """Groups that together have about ``wanted`` rows, from a few blocks spread over X."""
    starts = np.flatnonzero(np.diff(rows.groups, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    bounds = np.concatenate([[0], np.cumsum(X.chunks[0])]) if is_dask(X) else np.array([0, len(X)])
    blocks = np.searchsorted(bounds, starts, side="right") - 1
    inside = ends <= bounds[blocks + 1]
    if is_dask(X):
        full = np.unique(blocks[inside])
        chosen = full[np.linspace(0, full.size - 1, min(full.size, SAMPLE_BLOCKS)).astype(int)]
    else:
        # Rows in memory have no blocks: equal parts take their place.
        blocks = np.arange(starts.size) * SAMPLE_BLOCKS // starts.size
        chosen = np.arange(SAMPLE_BLOCKS)
    sampled: list[int] = []
    for block in chosen:
        own = np.flatnonzero((blocks == block) & inside)
        enough = np.searchsorted(np.cumsum((ends - starts)[own]), wanted / chosen.size) + 1
        sampled.extend(own[:enough].tolist())
    groups = np.sort(rows.groups[starts[sampled]])
    index, _ = rows.select(groups)
    if is_dask(X):
        read = float(np.diff(bounds)[chosen].sum()) / len(rows)
        return Sample(index, take_rows(X, index), groups, read)
    return Sample(index, np.asarray(X[index]), groups, index.size / len(rows))


def sample_offset(sample: Features) -> Array:
    """(k,) offset of the products: about the column means, exactly representable in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sample.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(mean), mean, 0.0)
