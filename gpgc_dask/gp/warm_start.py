"""A few rows to look at before the first read: for the offset, the arithmetic, and a warm start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.execution.row_blocks import SAMPLE_BLOCKS, is_dask, sample_rows, take_rows
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.layout import is_adjacent

__all__ = ["Sample", "draw", "sample_offset", "warm_rows"]

LOOK_ROWS = 2048
"""Rows looked at to choose the offset and to judge float32."""

WARM_ROWS_A_FEATURE = 4
"""Rows of a warm start's sample for each feature."""

WARM_GROUPS = 24
"""Groups of that sample at least: the redundancy is solved for on it."""

WARM_SHARE = 1 / 8
"""Share of all rows up to which the sample is worth its time."""

WARM_BYTES = 1 << 28
"""Memory of the sample at the driver, as stored."""


@dataclass(frozen=True)
class Sample:
    """Some rows of X in memory.

    index : (n,) their numbers in X
    features : (n, k)
    groups : the groups they are, whole; None where rows were taken without regard to groups
    share : of X that was read for them
    """

    index: Index
    features: Features
    groups: Index | None = None
    share: float = 0.0

    def thinned(self) -> tuple[Index, Features]:
        """About LOOK_ROWS of the rows, with their numbers in X."""
        step = max(len(self.index) // LOOK_ROWS, 1)
        return self.index[::step], self.features[::step]


def warm_rows(
    n_rows: int, n_features: int, n_groups: int, largest_group: int, itemsize: int
) -> int:
    """Rows that a warm start should look at, 0 where it is not worth it."""
    wanted = max(WARM_ROWS_A_FEATURE * n_features, WARM_GROUPS * n_rows // n_groups, LOOK_ROWS)
    wanted = min(wanted, WARM_BYTES // (n_features * itemsize))
    worth = wanted <= WARM_SHARE * n_rows and WARM_GROUPS * n_rows / n_groups <= wanted
    # Larger groups are kept as sufficient statistics: one read does for them anyway.
    return wanted if worth and largest_group <= n_features else 0


def draw(X: Any, rows: Rows, *, warm: bool) -> Sample:
    """Whole groups for a warm start where that pays and ``warm``; else some rows of X."""
    n, k = X.shape
    largest = int(rows.group_sizes.max())
    wanted = warm_rows(n, k, rows.n_groups, largest, X.dtype.itemsize) if warm else 0
    if wanted and is_adjacent(rows.groups):
        return _whole_groups(X, rows, wanted)
    if is_dask(X):
        return Sample(*sample_rows(X, LOOK_ROWS))
    index = np.arange(0, len(X), max(len(X) // LOOK_ROWS, 1))
    return Sample(index, np.asarray(X[index]))


def _whole_groups(X: Any, rows: Rows, wanted: int) -> Sample:
    """Groups that together have about ``wanted`` rows, from a few places spread over X."""
    starts = np.flatnonzero(np.diff(rows.groups, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    bounds = np.concatenate([[0], np.cumsum(X.chunks[0])]) if is_dask(X) else np.array([0, len(X)])
    blocks = np.searchsorted(bounds, starts, side="right") - 1
    inside = ends <= bounds[blocks + 1]
    if is_dask(X):
        full = np.unique(blocks[inside])
        places = full[np.linspace(0, full.size - 1, min(full.size, SAMPLE_BLOCKS)).astype(int)]
    else:
        # In memory every place is as near as any other.
        blocks = np.arange(starts.size) * SAMPLE_BLOCKS // starts.size
        places = np.arange(SAMPLE_BLOCKS)
    chosen: list[int] = []
    for place in places:
        own = np.flatnonzero((blocks == place) & inside)
        enough = np.searchsorted(np.cumsum((ends - starts)[own]), wanted / places.size) + 1
        chosen.extend(own[:enough].tolist())
    groups = np.sort(rows.groups[starts[chosen]])
    index, _ = rows.select(groups)
    if is_dask(X):
        read = float(np.diff(bounds)[places].sum()) / len(rows)
        return Sample(index, take_rows(X, index), groups, read)
    return Sample(index, np.asarray(X[index]), groups, index.size / len(rows))


def sample_offset(sample: Features) -> Array:
    """About the column means, exactly representable in float32: what products subtract first."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sample.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(mean), mean, 0.0)
