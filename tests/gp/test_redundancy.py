"""The redundancy c, and groups whose labels are all the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from gpgc_dask import GP, GPGC
from tests.support.problems import classification, repeated

SIZES = [(6000, 60, 100), (8000, 150, 120), (5000, 200, 60)]


@pytest.mark.parametrize(("n", "k", "n_groups"), SIZES)
@pytest.mark.parametrize("seed", [10, 11])
def test_independent_rows_count_as_one_each(n, k, n_groups, seed):
    data = classification(n, k, n_groups, seed)
    model = GPGC().fit(data.X, data.y, groups=data.groups)
    assert model.converged_
    assert 0.9 < model.redundancy_ < 1.15


@pytest.mark.parametrize(("n", "k", "n_groups"), SIZES)
def test_rows_repeated_four_times_count_as_a_quarter(n, k, n_groups):
    data = repeated(classification(n // 4, k, n_groups, seed=10), 4)
    model = GPGC().fit(data.X, data.y, groups=data.groups)
    assert model.converged_
    assert 3.4 < model.redundancy_ < 4.3


@pytest.mark.parametrize("times", [1, 4])
def test_joint_loop_and_nested_search_agree(times):
    data = repeated(classification(2000, 60, 80, seed=12), times)
    joint = GPGC(solver="auto").fit(data.X, data.y, groups=data.groups)
    nested = GPGC(solver="lbfgs").fit(data.X, data.y, groups=data.groups)
    assert joint.redundancy_ == pytest.approx(nested.redundancy_, rel=0.02)
    gap = np.log(joint.noise_variance_) - np.log(nested.noise_variance_)
    assert np.abs(gap).max() < 0.05


def test_single_noise_estimates_the_redundancy():
    data = repeated(classification(1500, 40, 60, seed=13), 4)
    model = GP().fit(data.X, data.y, groups=data.groups)
    assert 3.4 < model.redundancy_ < 4.6


def test_fixed_redundancy_and_its_history():
    data = classification(2000, 40, 50)
    fixed = GPGC(redundancy=3).fit(data.X, data.y, groups=data.groups)
    assert fixed.redundancy_ == 3.0
    solved = GPGC().fit(data.X, data.y, groups=data.groups)
    assert solved.history_[0]["redundancy"] == 1.0
    assert solved.history_[-1]["redundancy"] == solved.redundancy_
    assert solved.history_[-1]["redundancy_ratio"] == pytest.approx(1.0, abs=0.01)


def test_redundancy_is_a_tempering_of_the_weights():
    """c rows that count as one are rows of weight 1/c."""
    data = classification(2000, 40, 50)
    by_c = GPGC(redundancy=4.0).fit(data.X, data.y, groups=data.groups)
    by_weight = GPGC(redundancy=1.0).fit(
        data.X, data.y, groups=data.groups, sample_weight=np.full(2000, 0.25)
    )
    np.testing.assert_allclose(by_c.noise_variance_, by_weight.noise_variance_, rtol=1e-6)


def test_a_bound_counts_as_solved():
    """Pairs of rows hold little information: c is at its lower bound, and the fit converges."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 5))
    y = (X[:, 0] + rng.standard_normal(240) > 0).astype(int)
    model = GPGC().fit(X > 0, y, groups=np.arange(240) // 2)
    assert model.converged_
    assert model.n_reads_ < 40


def test_few_groups_leave_it_at_one():
    data = classification(600, 10, 5)
    assert GPGC().fit(data.X, data.y, groups=data.groups).redundancy_ == 1.0


@pytest.mark.parametrize("seed", [20, 21, 22])
@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_constant_label_groups_stay_bounded(seed, redundancy):
    data = classification(6000, 80, 60, seed)
    spoilt = data.groups < 5
    y = np.where(spoilt, 0, data.y)
    model = GPGC(redundancy=redundancy).fit(data.X, y, groups=data.groups)
    rest = GPGC(redundancy=redundancy).fit(
        data.X[~spoilt], data.y[~spoilt], groups=data.groups[~spoilt]
    )
    assert np.isfinite(model.log_evidence_)
    assert model.converged_
    assert np.all(model.noise_variance_[5:] > 1.001 * model.noise_floor)
    correlation = spearmanr(model.noise_variance_[5:], rest.noise_variance_).statistic
    assert correlation >= 0.9


def test_mostly_background_with_empty_masks():
    """As in photos: rows of an image are similar, few are foreground, some masks are empty."""
    rng = np.random.default_rng(0)
    n_groups, rows, k = 60, 60, 40
    groups = np.repeat(np.arange(n_groups), rows)
    X = rng.standard_normal((n_groups * rows, k)) + 0.7 * rng.standard_normal((n_groups, k))[groups]
    X[:, -1] = 1.0
    f = X[:, :-1] @ rng.standard_normal(k - 1)
    y = (f > np.quantile(f, 0.8)).astype(int)
    y ^= rng.random(len(y)) < np.where(rng.random(n_groups) < 0.3, 0.35, 0.02)[groups]
    empty = groups < 5
    model = GPGC().fit(X, np.where(empty, 0, y), groups=groups)
    rest = GPGC().fit(X[~empty], y[~empty], groups=groups[~empty])
    assert model.converged_
    assert model.noise_variance_.min() > 1.001 * model.noise_floor
    assert spearmanr(model.noise_variance_[5:], rest.noise_variance_).statistic >= 0.9
