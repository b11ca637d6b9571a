"""Exact predictions with a whole group left out, without fitting again.

They are f^(−j) = y − (I − H_j P_j)⁻¹ (y − f) with H_j = F_j V F_jᵀ. In the symmetric form, with √p
on both sides, the matrix is I − H̃. The predictions (:func:`leave_out_shift`) need a factorisation
of it. The moment equation of the redundancy needs only r̃ᵀ((I − H̃)⁻¹ − I) r̃ of each group
(:func:`leave_out_terms`): a few steps of conjugate gradients, without H̃ and without whitened rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.linalg import lapack

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.gp.oracle.kernels import Projection

__all__ = ["leave_out_shift", "leave_out_terms"]

MIN_PIVOT = 1e-3
"""Pivot of I − H below which a float32 solve is repeated in float64."""

JITTER = 1e-10
"""Added to I − H if one group alone determines the model to all digits of float64."""

BYTES_AT_ONCE = 1 << 20
"""Size of the rows whose groups, if they are of one size, are solved for together: one large group
that stays in the cache, or many small ones."""

COLUMNS_AT_ONCE = 32
"""Number of groups × targets that are multiplied by V in one product."""

MAX_STEPS = 30
"""Steps of conjugate gradients after which I − H is taken for nearly singular and factorised."""

STEP_TOLERANCE = {4: 1e-5, 8: 1e-12}
"""Relative gain of a step at which the solve is done, by bytes per number of the products."""


def _solve_leave_out(Z: Features, root: Array, r: Array) -> tuple[Array, float]:
    """Solve q̃ = (I − H̃)⁻¹ r̃ for g groups of one size: Z (g, n, k), root √p (g, n), r (g, n, t).

    Returns the shift f − f^(−j) of every row (g, n, t) and the smallest pivot.
    """
    Zs = Z * root.astype(Z.dtype)[..., None]
    rs = r * root[..., None]
    columns = Zs.swapaxes(1, 2)
    in_rows = Z.shape[1] <= Z.shape[2]
    A = (Zs @ columns if in_rows else columns @ Zs).astype(np.float64)
    np.negative(A, out=A)
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += 1.0
    q, pivot = _solve_positive(A, rs if in_rows else columns.astype(np.float64) @ rs)
    u: Features = q.astype(Z.dtype)
    shift = Z @ (columns @ u if in_rows else u)
    return np.asarray(shift, dtype=np.float64), pivot


def _solve_positive(A: Array, rhs: Array) -> tuple[Array, float]:
    """Solutions (g, n, t) of g systems (g, n, n) with right sides (g, n, t), and smallest pivot."""
    solved = np.empty(rhs.shape)
    pivot = np.inf
    for number, (matrix, side) in enumerate(zip(A, rhs, strict=True)):
        # A is symmetric, so its transpose is A in the order of LAPACK: nothing is copied.
        factor, solved[number], failed = lapack.dposv(matrix.T, side, lower=1)
        if failed:
            diagonal = np.arange(A.shape[1])
            A[:, diagonal, diagonal] += JITTER
            return np.asarray(np.linalg.solve(A, rhs), dtype=np.float64), 0.0
        pivot = min(pivot, float(np.diagonal(factor).min()) ** 2)
    return solved, pivot


def leave_out_shift(
    Z: Features,
    precision: Array,
    residual: Array,
    starts: Index,
    pieces: Sequence[Features],
    projection: Projection,
) -> Array:
    """(n, t) difference f − f^(−j) of every row of a batch with its group left out.

    The systems are solved in rows or in features, whichever are fewer.

    Parameters
    ----------
    Z : array of shape (n, k)
        Whitened rows of the batch.
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
    """
    sizes = np.diff(np.append(starts, len(Z)))
    root = np.sqrt(precision)
    shift = np.empty(residual.shape)
    for size in np.unique(sizes):
        first = starts[sizes == size]
        at_once = max(BYTES_AT_ONCE // (size * Z[0].nbytes), 1)
        for number in range(0, first.size, at_once):
            index = first[number : number + at_once, None] + np.arange(size)
            shift[index], pivot = _solve_leave_out(Z[index], root[index], residual[index])
            if pivot < MIN_PIVOT and Z.dtype != np.float64:
                exact = projection.exact_rows(pieces, index)
                shift[index], _ = _solve_leave_out(exact, root[index], residual[index])
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

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows Z of the batch, or its loaded rows. H is then applied with V.
    precision, residual, starts, pieces, projection
        As in :func:`leave_out_shift`.
    whitened : bool
        Whether ``rows`` are whitened.
    """
    ends = np.append(starts[1:], len(rows))
    t = residual.shape[1]
    at_once = max(COLUMNS_AT_ONCE // t, 1)
    result = np.empty(len(starts))
    for first in range(0, len(starts), at_once):
        own = slice(first, first + at_once)
        low, high = int(starts[own][0]), int(ends[own][-1])
        root = np.sqrt(precision[low:high])
        sizes = (ends - starts)[own]
        apply = _operator(rows[low:high], root, np.cumsum(sizes), t, projection, whitened)
        local = np.repeat(np.arange(sizes.size), sizes)
        rhs = residual[low:high] * root[:, None]
        result[own], singular = _conjugate_gradients(apply, rhs, local, rows.dtype.itemsize)
        for number in np.flatnonzero(singular) + first:
            group = slice(int(starts[number]), int(ends[number]))
            index = np.arange(group.start, group.stop)[None]
            shift, _ = _solve_leave_out(
                projection.exact_rows(pieces, index),
                np.sqrt(precision[group])[None],
                residual[group][None],
            )
            result[number] = float((precision[group, None] * residual[group] * shift[0]).sum())
    return result


def _operator(
    rows: Features, root: Array, ends: Index, t: int, projection: Projection, whitened: bool
) -> Callable[[Array], Array]:
    """The function q (n, t) -> H̃ q for groups that end at ``ends``.

    One product per group, whose rows are then in the cache, is much faster than one product of all
    rows with one column per group.
    """
    m = None if whitened else projection.arithmetic.offset
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
        if not whitened:
            middle = projection.covariance @ inner
        result = np.empty_like(q)
        for own, columns in groups:
            result[own] = rows[own] @ middle[:, columns]
        if m is not None:
            shift = (m @ middle).reshape(-1, t)
            result += np.repeat(shift, np.diff(ends, prepend=0), axis=0)
        return root[:, None] * result

    return apply


def _conjugate_gradients(
    apply: Callable[[Array], Array], rhs: Array, local: Index, itemsize: int
) -> tuple[Array, Mask]:
    """(groups,) r̃ᵀ((I − H̃)⁻¹ − I) r̃ by conjugate gradients, and which groups did not converge.

    The sum Σ α‖residual‖² over the steps converges to r̃ᵀ(I − H̃)⁻¹r̃ twice as fast as the solution.
    """
    n_groups = int(local[-1]) + 1

    def dot(a: Array, b: Array) -> Array:
        return group_sums(local, (a * b).sum(1), n_groups)

    residual, direction = rhs.copy(), rhs.copy()
    square = start = dot(rhs, rhs)
    total = np.zeros(n_groups)
    active = start > 0
    singular = np.zeros(n_groups, dtype=bool)
    for _ in range(MAX_STEPS):
        product = direction - apply(direction)
        curvature = dot(direction, product)
        singular |= active & (curvature <= MIN_PIVOT * dot(direction, direction))
        active = active & ~singular
        alpha = np.divide(square, curvature, out=np.zeros(n_groups), where=active)
        gain = alpha * square
        total += gain
        active = active & (
            gain > STEP_TOLERANCE[itemsize] * np.maximum(total - start, 1e-6 * start)
        )
        if not active.any():
            break
        residual = residual - alpha[local, None] * product
        new = dot(residual, residual)
        beta = np.divide(new, square, out=np.zeros(n_groups), where=active)
        direction = residual + beta[local, None] * direction
        square = new
    return total - start, singular | active
