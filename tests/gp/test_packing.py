"""Rows of a task in few bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.layout import TaskRows
from gpgc_dask.gp.oracle.packing import PackedRows, pack, unpack

N = 20_000
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "values",
    [
        np.ones(N),
        np.repeat(np.arange(100), 200),
        RNG.integers(0, 2, N),
        RNG.integers(0, 9, N),
        RNG.integers(-5, 100_000, N),
        RNG.integers(0, 2**62, N),
        RNG.random(N) < 0.5,
        RNG.choice([0.1, 1 / 3, 0.0], N),
        RNG.random(N),
        RNG.random(N).astype(np.float32).astype(np.float64),
        RNG.random(N).astype(np.float32),
        np.full(N, 1e300) * RNG.random(N),
        np.array([3]),
        np.array([], dtype=np.intp),
        None,
        7,
    ],
    ids=str,
)
def test_values_are_exactly_the_same_afterwards(values):
    after = unpack(pickle.loads(pickle.dumps(pack(values))))
    if isinstance(values, np.ndarray):
        assert after.dtype == values.dtype
        np.testing.assert_array_equal(after, values)
    else:
        assert after == values


def task(weights):
    groups = np.repeat(np.arange(N // 100), 100)
    rows = Rows(RNG.integers(0, 2, N), weights, groups, 2, N // 100)
    return TaskRows(50, 50 + N, rows, RNG.random(N) < 0.5, np.arange(100, N + 1, 100), 4000)


@pytest.mark.parametrize(
    ("weights", "limit"), [(np.ones(N), 1), (RNG.random(N).astype(np.float32), 5)]
)
def test_a_task_takes_few_bytes_per_row_until_it_runs(weights, limit):
    before = task(weights.astype(np.float64))
    sent = pickle.dumps(PackedRows(before))
    assert len(sent) < limit * N < len(pickle.dumps(before)) / 3
    again = pickle.dumps(pickle.loads(sent))
    assert len(again) == len(sent)
    after = pickle.loads(again).value
    for name in ("codes", "weights", "groups"):
        np.testing.assert_array_equal(getattr(after.rows, name), getattr(before.rows, name))
    assert after.rows.given_weights is None
    for name in ("start", "stop", "limit"):
        assert getattr(after, name) == getattr(before, name)
    for name in ("keep", "ends"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
