"""The four queries, the layout of tasks, and how a dask array is read."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import gpgc_dask.gp.oracle.dask as dask_oracle
from gpgc_dask.gp.evidence import posterior
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskOracle, DaskSweeps, count_tasks
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.layout import batch_ends, cut_tasks, is_adjacent, whole_batches
from gpgc_dask.gp.oracle.numpy import NumpyOracle, NumpySweeps
from tests.support.problems import RTOL, classification

FLOAT64 = Arithmetic(np.dtype(np.float64))


def rows_of(data, weights=None):
    n = len(data.y)
    return Rows(
        data.y.astype(np.intp),
        np.ones(n) if weights is None else weights,
        data.groups.astype(np.intp),
        2,
        data.groups.max() + 1,
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lazy", [False, True])
def test_four_queries(dtype, lazy):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((97, 6)).astype(dtype)
    exact = F.astype(np.float64)
    oracle = DaskOracle(da.from_array(F, chunks=((40, 1, 0, 56), -1))) if lazy else NumpyOracle(F)
    v, V, u, d = rng.random(97), rng.random((97, 2)), rng.random(6), rng.random(97)
    A = rng.random((6, 6))
    pairs = [
        (oracle.rmatvec(v), exact.T @ v),
        (oracle.rmatvec(V), exact.T @ V),
        (oracle.matvec(u), exact @ u),
        (oracle.matvec(A), exact @ A),
        (oracle.gram(d), exact.T @ np.diag(d) @ exact),
        (oracle.quad_diag(A), np.diagonal(exact @ A @ exact.T)),
        (oracle.variance(A), np.diagonal(exact @ A.T @ A @ exact.T)),
    ]
    for found, expected in pairs:
        assert isinstance(found, da.Array) == lazy
        assert found.shape == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-8, atol=1e-10)


@given(
    blocks=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    limit=st.integers(1, 20),
)
def test_batches_are_whole_and_complete(blocks, groups, limit):
    n = min(sum(blocks), sum(groups))
    if n == 0:
        return
    matrix = np.arange(n)[:, None]
    ends = np.unique(np.minimum(np.cumsum(groups), n))
    cuts = np.minimum(np.cumsum([0, *blocks]), n)
    stream = [matrix[a:b] for a, b in itertools.pairwise(cuts)]
    seen = []
    for start, stop, pieces in whole_batches(stream, ends, limit):
        assert stop in ends
        assert stop - start <= limit or np.count_nonzero((ends > start) & (ends <= stop)) == 1
        rows = np.concatenate(pieces)[:, 0]
        np.testing.assert_array_equal(rows, np.arange(start, stop))
        seen.append(rows)
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(n))


def test_tasks_end_at_groups_and_cover_every_row_once():
    data = classification(500, 5, 30)
    rows = rows_of(data)
    selected = np.array([3, 0, 29, 17])
    blocks = np.array([0, 100, 250, 500])
    for whole in (True, False):
        tasks = cut_tasks(rows, selected, blocks, whole_groups=whole, n_tasks=7, limit=64)
        counted = Counter(group for task in tasks for group in task.rows.groups.tolist())
        for number, group in enumerate(selected):
            assert counted[number] == np.count_nonzero(data.groups == group)
        if whole:
            for number in range(selected.size):
                assert sum(number in task.rows.groups for task in tasks) == 1
        else:
            assert {task.stop for task in tasks} <= set(blocks)


def test_adjacency():
    assert is_adjacent(np.array([2, 2, 0, 0, 1]))
    assert not is_adjacent(np.array([2, 0, 2]))
    assert batch_ends(np.array([5, 5, 1]), whole_groups=True, limit=9).tolist() == [2, 3]


def test_number_of_tasks_is_a_multiple_of_threads():
    assert count_tasks(131_072, 1024, 2) == 8
    assert count_tasks(131_072, 512, 2) == count_tasks(131_072, 256, 2) == 4
    assert count_tasks(100, 10, 8) == 1
    assert count_tasks(436_000, 4113, 40) % 40 == 0


class Counting:
    """An array that counts how often each of its rows is read."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.ndim = values.ndim
        self.counts = np.zeros(len(values), dtype=int)

    def __getitem__(self, index):
        self.counts[index[0]] += 1
        return self.values[index]


@pytest.mark.usefixtures("sync")
def test_step_reads_each_row_once(monkeypatch):
    monkeypatch.setattr(dask_oracle, "count_tasks", lambda *shape: 3)
    data = classification(600, 30, 40)
    counting = Counting(data.X)
    X = da.from_array(counting, chunks=(100, -1), name=False, asarray=True, lock=False)
    oracle = DaskSweeps(X, rows_of(data), FLOAT64)
    tasks = [packed.value for packed in oracle._tasks(whole_groups=True)]
    log_noise = np.zeros(40)
    post = posterior(oracle.moments(log_noise, 1.0), np.ones(30))
    counting.counts[:] = 0
    oracle.step(post, log_noise, 1.0, FixedPointRule(1, -9.0, 9.0), leave_out=True)
    seams = sum(task.start % 100 != 0 for task in tasks)
    blocks = counting.counts[::100]
    assert blocks.min() == 1
    assert blocks.sum() <= 6 + seams


def test_a_memory_map_is_not_sent_with_every_task(tmp_path, client):
    data = classification(3000, 40, 30)
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=data.X.shape)
    mapped[:] = data.X
    X = da.from_array(mapped, chunks=(300, -1))
    oracle = DaskSweeps(X, rows_of(data), FLOAT64)
    reads, given = oracle._blocks.of(0, 3000)
    assert not given
    assert len(cloudpickle.dumps(reads)) < mapped.nbytes / 10
    found = oracle.moments(np.zeros(30), 1.0)
    np.testing.assert_allclose(found.gram, data.X.T @ data.X, rtol=1e-8)


@pytest.mark.parametrize("source", ["computed", "with a constant", "shared", "persisted"])
def test_arrays_that_are_not_plain_reads(client, small_tasks, source):
    data = classification(600, 30, 40)
    expected = NumpySweeps(data.X, rows_of(data), FLOAT64)
    X = da.from_array(data.X, chunks=(100, -1))
    if source == "computed":
        X = X * 2 / 2
    elif source == "with a constant":
        X = da.concatenate([X[:, :-1], da.ones((600, 1), chunks=(100, 1))], axis=1).rechunk({1: -1})
        X = X[np.s_[0:600]]
    elif source == "shared":
        X = (X - X.mean(0)) + X.mean(0)
    else:
        X = X.persist()
    oracle = DaskSweeps(X, rows_of(data), FLOAT64)
    assert oracle._blocks.readable == (source in ("computed", "with a constant"))
    log_noise = np.linspace(-1, 1, 40)
    one, other = (o.moments(log_noise, 1.0) for o in (oracle, expected))
    np.testing.assert_allclose(one.gram, other.gram, rtol=1e-8)


def test_rows_of_chosen_groups_only(small_tasks):
    data = classification(600, 30, 40)
    chosen = np.array([0, 5, 6, 39])
    own = np.isin(data.groups, chosen)
    for oracle in (
        NumpySweeps(data.X, rows_of(data), FLOAT64),
        DaskSweeps(da.from_array(data.X, chunks=(70, -1)), rows_of(data), FLOAT64),
    ):
        part = oracle.select_groups(chosen)
        found = part.moments(np.zeros(4), 1.0)
        np.testing.assert_allclose(found.gram, data.X[own].T @ data.X[own], rtol=1e-8)
        assert part.reads == pytest.approx(own.mean())
        np.testing.assert_allclose(
            oracle.load_groups(chosen).moments(np.zeros(4), 1.0).gram, found.gram, rtol=1e-8
        )


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_float32_products_keep_their_digits(tmp_path, shift):
    """float32 rows from Zarr with a large offset, compared with dense float64."""
    data = classification(3000, 40, 30)
    F = (data.X + shift).astype(np.float32)
    store = zarr.create_array(tmp_path / "X.zarr", shape=F.shape, chunks=(512, 40), dtype="float32")
    store[:] = F
    offset = F.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
    oracle = DaskSweeps(da.from_zarr(store), rows_of(data), Arithmetic(np.dtype("float32"), offset))
    log_noise = np.linspace(-1, 1, 30)
    exact = F.astype(np.float64)
    centred = exact - offset
    p = np.exp(-log_noise)[data.groups]
    moments = oracle.moments(log_noise, 1.0)
    error = moments.gram - (exact * p[:, None]).T @ exact
    assert np.abs(error).max() < RTOL["float32"] * np.abs((centred * p[:, None]).T @ centred).max()
    post = posterior(moments, np.full(40, 0.3))
    terms = oracle.terms(post, log_noise, 1.0, leave_out=False)
    v = ((exact @ post.T.T) ** 2).sum(1)
    expected = np.bincount(data.groups, p * v)
    np.testing.assert_allclose(terms.leverage, expected, rtol=RTOL["float32"])


def test_no_large_graph_warning(client):
    """A sweep sends the labels of its rows and the posterior with the graph on purpose."""
    data = classification(200, 5, 10)
    oracle = DaskSweeps(da.from_array(data.X, chunks=(50, -1)), rows_of(data), FLOAT64)
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1B"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        oracle.moments(np.zeros(10), 1.0)
        with pytest.raises(UserWarning, match="large graph"):
            oracle.X.sum().compute()
