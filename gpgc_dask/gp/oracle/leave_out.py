"""Exact predictions with a whole group left out, without fitting again.

They are f^(−j) = y − (I − H_j P_j)⁻¹ (y − f) with H_j = F_j V F_jᵀ. In the symmetric form, with √p
on both sides, the matrix is I − H̃. Conjugate gradients solve for a few groups at a time, without H̃
and without whitened rows. They need few steps, as the eigenvalues of H̃ are small unless a group
determines the model nearly alone: I − H̃ of such a group is factorised. The predictions
(:func:`leave_out_shift`) take a few more steps than r̃ᵀ((I − H̃)⁻¹ − I) r̃ of each group, which the
moment equation of the redundancy needs (:func:`leave_out_terms`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.linalg import lapack

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.gp.oracle.kernels import Projection

__all__ = ["leave_out_shift", "leave_out_terms"]

MIN_PIVOT = 1e-3
"""Pivot of I − H below which a float32 factorisation is repeated in float64."""

JITTER = 1e-10
"""Added to I − H if one group alone determines the model to all digits of float64."""

COLUMNS_AT_ONCE = 32
"""Number of groups × targets that are multiplied by V in one product."""

MAX_STEPS = 30
"""Steps of conjugate gradients after which I − H is taken for nearly singular and factorised."""

TERMS_TOLERANCE = {4: 1e-5, 8: 1e-12}
"""Relative gain of a step at which the terms are done, by bytes per number of the products."""

SHIFT_TOLERANCE = {4: 1e-9, 8: 1e-20}
"""The same for the predictions: an error is about the root of the gain of the last step."""


def leave_out_shift(
    rows: Features,
    precision: Array,
    residual: Array,
    starts: Index,
    pieces: Sequence[Features],
    projection: Projection,
    *,
    whitened: bool,
) -> Array:
    """(n, t) difference f − f^(−j) of every row of a batch with its group left out.

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows Z of the batch, or its loaded rows. H is then applied with V.
    precision : array of shape (n,)
        Precision p of each row.
    residual : array of shape (n, t)
        y − f of each row.
    starts : array of int
        Position of the first row of each group.
    pieces : sequence of arrays
        The rows as stored.
    projection : Projection
        Used to whiten rows in float64 if float32 is not good enough.
    whitened : bool
        Whether ``rows`` are whitened.
    """
    batch = _Batch(rows, precision, residual, pieces, projection, whitened)
    _, shift = batch.solve(starts, SHIFT_TOLERANCE[rows.dtype.itemsize])
    return shift


def leave_out_terms(
    rows: Features,
    precision: Array,
    residual: Array,
    starts: Index,
    pieces: Sequence[Features],
    projection: Projection,
    *,
    whitened: bool,
) -> Array:
    """(groups,) Σ p (y − f)·(f − f^(−j)) of each group of a batch.

    Parameters are those of :func:`leave_out_shift`.
    """
    batch = _Batch(rows, precision, residual, pieces, projection, whitened)
    terms, _ = batch.solve(starts, TERMS_TOLERANCE[rows.dtype.itemsize])
    return terms


@dataclass(frozen=True)
class _Batch:
    """The rows of a batch, see :func:`leave_out_shift`."""

    rows: Features
    precision: Array
    residual: Array
    pieces: Sequence[Features]
    projection: Projection
    whitened: bool

    def solve(self, starts: Index, tolerance: float) -> tuple[Array, Array]:
        """(groups,) terms and (n, t) shifts of the groups that begin at ``starts``."""
        ends = np.append(starts[1:], len(self.rows))
        t = self.residual.shape[1]
        at_once = max(COLUMNS_AT_ONCE // t, 1)
        terms, shift = np.empty(len(starts)), np.empty(self.residual.shape)
        for first in range(0, len(starts), at_once):
            own = slice(first, first + at_once)
            part = slice(int(starts[own][0]), int(ends[own][-1]))
            sizes = (ends - starts)[own]
            root = np.sqrt(self.precision[part])
            apply = self._operator(self.rows[part], root, np.cumsum(sizes))
            local = np.repeat(np.arange(sizes.size), sizes)
            terms[own], shift[part], singular = _conjugate_gradients(
                apply, root, self.residual[part], local, tolerance
            )
            for number in np.flatnonzero(singular) + first:
                group = slice(int(starts[number]), int(ends[number]))
                shift[group] = self._factorise(group)
                weighted = self.precision[group, None] * self.residual[group]
                terms[number] = float((weighted * shift[group]).sum())
        return terms, shift

    def _operator(self, rows: Features, root: Array, ends: Index) -> Callable[[Array], Array]:
        """The function q (n, t) -> H √P q for groups that end at ``ends``.

        One product per group, whose rows are then in the cache, is much faster than one product of
        all rows with one column per group.
        """
        t = self.residual.shape[1]
        m = None if self.whitened else self.projection.arithmetic.offset
        inner = np.empty((rows.shape[1], ends.size * t), dtype=rows.dtype, order="F")
        groups = [
            (slice(start, stop), slice(number * t, number * t + t))
            for number, (start, stop) in enumerate(pairwise([0, *ends.tolist()]))
        ]

        def apply(q: Array) -> Array:
            weighted = root[:, None] * q
            narrow = weighted.astype(rows.dtype)
            for own, columns in groups:
                inner[:, columns] = rows[own].T @ narrow[own]
            middle = inner
            if m is not None:
                starts = [own.start for own, _ in groups]
                inner[...] += np.multiply.outer(m, np.add.reduceat(weighted, starts).ravel())
            if not self.whitened:
                middle = self.projection.covariance @ inner
            result = np.empty_like(q)
            for own, columns in groups:
                result[own] = rows[own] @ middle[:, columns]
            if m is not None:
                shift = (m @ middle).reshape(-1, t)
                result += np.repeat(shift, np.diff(ends, prepend=0), axis=0)
            return result

        return apply

    def _factorise(self, group: slice) -> Array:
        """(n, t) shift of the rows of one group, by a factorisation."""
        root, residual = np.sqrt(self.precision[group]), self.residual[group]
        Z = self.rows[group]
        if not self.whitened:
            Z = self.projection.whiten(Z.copy())
        shift, pivot = _solve_factorised(Z, root, residual)
        if pivot < MIN_PIVOT and Z.dtype != np.float64:
            exact = self.projection.exact_rows(self.pieces, np.arange(group.start, group.stop))
            shift, _ = _solve_factorised(exact, root, residual)
        return shift


def _conjugate_gradients(
    apply: Callable[[Array], Array], root: Array, residual: Array, local: Index, tolerance: float
) -> tuple[Array, Array, Mask]:
    """Solve (I − H̃) q̃ = r̃ for several groups at a time.

    Parameters
    ----------
    apply : callable
        The function q (n, t) -> H √P q.
    root : array of shape (n,)
        √p of each row.
    residual : array of shape (n, t)
        r of each row.
    local : array of int of shape (n,)
        Group of each row.
    tolerance : float
        Relative gain of a step at which a group is done.

    Returns
    -------
    terms : array of shape (groups,)
        r̃ᵀ((I − H̃)⁻¹ − I) r̃. The sum Σ α‖residual‖² over the steps converges to r̃ᵀ(I − H̃)⁻¹r̃ twice
        as fast as the solution.
    shift : array of shape (n, t)
        H √P q̃, which is f − f^(−j).
    failed : bool array of shape (groups,)
        Groups that did not converge.
    """
    n_groups = int(local[-1]) + 1

    def dot(a: Array, b: Array) -> Array:
        return group_sums(local, (a * b).sum(1), n_groups)

    remaining = residual * root[:, None]
    direction, shift = remaining.copy(), np.zeros(residual.shape)
    square = start = dot(remaining, remaining)
    total = np.zeros(n_groups)
    active = start > 0
    singular = np.zeros(n_groups, dtype=bool)
    for _ in range(MAX_STEPS):
        along = apply(direction)
        product = direction - root[:, None] * along
        curvature = dot(direction, product)
        singular |= active & (curvature <= MIN_PIVOT * dot(direction, direction))
        active = active & ~singular
        alpha = np.divide(square, curvature, out=np.zeros(n_groups), where=active)
        gain = alpha * square
        total += gain
        shift += alpha[local, None] * along
        active = active & (gain > tolerance * np.maximum(total - start, 1e-6 * start))
        if not active.any():
            break
        remaining = remaining - alpha[local, None] * product
        new = dot(remaining, remaining)
        beta = np.divide(new, square, out=np.zeros(n_groups), where=active)
        direction = remaining + beta[local, None] * direction
        square = new
    return total - start, shift, singular | active


def _solve_factorised(Z: Features, root: Array, r: Array) -> tuple[Array, float]:
    """(n, t) shift f − f^(−j) of one group, and the smallest pivot of I − H̃.

    The system is solved in rows or in features, whichever are fewer.

    Parameters
    ----------
    Z : array of shape (n, k)
        Whitened rows of the group.
    root : array of shape (n,)
        √p of each row.
    r : array of shape (n, t)
        y − f of each row.
    """
    Zs = Z * root.astype(Z.dtype)[:, None]
    rs = r * root[:, None]
    in_rows = len(Z) <= Z.shape[1]
    A = -(Zs @ Zs.T if in_rows else Zs.T @ Zs).astype(np.float64)
    A.flat[:: len(A) + 1] += 1.0
    rhs = rs if in_rows else Zs.T.astype(np.float64) @ rs
    # A is symmetric, so its transpose is A in the order of LAPACK: nothing is copied.
    factor, solved, failed = lapack.dposv(A.T, rhs, lower=1)
    pivot = 0.0 if failed else float(np.diagonal(factor).min()) ** 2
    if failed:
        A.flat[:: len(A) + 1] += JITTER
        solved = np.linalg.solve(A, rhs)
    u = solved.astype(Z.dtype)
    shift = Z @ (Zs.T @ u if in_rows else u)
    return np.asarray(shift, dtype=np.float64), pivot
