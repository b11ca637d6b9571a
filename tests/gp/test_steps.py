"""Fits in few reads: Newton's steps, expected terms, corrections, the warm start."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest

from gpgc_dask import GPGC
from gpgc_dask.gp import evidence
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.noise import FirstNoiseRule, FixedPointRule, NoiseModel, groupwise
from gpgc_dask.gp.oracle.base import Rows, TermsRequest
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.rows import survey
from gpgc_dask.gp.oracle.statistics import CompositeOracle
from gpgc_dask.gp.solvers import Hyperparameters, Problem
from gpgc_dask.gp.solvers.convergence import certify
from gpgc_dask.gp.solvers.newton import expected_terms, newton_mean
from gpgc_dask.gp.warm_start import draw_sample, warm_start_rows
from tests.support.problems import classification

FLOAT64 = Arithmetic(np.dtype(np.float64))


def rows_of(data):
    n = len(data.y)
    groups = data.groups.astype(np.intp)
    return Rows(data.y.astype(np.intp), np.ones(n), groups, 2, groups.max() + 1)


def test_scale_hessian_by_finite_differences():
    rng = np.random.default_rng(0)
    F, Y = rng.standard_normal((60, 9)), rng.choice([-1.0, 1.0], (60, 2))
    moments = Moments(F.T @ F, F.T @ Y, float((Y**2).sum()))
    index = np.array([0, 0, 0, 1, 1, 2, 2, 2, 1])
    x = np.array([-1.0, 0.3, -0.2])

    def gradient(x):
        post = evidence.posterior(moments, np.exp(0.5 * x)[index])
        return evidence.scale_gradient(evidence.feature_terms(moments, post, index), 2)

    scales = np.exp(0.5 * x)[index]
    found = evidence.scale_hessian(evidence.posterior(moments, scales), scales, index)
    step = 1e-5
    expected = np.stack(
        [(gradient(x + step * e) - gradient(x - step * e)) / (2 * step) for e in np.eye(3)]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.fixture
def problem():
    """The problem, and a point on the way to its optimum."""
    data = classification(4000, 40, 150, seed=3)
    rows = rows_of(data)
    sweeps = NumpySweeps(data.X, rows, FLOAT64)
    found = Problem(
        sweeps, NoiseModel(groupwise(150)), np.zeros(40, dtype=np.intp), np.array([40.0]),
        (np.log(1e-4), np.log(1e4)), 1.0, 1e-4, 100, lambda point: 0.0,
    )  # fmt: skip
    log_noise = np.random.default_rng(0).normal(-0.5, 0.3, 150)
    state = Hyperparameters(log_noise, np.log([0.02]), 1.0)
    return found, found.evaluate(state, sweeps.moments(log_noise, 1.0))


def one_step(problem, point, mean=None, **options):
    request = TermsRequest(mean=mean, gradient_groups=np.ones(problem.n_groups, dtype=bool))
    rule = FixedPointRule(1, *problem.noise_bounds, **options)
    state = point.params
    result = problem.oracle.step(
        point.post, state.log_noise, 1.0, rule, leave_out=False, request=request
    )
    new = problem.evaluate(replace(state, log_noise=result.log_noise), result.moments)
    return result, new


def test_weight_gradients_of_groups(problem):
    problem, point = problem
    result, _ = one_step(problem, point)
    data = problem.oracle
    p = data.rows.precision(point.params.log_noise, 1.0)
    residual = data.rows.targets() - data.F @ point.post.mu
    for group in (0, 77, 149):
        own = data.rows.groups == group
        expected = data.F[own].T @ (p[own, None] * residual[own])
        np.testing.assert_allclose(
            result.terms.weight_gradients[group], expected, rtol=1e-8, atol=1e-10
        )


def test_expected_terms(problem):
    """The terms expected at the next point equal those of a read, to first order."""
    problem, point = problem
    every = np.ones(problem.n_groups, dtype=bool)
    for _ in range(2):
        result, new = one_step(problem, point)
        expected = expected_terms(result.terms, every, point.params, point.post.mu, new)
        before, point = point, new
    true = problem.oracle.terms(point.post, point.params.log_noise, 1.0, leave_out=False)
    change = np.abs(true.residual - problem.group_weight(1.0) + true.leverage).max()
    assert np.abs(expected.residual - true.residual).max() < 0.3 * change
    assert expected.leverage.sum() == pytest.approx(true.leverage.sum(), rel=1e-9)
    gains = [certify(problem, point, terms, None).gain for terms in (expected, true)]
    assert gains[0] == pytest.approx(gains[1], rel=0.5)
    assert before.value > point.value


def test_newton_beats_the_plain_step(problem):
    problem, start = problem
    every = np.ones(problem.n_groups, dtype=bool)
    values = {}
    for newton in (False, True):
        point, mean = start, None
        for _ in range(4):
            result, new = one_step(problem, point, mean)
            judged = point.post.mu if mean is None else mean
            if newton:
                mean = newton_mean(problem, result.terms, every, point.params, judged, new)
                assert mean is not None
            point = new
        values[newton] = point.value
    optimum = min(values.values())
    assert values[True] < values[False]
    assert values[False] - optimum > 5 * (values[True] - optimum)


def test_gradients_of_some_groups_represent_all(problem):
    problem, point = problem
    result, new = one_step(problem, point)
    every = np.ones(problem.n_groups, dtype=bool)
    some = np.arange(problem.n_groups) % 3 == 0
    sampled = replace(result.terms, weight_gradients=result.terms.weight_gradients[some])
    full = newton_mean(problem, result.terms, every, point.params, point.post.mu, new)
    part = newton_mean(problem, sampled, some, point.params, point.post.mu, new)
    step = np.linalg.norm(full - point.post.mu)
    assert np.linalg.norm(full - part) < 0.5 * step
    gains = [
        certify(
            problem, new, expected_terms(terms, asked, point.params, point.post.mu, new), None
        ).gain
        for terms, asked in ((result.terms, every), (sampled, some))
    ]
    assert gains[1] == pytest.approx(gains[0], rel=0.5)


def test_corrected_moments_are_the_moments(problem):
    problem, point = problem
    state, oracle = point.params, problem.oracle
    min_gain = 0.05
    rule = FixedPointRule(1, *problem.noise_bounds, min_gain=min_gain)
    options = {"leave_out": False, "request": TermsRequest()}
    summed = oracle.step(point.post, state.log_noise, 1.0, rule, **options)
    corrected = oracle.step(
        point.post, state.log_noise, 1.0, rule, current=point.moments, **options
    )
    unmoved = summed.log_noise == state.log_noise
    assert 0 < np.count_nonzero(unmoved) < unmoved.size
    np.testing.assert_array_equal(corrected.log_noise, summed.log_noise)
    np.testing.assert_allclose(corrected.moments.gram, summed.moments.gram, rtol=1e-9)
    np.testing.assert_allclose(corrected.moments.cross, summed.moments.cross, rtol=1e-8, atol=1e-9)
    assert corrected.moments.yy == pytest.approx(summed.moments.yy)


def test_weight_gradients_of_large_and_small_groups():
    data = classification(900, 22, 40, seed=1)
    rows = rows_of(data)
    whole = NumpySweeps(data.X, rows, FLOAT64)
    first = survey(whole)
    assert isinstance(first.oracle, CompositeOracle)
    log_noise = np.linspace(-1, 1, 40)
    post = evidence.posterior(whole.moments(log_noise, 1.0), np.full(22, 0.5))
    asked = np.arange(40) % 2 == 0
    request = TermsRequest(mean=1.1 * post.mu, gradient_groups=asked)
    rule = FixedPointRule(1, -9.0, 9.0)
    one, other = (
        oracle.step(post, log_noise, 1.0, rule, leave_out=False, request=request)
        for oracle in (whole, first.oracle)
    )
    np.testing.assert_allclose(
        other.terms.weight_gradients, one.terms.weight_gradients, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(other.log_noise, one.log_noise, rtol=1e-8)


def test_first_noise_of_new_groups():
    rule = FirstNoiseRule(2, -9.0, 9.0, redundancy=2.0)
    weight = residual = np.array([8.0, 8.0, 0.0])
    new = rule(np.zeros(3), weight, residual, np.array([1.0, 9.0, 0.0]))
    np.testing.assert_allclose(new, [np.log(3 / 4), np.log(0.3), 0.0])


def test_a_warm_start_is_for_many_rows_of_small_groups():
    assert warm_start_rows(131_072, 1024, 1000, 140, 4) == 4096
    assert warm_start_rows(131_072, 256, 1000, 140, 4) == 4096
    assert warm_start_rows(20_011, 256, 200, 140, 4) == 24 * 20_011 // 200
    assert warm_start_rows(20_000, 1024, 150, 140, 4) == 0
    assert warm_start_rows(131_072, 100, 1000, 140, 4) == 0
    assert warm_start_rows(16_000_000, 4113, 111_668, 145, 4) * 4113 * 4 <= 1 << 28


@pytest.mark.parametrize("lazy", [False, True])
def test_a_sample_is_of_whole_groups_from_everywhere(lazy):
    data = classification(24_000, 150, 240)
    X = da.from_array(data.X, chunks=(1500, -1)) if lazy else data.X
    sample = draw_sample(X, rows_of(data), warm=True)
    assert sample.groups is not None
    np.testing.assert_array_equal(sample.index, np.flatnonzero(np.isin(data.groups, sample.groups)))
    np.testing.assert_array_equal(sample.features, data.X[sample.index])
    assert np.ptp(sample.groups) > 180
    assert sample.share == pytest.approx(0.5 if lazy else sample.index.size / 24_000)
    assert len(sample.thin()[0]) < 4100


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_a_warm_start_ends_where_a_cold_one_does(lazy, redundancy, monkeypatch):
    data = classification(24_000, 150, 240, seed=2)
    X = da.from_array(data.X, chunks=(1500, -1)) if lazy else data.X
    warm = GPGC(redundancy=redundancy, rounds=0).fit(X, data.y, groups=data.groups)
    monkeypatch.setattr("gpgc_dask.gp.warm_start.WARM_SHARE", 0.0)
    strict = GPGC(redundancy=redundancy, tol=1e-8, max_iter=300)
    cold = strict.fit(data.X, data.y, groups=data.groups)
    assert "sample" in warm.history_[0]["seconds"]
    assert "sample" not in cold.history_[0]["seconds"]
    assert warm.converged_
    assert warm.n_reads_ <= (6 if redundancy == 1.0 else 7)
    assert warm.redundancy_ == pytest.approx(cold.redundancy_, rel=0.01)
    gap = np.log(warm.noise_variance_) - np.log(cold.noise_variance_)
    assert np.abs(gap).max() < 2e-2
    if redundancy == 1.0:
        assert cold.log_evidence_ - warm.log_evidence_ < 1e-6 * 24_000


@pytest.mark.parametrize("lazy", [False, True])
def test_warm_start_names_rows_with_nan(lazy):
    data = classification(24_000, 150, 240)
    X = data.X.copy()
    X[23_777, 3] = np.nan
    given = da.from_array(X, chunks=(1500, -1)) if lazy else X
    with pytest.raises(ValueError, match=r"row\(s\) 23777, column\(s\) 3"):
        GPGC().fit(given, data.y, groups=data.groups)


def test_only_certificates_are_marked_exact():
    data = classification(24_000, 150, 240, seed=2)
    model = GPGC(redundancy=1.0, rounds=0).fit(data.X, data.y, groups=data.groups)
    *earlier, last = model.history_
    assert last["certified"]
    assert not any(entry["certified"] for entry in earlier)
    rows = rows_of(data)
    weights = model.class_weight_[rows.codes]
    sweeps = NumpySweeps(data.X, Rows(rows.codes, weights, rows.groups, 2, 240), FLOAT64)
    log_noise = np.log(model.noise_variance_)
    scales = np.full(150, model.feature_scales_["all"])
    post = evidence.posterior(sweeps.moments(log_noise, 1.0), scales)
    terms = sweeps.terms(post, log_noise, 1.0, leave_out=False)
    gradient = evidence.noise_gradient(sweeps.group_weight, terms.residual, terms.leverage, 1)
    gain = 0.5 * np.sum(gradient**2 / (0.5 * sweeps.group_weight))
    assert last["predicted_gain"] == pytest.approx(gain, rel=0.3, abs=1e-4)
