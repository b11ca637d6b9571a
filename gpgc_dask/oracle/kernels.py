"""Arithmetic on one batch of rows in memory. NumPy and BLAS only; no scheduler is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import blas

from gpgc_dask.arrays import Array, Features, Index
from gpgc_dask.evidence import Moments, Posterior
from gpgc_dask.oracle.base import Rows

__all__ = [
    "Arithmetic",
    "MomentSums",
    "PrecisionProbe",
    "Projection",
    "Workspace",
    "leave_out_shift",
]

BATCH_ROWS = 4096
"""Rows multiplied in one product. Long enough for BLAS, short enough for float32 sums."""

MIN_PIVOT = 1e-3
"""Below this pivot of I − H a float32 leave-out solve is redone in float64."""

JITTER = 1e-10
"""Added to I − H where a group determines the model alone to all of float64's digits."""

PROBES = 8
"""Random directions in which a batch's float32 Gram product is compared with float64."""


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


class Workspace:
    """Buffers of one task, used again for every batch.

    Fresh memory costs a page fault every 4 kB: in a worker process, which hands freed memory
    back at once, that was a fifth of a sweep.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self._batch = np.empty((0, 0), dtype=arithmetic.dtype)
        self._product = np.empty((0, 0), dtype=arithmetic.dtype)

    def load(self, pieces: Sequence[Features]) -> Features:
        """A batch as C-contiguous, centred rows; valid until the next load."""
        rows, k = sum(map(len, pieces)), pieces[0].shape[1]
        if len(self._batch) < rows:
            self._batch = np.empty((max(rows, BATCH_ROWS), k), dtype=self.arithmetic.dtype)
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

    def gram(self, A: Features) -> Features:
        """AᵀA; valid until the next one."""
        k = A.shape[1]
        if len(self._product) < k:
            self._product = np.empty((k, k), dtype=self.arithmetic.dtype)
        return np.matmul(A.T, A, out=self._product)


@dataclass
class MomentSums:
    """Running float64 sums over batches for :class:`~gpgc_dask.evidence.Moments`.

    The last column of ``cross`` and ``totals`` belongs to a target that is 1 everywhere: with
    it the offset is undone exactly in :meth:`finish`.
    """

    gram: Array
    cross: Array
    totals: Array
    yy: float = 0.0

    @classmethod
    def zeros(cls, n_features: int, n_targets: int) -> MomentSums:
        return cls(
            np.zeros((n_features, n_features)),
            np.zeros((n_features, n_targets + 1)),
            np.zeros(n_targets + 1),
        )

    def add(self, work: Workspace, A: Features, precision: Array, targets: Array) -> None:
        """Add loaded rows, which are overwritten."""
        root = np.sqrt(precision)
        rhs = np.column_stack([targets, np.ones(len(A))])
        scaled = (root[:, None] * rhs).astype(A.dtype)
        A *= root.astype(A.dtype)[:, None]
        for start in range(0, len(A), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            self.gram += work.gram(A[part])
            self.cross += A[part].T @ scaled[part]
        self.totals += precision @ rhs
        self.yy += float(precision @ (targets**2).sum(1))

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

    def column_variance(self) -> Array:
        """(k,) weighted variance of each feature, whatever the offset."""
        weight = max(float(self.totals[-1]), 1e-300)
        mean = self.cross[:, -1] / weight
        return np.maximum(np.diagonal(self.gram) / weight - mean**2, 0.0)

    def finish(self, arithmetic: Arithmetic) -> Moments:
        gram, cross, column = self.gram, self.cross[:, :-1], self.cross[:, -1]
        m = arithmetic.offset
        if m is not None:
            outer = np.multiply.outer(m, column + 0.5 * self.totals[-1] * m)
            gram = gram + outer
            gram += outer.T
            cross = cross + np.multiply.outer(m, self.totals[:-1])
        return Moments(gram, cross, self.yy)


class Projection:
    """Rows to f = F μ and Z = F Tᵀ, in the arithmetic of the fit.

    It travels to the workers once a sweep, as T and μ in float64; casts are made on arrival.
    """

    def __init__(self, post: Posterior, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.mu = post.mu
        self.T = post.T

    def __getstate__(self) -> dict[str, Any]:
        return {"arithmetic": self.arithmetic, "mu": self.mu, "T": self.T}

    @cached_property
    def _cast(self) -> Features:
        return np.asfortranarray(self.T, dtype=self.arithmetic.dtype)

    @cached_property
    def _shift(self) -> Features | None:
        m = self.arithmetic.offset
        return None if m is None else (self.T @ m).astype(self.arithmetic.dtype)

    @cached_property
    def _mean(self) -> Array:
        m = self.arithmetic.offset
        return np.zeros(self.mu.shape[1]) if m is None else m @ self.mu

    def mean(self, A: Features) -> Array:
        """(n, t) f from loaded rows."""
        return (A @ self.mu.astype(A.dtype)).astype(np.float64) + self._mean

    def whiten(self, A: Features) -> Features:
        """(n, k) Z with ‖Zᵢ‖² = φᵢᵀVφᵢ from loaded rows, which are overwritten."""
        # T is lower triangular: half of a full product's work.
        trmm = blas.strmm if A.dtype == np.float32 else blas.dtrmm
        Z: Features = trmm(1.0, self._cast, A.T, side=0, lower=1, overwrite_b=1).T
        if self._shift is not None:
            Z += self._shift
        return Z

    def exact(self, pieces: Sequence[Features], index: Index) -> Array:
        """(..., k) Z in float64 of some rows, from the batch as stored."""
        rows = np.concatenate(pieces)[index].astype(np.float64)
        return rows @ self.T.T


def _solve_leave_out(Z: Features, root: Array, r: Array) -> tuple[Array, float]:
    """q̃ = (I − H̃)⁻¹ r̃ for groups of one size: Z (g, n, k), root √p (g, n), r (g, n, t).

    Returns the shift f − f^(−j) of every row (g, n, t) and the smallest pivot.
    """
    Zs = Z * root.astype(Z.dtype)[..., None]
    rs = r * root[..., None]
    n, k = Z.shape[1:]
    if n <= k:
        A = -(Zs @ Zs.swapaxes(1, 2)).astype(np.float64)
        rhs = rs
    else:
        A = -(Zs.swapaxes(1, 2) @ Zs).astype(np.float64)
        rhs = Zs.swapaxes(1, 2).astype(np.float64) @ rs
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += 1.0
    try:
        pivot = float(np.diagonal(np.linalg.cholesky(A), axis1=1, axis2=2).min() ** 2)
    except np.linalg.LinAlgError:
        pivot = 0.0
        A[:, diagonal, diagonal] += JITTER
    q = np.linalg.solve(A, rhs)
    if n <= k:
        q = Zs.swapaxes(1, 2).astype(np.float64) @ q
    return Z.astype(np.float64) @ q, pivot


def leave_out_shift(
    Z: Features,
    precision: Array,
    residual: Array,
    starts: Index,
    pieces: Sequence[Features],
    project: Projection,
) -> Array:
    """f − f^(−j) of every row when its whole group is left out, (n, t).

    With H_j = Z_j Z_jᵀ: f^(−j) = y − (I − H_j P_j)⁻¹ (y − f), solved in the symmetric form with
    √p on both sides, in rows or in features, whichever is smaller. Groups start at ``starts``.
    """
    sizes = np.diff(np.append(starts, len(Z)))
    root = np.sqrt(precision)
    shift = np.empty(residual.shape)
    for size in np.unique(sizes):
        index = starts[sizes == size][:, None] + np.arange(size)
        found, pivot = _solve_leave_out(Z[index], root[index], residual[index])
        if pivot < MIN_PIVOT and Z.dtype != np.float64:
            exact = project.exact(pieces, index)
            found, _ = _solve_leave_out(exact, root[index], residual[index])
        shift[index] = found
    return shift


@dataclass(frozen=True)
class PrecisionProbe:
    """What the arithmetic of the products costs the evidence, seen on a sample of rows.

    Errors ΔG and Δb of the moments change ½ ln|B| by ½ tr(V ΔG) and the fit by ½ μᵀΔGμ − μᵀΔb: so
    a few z ~ N(0, V), and μ, tell the cost without a Gram in float64.
    """

    sample: Features
    rows: Rows
    arithmetic: Arithmetic

    def nats(self, post: Posterior, log_noise: Array, redundancy: float) -> float:
        """Error of the evidence that the sample's products make at a posterior."""
        if self.arithmetic.dtype == np.float64:
            return 0.0
        precision = self.rows.precision(log_noise, redundancy)
        targets, exact = self.rows.targets(), self.sample.astype(np.float64)
        sums, work = MomentSums.zeros(*post.mu.shape), Workspace(self.arithmetic)
        sums.add(work, work.load([self.sample]), precision, targets)
        found = sums.finish(self.arithmetic)

        def gram_errors(columns: Array) -> Array:
            forms = np.einsum("ip,ip->p", columns, found.gram @ columns)
            return np.abs(forms - precision @ (exact @ columns) ** 2)

        z = (np.random.default_rng(0).standard_normal((PROBES, exact.shape[1])) @ post.T).T
        cross = (found.cross * post.mu).sum(0) - precision @ (targets * (exact @ post.mu))
        gram = gram_errors(z).mean() + gram_errors(post.mu).sum()
        return 0.5 * float(gram) + float(np.abs(cross).sum())
