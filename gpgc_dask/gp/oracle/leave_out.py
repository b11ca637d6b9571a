"""Leaving a whole group out, exactly: f^(−j) = y − (I − H_j P_j)⁻¹ (y − f), H_j = F_j V F_jᵀ.

In the symmetric form with √p on both sides the matrix is I − H̃. Its predictions
(:func:`leave_out_shift`) take a factorisation of it; the redundancy's moment equation asks only for
r̃ᵀ((I − H̃)⁻¹ − I) r̃ of each group (:func:`leave_out_terms`), which a few steps of conjugate
gradients give, without forming H̃ and without whitening a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.gp.oracle.kernels import Projection

__all__ = ["leave_out_shift", "leave_out_terms"]

MIN_PIVOT = 1e-3
"""Below this pivot of I − H a float32 leave-out solve is redone in float64."""

JITTER = 1e-10
"""Added to I − H where a group determines the model alone to all of float64's digits."""

COLUMNS_AT_ONCE = 32
"""Groups × targets whose products with V are formed as one."""

MAX_STEPS = 30
"""Steps of conjugate gradients after which I − H counts as nearly singular and is factorised."""

STEP_TOLERANCE = {4: 1e-5, 8: 1e-12}
"""Relative gain of a step, by bytes of the products' numbers, at which the solve is done."""


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

    Solved in rows or in features, whichever is smaller. Groups start at ``starts``.
    """
    sizes = np.diff(np.append(starts, len(Z)))
    root = np.sqrt(precision)
    shift = np.empty(residual.shape)
    for size in np.unique(sizes):
        index = starts[sizes == size][:, None] + np.arange(size)
        found, pivot = _solve_leave_out(Z[index], root[index], residual[index])
        if pivot < MIN_PIVOT and Z.dtype != np.float64:
            exact = project.exact_rows(pieces, index)
            found, _ = _solve_leave_out(exact, root[index], residual[index])
        shift[index] = found
    return shift


def leave_out_terms(
    rows: Features,
    precision: Array,
    residual: Array,
    starts: Index,
    pieces: Sequence[Features],
    project: Projection,
    *,
    whitened: bool,
) -> Array:
    """(groups,) Σ p (y − f)·(f − f^(−j)) of each group of a batch.

    ``rows`` are the batch's whitened rows Z, or its loaded rows; then H is applied by V.
    """
    ends = np.append(starts[1:], len(rows))
    t = residual.shape[1]
    at_once = max(COLUMNS_AT_ONCE // t, 1)
    found = np.empty(len(starts))
    for first in range(0, len(starts), at_once):
        own = slice(first, first + at_once)
        low, high = int(starts[own][0]), int(ends[own][-1])
        root = np.sqrt(precision[low:high])
        sizes = (ends - starts)[own]
        apply = _operator(rows[low:high], root, np.cumsum(sizes), t, project, whitened)
        local = np.repeat(np.arange(sizes.size), sizes)
        rhs = residual[low:high] * root[:, None]
        found[own], singular = _gradients(apply, rhs, local, rows.dtype.itemsize)
        for number in np.flatnonzero(singular) + first:
            group = slice(int(starts[number]), int(ends[number]))
            index = np.arange(group.start, group.stop)[None]
            shift, _ = _solve_leave_out(
                project.exact_rows(pieces, index),
                np.sqrt(precision[group])[None],
                residual[group][None],
            )
            found[number] = float((precision[group, None] * residual[group] * shift[0]).sum())
    return found


def _operator(
    rows: Features, root: Array, ends: Index, t: int, project: Projection, whitened: bool
) -> Callable[[Array], Array]:
    """q (n, t) -> H̃ q, each group by itself; groups end at ``ends``.

    A product a group, whose rows are in the cache then, is far quicker than one of all rows with a
    column for each group.
    """
    m = None if whitened else project.arithmetic.offset
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
            middle = project.covariance @ inner
        found = np.empty_like(q)
        for own, columns in groups:
            found[own] = rows[own] @ middle[:, columns]
        if m is not None:
            shift = (m @ middle).reshape(-1, t)
            found += np.repeat(shift, np.diff(ends, prepend=0), axis=0)
        return root[:, None] * found

    return apply


def _gradients(
    apply: Callable[[Array], Array], rhs: Array, local: Index, itemsize: int
) -> tuple[Array, Mask]:
    """(groups,) r̃ᵀ((I − H̃)⁻¹ − I) r̃ by conjugate gradients, and which did not converge.

    Conjugate gradients' own sum Σ α‖residual‖² converges to r̃ᵀ(I − H̃)⁻¹r̃ twice as fast as its
    solution does.
    """
    n_groups = int(local[-1]) + 1

    def dot(a: Array, b: Array) -> Array:
        return group_sums(local, (a * b).sum(1), n_groups)

    residual, direction = rhs.copy(), rhs.copy()
    square = start = dot(rhs, rhs)
    total = np.zeros(n_groups)
    live = start > 0
    singular = np.zeros(n_groups, dtype=bool)
    for _ in range(MAX_STEPS):
        product = direction - apply(direction)
        curvature = dot(direction, product)
        singular |= live & (curvature <= MIN_PIVOT * dot(direction, direction))
        live = live & ~singular
        alpha = np.divide(square, curvature, out=np.zeros(n_groups), where=live)
        gain = alpha * square
        total += gain
        live = live & (gain > STEP_TOLERANCE[itemsize] * np.maximum(total - start, 1e-6 * start))
        if not live.any():
            break
        residual = residual - alpha[local, None] * product
        new = dot(residual, residual)
        beta = np.divide(new, square, out=np.zeros(n_groups), where=live)
        direction = residual + beta[local, None] * direction
        square = new
    return total - start, singular | live
