"""Arithmetic on one batch of rows in memory. NumPy and BLAS only; no scheduler is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack

from gpgc_dask.core.arrays import Array, Features, Index, fill_upper
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.blas import add_gram, multiply_triangular

__all__ = [
    "Accumulator",
    "Arithmetic",
    "MomentSums",
    "Projection",
    "Workspace",
    "batch_rows",
]

SUM_ROWS = 4096
"""Rows whose float32 products are summed in float32; beyond, sums are float64."""

MIN_BATCH_ROWS = 1024
"""Rows of a batch at least: from here on the triangular product is at its full speed."""

BATCH_BYTES = 4 << 20
"""Size of a batch: the passes over it (centre, judge, scale, multiply) find it in the cache."""

SPARSE_SHARE = 0.75
"""Where fewer rows than this carry weight, the others are left out of the products."""


def batch_rows(n_features: int, itemsize: int) -> int:
    """Rows to work on at a time (``benchmarks/blocks.py`` shows why)."""
    return int(np.clip(BATCH_BYTES // (n_features * itemsize), MIN_BATCH_ROWS, SUM_ROWS))


@dataclass(frozen=True)
class Arithmetic:
    """How products are formed.

    float32 rows are multiplied in float32 after subtracting ``offset`` (about the column means,
    exactly representable in float32), and summed in float64 over batches; the offset is put back
    by exact float64 algebra. A large common mean then costs no digits.
    float64 rows need no offset.
    """

    dtype: np.dtype[Any]
    offset: Array | None = None

    @property
    def name(self) -> str:
        return f"{self.dtype.name}, centred" if self.offset is not None else self.dtype.name

    def batch_rows(self, n_features: int) -> int:
        return batch_rows(n_features, self.dtype.itemsize)


class Workspace:
    """The buffer of one task, used again for every batch.

    Fresh memory costs a page fault every 4 kB: in a worker process, which hands freed memory
    back at once, that was a fifth of a sweep.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self._batch = np.empty((0, 0), dtype=arithmetic.dtype)

    def load(self, pieces: Sequence[Features]) -> Features:
        """A batch as C-contiguous, centred rows; valid until the next load."""
        rows, k = sum(map(len, pieces)), pieces[0].shape[1]
        if len(self._batch) < rows:
            most = max(rows, self.arithmetic.batch_rows(k))
            self._batch = np.empty((most, k), dtype=self.arithmetic.dtype)
        offset = self.arithmetic.offset
        start = 0
        for piece in pieces:
            part = self._batch[start : start + len(piece)]
            if offset is None:
                part[...] = piece
            else:
                # Cast first where the store is narrower: the offset must not be rounded to it.
                wide = piece.astype(part.dtype, copy=False)
                np.subtract(wide, offset.astype(part.dtype), out=part)
            start += len(piece)
        return self._batch[:rows]


@dataclass
class MomentSums:
    """float64 sums over rows for :class:`~gpgc_dask.gp.evidence.Moments`, as they travel.

    ``gram`` is one triangle of Fᵀ P F in LAPACK's rectangular full packed form, (k(k+1)/2,): half
    the memory and half the traffic, and sums of it are plain sums. The last column of ``cross`` and
    ``totals`` belongs to a target that is 1 everywhere: with it the offset is undone exactly in
    :meth:`finish`.
    """

    gram: Array
    cross: Array
    totals: Array
    yy: float = 0.0

    @classmethod
    def merge(cls, parts: Sequence[MomentSums]) -> MomentSums:
        """The sum of the parts. They stay as they are: a scheduler may hand them out again."""
        first, *rest = parts
        total = cls(first.gram.copy(), first.cross.copy(), first.totals.copy(), first.yy)
        for part in rest:
            total.gram += part.gram
            total.cross += part.cross
            total.totals += part.totals
            total.yy += part.yy
        return total

    def matrix(self) -> Array:
        """The Gram sum as a full (k, k) matrix."""
        lower, _ = lapack.dtfttr(len(self.cross), self.gram, uplo="L")
        return fill_upper(lower)

    def column_variance(self) -> Array:
        """(k,) weighted variance of each feature, whatever the offset."""
        weight = max(float(self.totals[-1]), 1e-300)
        mean = self.cross[:, -1] / weight
        return np.maximum(np.diagonal(self.matrix()) / weight - mean**2, 0.0)

    def finish(self, arithmetic: Arithmetic) -> Moments:
        gram, cross, column = self.matrix(), self.cross[:, :-1], self.cross[:, -1]
        m = arithmetic.offset
        if m is not None:
            outer = np.multiply.outer(m, column + 0.5 * self.totals[-1] * m)
            gram += outer
            gram += outer.T
            cross = cross + np.multiply.outer(m, self.totals[:-1])
        return Moments(gram, cross, self.yy)


class Accumulator:
    """Sums weighted moments over the batches of one task.

    BLAS's symmetric product adds a batch to one triangle in place; float32 triangles are moved to
    the float64 sum every SUM_ROWS rows.
    """

    def __init__(self, n_features: int, n_targets: int, dtype: np.dtype[Any]) -> None:
        self.single = dtype == np.float32
        self._pack = lapack.strttf if self.single else lapack.dtrttf
        self._open = np.zeros((n_features, n_features), dtype=dtype, order="F")
        self._open_rows = 0
        packed = np.zeros(n_features * (n_features + 1) // 2)
        width = n_targets + 1
        self._sums = MomentSums(packed, np.zeros((n_features, width)), np.zeros(width))

    def add(self, A: Features, weight: Array, targets: Array) -> None:
        """Add loaded rows, which are overwritten. Negative weights take rows away again."""
        rhs = np.column_stack([targets, np.ones(len(A))])
        self._sums.totals += weight @ rhs
        self._sums.yy += float(weight @ (targets**2).sum(1))
        for sign in (1.0, -1.0):
            own = sign * weight > 0
            share = np.count_nonzero(own) / max(len(A), 1)
            if share == 0:
                continue
            if share > SPARSE_SHARE and weight.min() >= 0:
                self._add(A, np.sqrt(weight), rhs, sign)
            else:
                self._add(A[own], np.sqrt(sign * weight[own]), rhs[own], sign)

    def _add(self, A: Features, root: Array, rhs: Array, sign: float) -> None:
        scaled = (root[:, None] * rhs).astype(A.dtype)
        A *= root.astype(A.dtype)[:, None]
        for start in range(0, len(A), SUM_ROWS):
            part = slice(start, start + SUM_ROWS)
            add_gram(self._open, A[part], sign)
            self._sums.cross += sign * (A[part].T @ scaled[part])
            self._open_rows += len(A[part])
            if self.single and self._open_rows >= SUM_ROWS:
                self._close()

    def _close(self) -> None:
        packed, _ = self._pack(self._open, uplo="L")
        self._sums.gram += packed
        self._open[...] = 0.0
        self._open_rows = 0

    def sums(self) -> MomentSums:
        """The sums so far."""
        self._close()
        return self._sums


class Projection:
    """Rows to f = F μ, to leverages v = φᵀVφ, and to Z = F Tᵀ, in the arithmetic of the fit.

    It travels to the workers once a sweep; casts are made on arrival. ``directions`` (k, m) are
    random z ~ N(0, V)/√m, so that v ≈ ‖φᵀz‖² for m products instead of k/2; None asks for exact
    leverages. T is left behind where only directions are asked for.
    """

    def __init__(
        self,
        post: Posterior,
        arithmetic: Arithmetic,
        *,
        mean: Array | None = None,
        directions: Array | None = None,
        whitens: bool = True,
    ) -> None:
        self.arithmetic = arithmetic
        self.mu = post.mu if mean is None else mean
        self.directions = directions
        self.T = post.T if whitens or directions is None else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("arithmetic", "mu", "directions", "T")}

    @property
    def exact(self) -> bool:
        return self.directions is None

    @cached_property
    def _columns(self) -> tuple[Features, Array]:
        """What rows are multiplied with to judge them, and the offset's part of the product."""
        columns = self.mu if self.directions is None else np.hstack([self.mu, self.directions])
        m = self.arithmetic.offset
        shift = np.zeros(columns.shape[1]) if m is None else m @ columns
        return columns.astype(self.arithmetic.dtype), shift

    @cached_property
    def _cast(self) -> Features:
        return np.asfortranarray(self.T, dtype=self.arithmetic.dtype)

    @cached_property
    def _shift(self) -> Features | None:
        m = self.arithmetic.offset
        return None if m is None else (self._factor @ m).astype(self.arithmetic.dtype)

    @property
    def _factor(self) -> Array:
        if self.T is None:
            raise InputError("this sweep did not ask for whitened rows")
        return self.T

    @cached_property
    def covariance(self) -> Features:
        """(k, k) V = TᵀT in the arithmetic of the fit."""
        T = self._cast
        return T.T @ T

    def judge(self, A: Features) -> tuple[Array, Array | None]:
        """(n, t) f and (n,) estimated v from loaded rows; v is None where it is to be exact."""
        columns, shift = self._columns
        found = (A @ columns).astype(np.float64) + shift
        t = self.mu.shape[1]
        if self.directions is None:
            return found, None
        probed = found[:, t:]
        return found[:, :t], np.einsum("ij,ij->i", probed, probed)

    def whiten(self, A: Features) -> Features:
        """(n, k) Z with ‖Zᵢ‖² = φᵢᵀVφᵢ from loaded rows, which are overwritten."""
        multiply_triangular(self._cast, A)
        if self._shift is not None:
            A += self._shift
        return A

    def exact_rows(self, pieces: Sequence[Features], index: Index) -> Array:
        """(..., k) Z in float64 of some rows, from the batch as stored."""
        rows = np.concatenate(pieces)[index].astype(np.float64)
        return rows @ self._factor.T
