"""Products on one batch of rows, against plain NumPy in float64."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from gpgc_dask.core.threads import prefetch
from gpgc_dask.gp.evidence import Moments, Posterior, posterior
from gpgc_dask.gp.oracle.kernels import (
    SUM_ROWS,
    Accumulator,
    Arithmetic,
    MomentSums,
    Projection,
    Workspace,
    batch_rows,
)
from gpgc_dask.gp.oracle.leave_out import leave_out_shift, leave_out_terms
from tests.support.problems import RTOL

DTYPES = ["float32", "float64"]


def rows(n, k, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [10, SUM_ROWS + 100])
def test_packed_moments(dtype, n):
    k = 7
    F, targets = rows(n, k, dtype) + np.asarray(3, dtype), rows(n, 2, "float64", seed=1)
    weight = np.random.default_rng(2).random(n)
    arithmetic = Arithmetic(np.dtype(dtype), np.full(k, 3.0))
    parts = []
    for own in (slice(0, n // 3), slice(n // 3, n)):
        sums = Accumulator(k, 2, np.dtype(dtype))
        sums.add(Workspace(arithmetic).load([F[own]]), weight[own], targets[own])
        parts.append(sums.sums())
    assert parts[0].gram.shape == (k * (k + 1) // 2,)
    total = MomentSums.merge(parts)
    found, exact = total.finish(arithmetic), F.astype(float)
    scale = np.abs((exact * weight[:, None]).T @ exact).max()
    np.testing.assert_allclose(
        found.gram, (exact * weight[:, None]).T @ exact, atol=RTOL[dtype] * scale
    )
    np.testing.assert_allclose(
        found.cross, (exact * weight[:, None]).T @ targets, atol=RTOL[dtype] * scale
    )
    assert found.yy == pytest.approx(float(weight @ (targets**2).sum(1)))
    mean = np.average(exact, axis=0, weights=weight)
    variance = np.average((exact - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(total.column_variance(), variance, rtol=1e-4)


def test_negative_weights_subtract_rows():
    F, y = rows(300, 6, "float64"), np.ones((300, 1))
    weight = np.random.default_rng(0).standard_normal(300)
    weight[:40] = 0.0
    sums = Accumulator(6, 1, np.dtype("float64"))
    sums.add(F.copy(), weight, y)
    found = sums.sums().finish(Arithmetic(np.dtype("float64")))
    np.testing.assert_allclose(found.gram, (F * weight[:, None]).T @ F, atol=1e-10)
    np.testing.assert_allclose(found.cross[:, 0], weight @ F, atol=1e-10)


def test_rows_of_a_batch():
    assert batch_rows(64, 4) == SUM_ROWS
    assert batch_rows(4113, 4) == 1024
    assert 1024 <= batch_rows(700, 4) <= SUM_ROWS


def a_posterior(F, weight):
    gram = (F * weight[:, None]).T @ F
    return posterior(Moments(gram, F.T @ np.ones((len(F), 1)), 1.0), np.full(F.shape[1], 0.7))


@pytest.mark.parametrize("dtype", DTYPES)
def test_probes_estimate_leverages_and_the_mean_is_exact(dtype):
    F = rows(400, 12, "float64") + 2.0
    post = a_posterior(F, np.ones(400))
    many = post.T.T @ np.random.default_rng(0).standard_normal((12, 20_000)) / np.sqrt(20_000)
    arithmetic = Arithmetic(np.dtype(dtype), np.full(12, 2.0))
    projection = Projection(post, arithmetic, directions=many, keep_factor=False)
    f, v = projection.predict(Workspace(arithmetic).load([F.astype(dtype)]))
    np.testing.assert_allclose(f, F @ post.mu, rtol=RTOL[dtype], atol=1e-5)
    np.testing.assert_allclose(v, ((F @ post.T.T) ** 2).sum(1), rtol=0.05)
    with pytest.raises(ValueError, match="whitened"):
        projection.exact_rows([F], np.arange(3))


def dense_shift(Z, precision, residual, starts):
    """(n, t) f − f^(−j) = (I − H P)⁻¹ r − r, group by group."""
    shift = np.empty(residual.shape)
    for start, stop in pairwise([*starts, len(Z)]):
        own = slice(start, stop)
        matrix = np.eye(stop - start) - Z[own] @ Z[own].T * precision[own]
        shift[own] = np.linalg.solve(matrix, residual[own]) - residual[own]
    return shift


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("t", [1, 3])
def test_leave_out_terms_by_gradients_and_by_factorisation(dtype, whitened, t):
    rng = np.random.default_rng(0)
    sizes = np.array([3, 40, 1, 17, 30, 2, 9, 40, 5])
    starts = np.cumsum(sizes) - sizes
    F = rows(sizes.sum(), 15, "float64") + 1.0
    precision = rng.uniform(0.05, 2.0, len(F))
    post = a_posterior(F, precision)
    residual = rng.standard_normal((len(F), t))
    Z = F @ post.T.T
    shift = dense_shift(Z, precision, residual, starts)
    expected = np.add.reduceat(precision * (residual * shift).sum(1), starts)
    arithmetic = Arithmetic(np.dtype(dtype), np.full(15, 1.0))
    projection = Projection(post, arithmetic)
    A = Workspace(arithmetic).load([F.astype(dtype)])
    if whitened:
        A = projection.whiten(A)
    given = A, precision, residual, starts, [F.astype(dtype)], projection
    single = dtype == "float32"
    found = leave_out_terms(*given, whitened=whitened)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if single else 1e-8)
    found = leave_out_shift(*given, whitened=whitened)
    np.testing.assert_allclose(found, shift, rtol=1e-4, atol=1e-4 if single else 1e-10)


def test_leave_out_of_a_group_that_determines_the_model_alone():
    """I − H is singular to single precision there: it is factorised in double precision."""
    rng = np.random.default_rng(0)
    F = rng.standard_normal((60, 5))
    precision = np.where(np.arange(60) < 30, 1e6, 1e-3)
    post = a_posterior(F, precision)
    residual = rng.standard_normal((60, 1))
    starts = np.array([0, 30])
    shift = dense_shift(F @ post.T.T, precision, residual, starts)
    expected = np.add.reduceat(precision * (residual * shift).sum(1), starts)
    single = Projection(post, Arithmetic(np.dtype("float32")))
    narrow = F.astype("float32")
    found = leave_out_terms(narrow.copy(), precision, residual, starts, [F], single, whitened=False)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    for whitened in (False, True):
        rows = single.whiten(narrow.copy()) if whitened else narrow.copy()
        found = leave_out_shift(rows, precision, residual, starts, [F], single, whitened=whitened)
        np.testing.assert_allclose(found, shift, rtol=1e-3, atol=1e-3)


def test_factor_is_not_sent_with_directions_alone():
    post = Posterior(np.eye(5), np.zeros((5, 1)), 0.0, np.empty(0), np.empty(0))
    directions = np.ones((5, 2))
    arithmetic = Arithmetic(np.dtype("float64"))
    light = Projection(post, arithmetic, directions=directions, keep_factor=False)
    assert light.__getstate__()["T"] is None
    heavy = Projection(post, arithmetic, directions=directions, keep_factor=True)
    assert heavy.__getstate__()["T"] is post.T
    np.testing.assert_allclose(heavy.covariance, solve_triangular(np.eye(5), np.eye(5)))


def test_reading_ahead_keeps_order_and_errors():
    made = []

    def make(number):
        made.append(number)
        if number == 5:
            raise OSError("the store is gone")
        return number

    stream = prefetch([partial(make, number) for number in range(6)], depth=2)
    assert next(stream) == 0
    while len(made) < 3:
        time.sleep(0.001)
    assert sorted(made) == [0, 1, 2]
    assert [next(stream) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(OSError, match="the store is gone"):
        next(stream)
