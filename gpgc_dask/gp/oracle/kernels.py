"""Arithmetic on one batch of rows in memory, with NumPy and BLAS only."""

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
"""Number of rows whose float32 products are summed in float32; larger sums are float64."""

MIN_BATCH_ROWS = 1024
"""Minimum number of rows of a batch: from here on the triangular product has its full speed."""

BATCH_BYTES = 4 << 20
"""Size of a batch: it stays in the cache while it is centred, predicted, scaled and multiplied."""

SPARSE_SHARE = 0.75
"""If a smaller share of the rows has weight, the others are left out of the products."""


def batch_rows(n_features: int, itemsize: int) -> int:
    """Number of rows of a batch (``benchmarks/blocks.py`` measures why)."""
    return int(np.clip(BATCH_BYTES // (n_features * itemsize), MIN_BATCH_ROWS, SUM_ROWS))


@dataclass(frozen=True)
class Arithmetic:
    """Precision and offset of the products.

    float32 rows are multiplied in float32 after subtraction of ``offset``, and summed in float64
    over batches. The offset is added again by exact float64 algebra, so that a large common mean
    costs no digits. float64 rows need no offset.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the products, float32 or float64.
    offset : array of shape (k,) or None
        About the column means, exactly representable in float32.
    """

    dtype: np.dtype[Any]
    offset: Array | None = None

    @property
    def name(self) -> str:
        """Name for display."""
        return f"{self.dtype.name}, centred" if self.offset is not None else self.dtype.name

    def batch_rows(self, n_features: int) -> int:
        """Number of rows of a batch."""
        return batch_rows(n_features, self.dtype.itemsize)


class Workspace:
    """The buffer of one task, reused for every batch.

    New memory costs a page fault every 4 kB. In a worker process, which returns freed memory at
    once, that took a fifth of the time of a sweep.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self._batch = np.empty((0, 0), dtype=arithmetic.dtype)

    def load(self, pieces: Sequence[Features]) -> Features:
        """(n, k) centred rows in C order from the pieces of a batch; valid until the next load."""
        rows, k = sum(map(len, pieces)), pieces[0].shape[1]
        if len(self._batch) < rows:
            capacity = max(rows, self.arithmetic.batch_rows(k))
            self._batch = np.empty((capacity, k), dtype=self.arithmetic.dtype)
        offset = self.arithmetic.offset
        start = 0
        for piece in pieces:
            part = self._batch[start : start + len(piece)]
            if offset is None:
                part[...] = piece
            else:
                # Cast first if the stored type is narrower: the offset must not be rounded to it.
                wide = piece.astype(part.dtype, copy=False)
                np.subtract(wide, offset.astype(part.dtype), out=part)
            start += len(piece)
        return self._batch[:rows]


@dataclass
class MomentSums:
    """float64 sums over rows for :class:`~gpgc_dask.gp.evidence.Moments`, as tasks return them.

    Attributes
    ----------
    gram : array of shape (k(k+1)/2,)
        One triangle of Fᵀ P F in LAPACK's rectangular full packed form: half the memory and half
        the traffic, and adding it is plain addition.
    cross : array of shape (k, t + 1)
        Fᵀ P Y. The last column belongs to a target that is 1 everywhere, with which
        :meth:`finish` reverses the offset exactly.
    totals : array of shape (t + 1,)
        Sums of P Y, with the same last column.
    yy : float
        tr Yᵀ P Y.
    """

    gram: Array
    cross: Array
    totals: Array
    yy: float = 0.0

    @classmethod
    def merge(cls, parts: Sequence[MomentSums]) -> MomentSums:
        """The sum of the parts, which are not changed: a scheduler may use them again."""
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
        """(k,) weighted variance of each feature."""
        weight = max(float(self.totals[-1]), 1e-300)
        mean = self.cross[:, -1] / weight
        return np.maximum(np.diagonal(self.matrix()) / weight - mean**2, 0.0)

    def finish(self, arithmetic: Arithmetic) -> Moments:
        """The moments of the rows without the offset of ``arithmetic``."""
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

    A symmetric product of BLAS adds a batch to one triangle in place. float32 triangles are added
    to the float64 sum every SUM_ROWS rows.
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
        """Add loaded rows, which are overwritten. Negative weights subtract rows."""
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
    """Maps rows to f = F μ, to leverages v = φᵀVφ, and to Z = F Tᵀ, in a given arithmetic.

    It is sent to the workers once per sweep and cast there.

    Parameters
    ----------
    post : Posterior
        Posterior of the weights.
    arithmetic : Arithmetic
        Precision and offset of the products.
    mean : array of shape (k, t), optional
        Weights instead of the posterior mean.
    directions : array of shape (k, m), optional
        Random z ~ N(0, V)/√m: v ≈ ‖φᵀz‖² takes m products instead of k/2. By default leverages
        are exact.
    keep_factor : bool, default True
        Whether rows will be whitened although there are ``directions``. Otherwise T is not sent.
    """

    def __init__(
        self,
        post: Posterior,
        arithmetic: Arithmetic,
        *,
        mean: Array | None = None,
        directions: Array | None = None,
        keep_factor: bool = True,
    ) -> None:
        self.arithmetic = arithmetic
        self.mu = post.mu if mean is None else mean
        self.directions = directions
        self.T = post.T if keep_factor or directions is None else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("arithmetic", "mu", "directions", "T")}

    @property
    def exact(self) -> bool:
        """Whether leverages are exact."""
        return self.directions is None

    @cached_property
    def _columns(self) -> tuple[Features, Array]:
        """The columns to multiply rows by, and the part of the product from the offset."""
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
            raise InputError("whitened rows need a projection with keep_factor=True")
        return self.T

    @cached_property
    def covariance(self) -> Features:
        """(k, k) V = TᵀT in the type of the products."""
        T = self._cast
        return T.T @ T

    def predict(self, A: Features) -> tuple[Array, Array | None]:
        """(n, t) f and (n,) estimated v of loaded rows; v is None if leverages are exact."""
        columns, shift = self._columns
        product = (A @ columns).astype(np.float64) + shift
        t = self.mu.shape[1]
        if self.directions is None:
            return product, None
        along = product[:, t:]
        return product[:, :t], np.einsum("ij,ij->i", along, along)

    def whiten(self, A: Features) -> Features:
        """(n, k) Z with ‖Zᵢ‖² = φᵢᵀVφᵢ of loaded rows, which are overwritten."""
        multiply_triangular(self._cast, A)
        if self._shift is not None:
            A += self._shift
        return A

    def exact_rows(self, pieces: Sequence[Features], index: Index) -> Array:
        """(..., k) Z in float64 of some rows, from the stored pieces of the batch."""
        rows = np.concatenate(pieces)[index].astype(np.float64)
        return rows @ self._factor.T
