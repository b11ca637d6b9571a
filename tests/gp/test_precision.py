"""float32 data: float32 products if they are precise enough, else float64."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from gpgc_dask import GPGC
from tests.support.problems import classification


def fit(X, data, **options):
    return GPGC(**options).fit(X, data.y, groups=data.groups)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_a_common_mean_costs_no_digits(shift, redundancy, lazy):
    data = classification(6000, 100, 100)
    X = data.X.astype(np.float32) + np.float32(shift)
    exact = fit(X, data, dtype="float64", redundancy=redundancy)
    single = fit(da.from_array(X, chunks=(1000, -1)) if lazy else X, data, redundancy=redundancy)
    assert exact.history_[-1]["arithmetic"] == "float64, centred"
    assert single.history_[-1]["arithmetic"] == "float32, centred"
    gap = np.log(single.noise_variance_) - np.log(exact.noise_variance_)
    assert np.abs(gap).max() < 1e-2
    values = single.decision_function(X)
    np.testing.assert_allclose(values, exact.decision_function(X), atol=1e-3)
    order = np.argsort(exact.noise_variance_)
    ranked = exact.noise_variance_[np.argsort(single.noise_variance_)]
    # The same ranking, except for groups that agree to five digits.
    np.testing.assert_allclose(ranked, exact.noise_variance_[order], rtol=1e-5)


@pytest.mark.parametrize("lazy", [False, True])
def test_float64_if_centring_is_not_enough(lazy):
    """Two halves with means far apart: no offset suits both."""
    data = classification(3000, 40, 60)
    rng = np.random.default_rng(1)
    half = np.where(data.groups % 2, 200.0, -200.0)[:, None]
    X = (data.X + half + rng.standard_normal(data.X.shape)).astype(np.float32)
    exact = fit(X, data, dtype="float64", redundancy=1.0)
    found = fit(da.from_array(X, chunks=(500, -1)) if lazy else X, data, redundancy=1.0)
    assert found.history_[-1]["arithmetic"] == "float64, centred"
    np.testing.assert_allclose(found.noise_variance_, exact.noise_variance_, rtol=1e-2)


def test_float64_if_groups_near_the_floor_need_it():
    """A feature equals the label in some groups: their precision is 1e4 times that of others."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(30), 60)
    y = rng.integers(0, 2, 1800)
    X = rng.standard_normal((1800, 40))
    X[:, 0] = np.where(groups < 10, 2 * y - 1, (2 * y - 1) * 0.5 + rng.standard_normal(1800))
    X = X.astype(np.float32)
    found = GPGC(redundancy=1.0).fit(X, y, groups=groups)
    exact = GPGC(redundancy=1.0, dtype="float64").fit(X, y, groups=groups)
    assert found.history_[-1]["arithmetic"] == "float64, centred"
    assert found.history_[0]["arithmetic"] == "float32, centred"
    assert found.log_evidence_ == pytest.approx(exact.log_evidence_, abs=0.02)


def test_float64_if_squares_overflow_float32():
    data = classification(900, 10, 30)
    X = data.X.astype(np.float32)
    X[:, :5] *= np.float32(1e-24)
    names = ["small"] * 5 + ["plain"] * 5
    found = GPGC(redundancy=1.0).fit(X, data.y, groups=data.groups, feature_groups=names)
    scaled = X.astype(np.float64)
    scaled[:, :5] *= 1e24
    exact = GPGC(redundancy=1.0).fit(scaled, data.y, groups=data.groups, feature_groups=names)
    assert found.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-2)


def test_float16_features():
    data = classification(2000, 30, 40)
    X = data.X.astype(np.float16)
    half, exact = fit(X, data), fit(X.astype(np.float64), data)
    assert half.history_[-1]["arithmetic"] == "float32, centred"
    np.testing.assert_allclose(half.noise_variance_, exact.noise_variance_, rtol=1e-3)
