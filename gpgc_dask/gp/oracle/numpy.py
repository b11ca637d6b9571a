"""The oracle for rows in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index
from gpgc_dask.core.threads import blas_threads, map_threads, one_blas_thread
from gpgc_dask.gp.oracle.base import FeatureOracle, Rows
from gpgc_dask.gp.oracle.kernels import Arithmetic, batch_rows
from gpgc_dask.gp.oracle.layout import Batch, batch_ends, is_adjacent, whole_batches
from gpgc_dask.gp.oracle.rows import RowSweeps, TaskFunction

__all__ = ["NumpyOracle", "NumpySweeps"]


PARALLEL_PRODUCTS = 2e8
"""Multiply-adds of a Gram product from which on a sweep uses several threads."""


SMALL_PRODUCTS = 1e9
"""Multiply-adds up to which BLAS has one thread: starting others takes longer on a busy machine."""


class NumpyOracle(FeatureOracle):
    """The four queries on a NumPy matrix, in float64, batch by batch."""

    def __init__(self, F: Features) -> None:
        self.F = F
        self.shape = F.shape

    def _batches(self) -> Iterator[tuple[slice, Array]]:
        step = batch_rows(self.shape[1], 8)
        for start in range(0, max(len(self.F), 1), step):
            part = slice(start, start + step)
            yield part, np.asarray(self.F[part], dtype=np.float64)

    def rmatvec(self, v: Array) -> Array:
        total = np.zeros((self.shape[1], *v.shape[1:]))
        for part, F in self._batches():
            total += F.T @ v[part]
        return total

    def matvec(self, u: Array) -> Array:
        return np.concatenate([F @ u for _, F in self._batches()])

    def gram(self, d: Array) -> Array:
        total = np.zeros((self.shape[1], self.shape[1]))
        for part, F in self._batches():
            total += F.T @ (F * d[part, None])
        return total

    def quad_diag(self, A: Array) -> Array:
        return np.concatenate([np.einsum("ij,ij->i", F @ A, F) for _, F in self._batches()])

    def variance(self, T: Array) -> Array:
        return np.concatenate([((F @ T.T) ** 2).sum(1) for _, F in self._batches()])


def _until(cancelled: threading.Event, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches; raise a CancelledError as soon as the sweep is cancelled."""
    for batch in batches:
        if cancelled.is_set():
            raise CancelledError
        yield batch


class NumpySweeps(RowSweeps):
    """Sweeps over a NumPy matrix. Rows of scattered groups are gathered batch by batch.

    Parameters
    ----------
    F : array of shape (N, k)
        Features.
    rows : Rows
        Classes, weights and groups of the rows.
    arithmetic : Arithmetic
        Precision and offset of the products.
    order : array of int, optional
        Rows of F to use, in the order of ``rows``. By default all rows.
    """

    whole_groups = True
    in_memory = True

    def __init__(
        self, F: Features, rows: Rows, arithmetic: Arithmetic, order: Index | None = None
    ) -> None:
        self.F = F
        self.arithmetic = arithmetic
        self.n_features = F.shape[1]
        self.n_targets = rows.n_targets
        self.group_weight = rows.group_weight
        if not is_adjacent(rows.groups):
            by_group = np.argsort(rows.groups, kind="stable")
            rows = rows.take(by_group)
            order = by_group if order is None else order[by_group]
        self.rows = rows
        self.order = order
        self.read_share = len(rows) / len(F)
        self._limit = arithmetic.batch_rows(self.n_features)

    def _run(self, name: str, function: TaskFunction, *, whole_groups: bool) -> Any:
        parts = self._map(function, whole_groups=whole_groups)
        return parts[0] if len(parts) == 1 else type(parts[0]).merge(parts)

    def _map_rows(self, name: str, function: TaskFunction) -> Array:
        return self.map_rows(function)

    def map_rows(self, function: TaskFunction) -> Array:
        """Results of a row-wise task function over whole groups, in the order of F."""
        return self._in_order(np.concatenate(self._map(function, whole_groups=True)))

    def _in_order(self, values: Features) -> Features:
        if self.order is None:
            return values
        ordered = np.empty_like(values)
        ordered[self.order] = values
        return ordered

    def _map(self, function: TaskFunction, *, whole_groups: bool) -> list[Any]:
        """Results of a task function that runs on a share of the rows per core."""
        n, k = len(self.rows), self.n_features
        cores = blas_threads() if n * k * k > PARALLEL_PRODUCTS else 1
        ends = batch_ends(self.rows.groups, whole_groups=whole_groups, limit=self._limit)
        wanted = np.arange(1, cores) * (n / cores)
        cuts = np.unique([0, *ends[np.searchsorted(ends, wanted)], n])
        cancelled = threading.Event()

        def run(share: tuple[int, int]) -> Any:
            start, stop = share
            inside = ends[(ends > start) & (ends <= stop)] - start
            rows = self.rows.take(slice(start, stop))
            return function(_until(cancelled, self._batches(start, stop, inside)), rows, start)

        few = len(cuts) == 2 and n * k * k < SMALL_PRODUCTS
        with one_blas_thread() if few else nullcontext():
            return map_threads(run, pairwise(cuts.tolist()), cancelled)

    def _batches(self, start: int, stop: int, ends: Index) -> Iterator[Batch]:
        if self.order is None:
            yield from whole_batches([self.F[start:stop]], ends, self._limit)
        else:
            for low, high, index in whole_batches([self.order[start:stop]], ends, self._limit):
                yield low, high, [self.F[index[0]]]

    def select_groups(self, groups: Index) -> NumpySweeps:
        index, rows = self.rows.select(groups)
        order = index if self.order is None else self.order[index]
        return NumpySweeps(self.F, rows, self.arithmetic, order)

    load_groups = select_groups
