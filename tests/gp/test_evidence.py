"""Evidence, gradient, posterior and leave-out compared with the dense formulas."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given

from gpgc_dask.gp import evidence
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskSweeps, lazy_leave_out
from gpgc_dask.gp.oracle.kernels import Arithmetic, Projection
from gpgc_dask.gp.oracle.rows import survey
from gpgc_dask.gp.oracle.tasks import Sweep
from tests.support.dense import DenseGP
from tests.support.problems import RTOL, Instance, classification, instances, sweeps

close = {"rtol": RTOL["float64"], "atol": 1e-9}


@pytest.fixture(params=["numpy", "dask"])
def kind(request, sync, small_tasks):
    return request.param


def dense(instance: Instance) -> DenseGP:
    return DenseGP(instance.F, instance.rows.targets(), instance.row_noise, instance.prior)


def at_point(instance: Instance, oracle):
    moments = oracle.moments(instance.log_noise, instance.redundancy)
    return moments, evidence.posterior(moments, instance.scales)


@given(instance=instances(unit_weights=True))
def test_evidence_equals_the_dense_one(kind, instance):
    oracle = sweeps(instance, kind)
    moments, post = at_point(instance, oracle)
    value = evidence.objective(moments, post, oracle.group_weight, instance.log_noise)
    found = evidence.log_evidence(value, float(len(instance.rows)), instance.rows.n_targets)
    assert found == pytest.approx(dense(instance).log_evidence, rel=1e-8)


@given(instance=instances())
def test_posterior_mean_and_variance(kind, instance):
    _, post = at_point(instance, sweeps(instance, kind))
    X = np.random.default_rng(0).standard_normal((5, instance.F.shape[1]))
    reference = dense(instance)
    np.testing.assert_allclose(X @ post.mu, reference.mean(X), **close)
    np.testing.assert_allclose(((X @ post.T.T) ** 2).sum(1), reference.variance(X), **close)


@given(instance=instances())
def test_diagonal_of_the_inverse(kind, instance):
    """diag K⁻¹ = p − p² v, the quantity the paper's gradient needs."""
    _, post = at_point(instance, sweeps(instance, kind))
    p = 1.0 / instance.row_noise
    v = ((instance.F @ post.T.T) ** 2).sum(1)
    expected = np.diagonal(np.linalg.inv(dense(instance).K))
    np.testing.assert_allclose(p - p**2 * v, expected, **close)


@given(instance=instances(unit_weights=True))
def test_gradient_is_the_papers(kind, instance):
    oracle = sweeps(instance, kind)
    moments, post = at_point(instance, oracle)
    terms = oracle.terms(post, instance.log_noise, 1.0, leave_out=False)
    t = instance.rows.n_targets
    noise = evidence.noise_gradient(oracle.group_weight, terms.residual, terms.leverage, t)
    features = evidence.feature_terms(moments, post, instance.feature_index)
    reference = dense(instance)
    expected = reference.gradient_noise(instance.rows.groups, instance.rows.n_groups)
    np.testing.assert_allclose(noise, expected, rtol=1e-8, atol=1e-8)
    expected = reference.gradient_scales(instance.feature_index)
    np.testing.assert_allclose(evidence.scale_gradient(features, t), expected, rtol=1e-8, atol=1e-8)
    assert features.residual == pytest.approx(terms.residual.sum(), rel=1e-7, abs=1e-9)
    assert features.leverage == pytest.approx(terms.leverage.sum(), rel=1e-8, abs=1e-9)


@given(instance=instances())
def test_gradient_by_finite_differences(kind, instance):
    """Weights and redundancy included, for which there is no dense likelihood."""
    oracle = sweeps(instance, kind)
    weight = oracle.group_weight / instance.redundancy
    t, step = instance.rows.n_targets, 1e-5

    def value(log_noise, log_scales):
        moments = oracle.moments(log_noise, instance.redundancy)
        post = evidence.posterior(moments, np.exp(0.5 * log_scales)[instance.feature_index])
        return evidence.objective(moments, post, weight, log_noise)

    def slope(vector, evaluate):
        units = step * np.eye(len(vector))
        return np.array([(evaluate(vector + u) - evaluate(vector - u)) / (2 * step) for u in units])

    moments, post = at_point(instance, oracle)
    terms = oracle.terms(post, instance.log_noise, instance.redundancy, leave_out=False)
    noise = evidence.noise_gradient(weight, terms.residual, terms.leverage, t)
    features = evidence.feature_terms(moments, post, instance.feature_index)
    near = {"rtol": 1e-5, "atol": 1e-5}
    expected = slope(instance.log_noise, lambda x: value(x, instance.log_scales))
    np.testing.assert_allclose(noise, expected, **near)
    expected = slope(instance.log_scales, lambda x: value(instance.log_noise, x))
    np.testing.assert_allclose(evidence.scale_gradient(features, t), expected, **near)


@given(instance=instances(adjacent=True))
def test_a_step_is_terms_then_moments(kind, instance):
    oracle = sweeps(instance, kind)
    _, post = at_point(instance, oracle)
    c = instance.redundancy
    rule = FixedPointRule(instance.rows.n_targets, -9.0, 9.0, c)
    before = oracle.reads
    found = oracle.step(post, instance.log_noise, c, rule, leave_out=True)
    assert oracle.reads - before == 1.0
    terms = oracle.terms(post, instance.log_noise, c, leave_out=True)
    expected = rule(instance.log_noise, oracle.group_weight, terms.residual, terms.leverage)
    np.testing.assert_allclose(found.terms.residual, terms.residual, **close)
    np.testing.assert_allclose(found.terms.leverage, terms.leverage, **close)
    np.testing.assert_allclose(found.terms.leave_out, terms.leave_out, **close)
    np.testing.assert_allclose(found.log_noise, expected, **close)
    moments = oracle.moments(expected, c)
    np.testing.assert_allclose(found.moments.gram, moments.gram, **close)
    np.testing.assert_allclose(found.moments.cross, moments.cross, **close)


@given(instance=instances())
def test_leave_out_equals_a_fit_without_the_group(kind, instance):
    oracle = sweeps(instance, "numpy")
    _, post = at_point(instance, oracle)
    if kind == "numpy":
        sweep = Sweep(
            Projection(post, oracle.arithmetic), instance.log_noise, instance.redundancy, True
        )
        found = oracle.map_rows(sweep.predict_left_out)
    else:
        sweep = Sweep(
            Projection(post, oracle.arithmetic), instance.log_noise, instance.redundancy, True
        )
        X = da.from_array(instance.F, chunks=(5, -1))
        found = lazy_leave_out(X, instance.rows, sweep).compute()
    reference = dense(instance)
    for group in range(instance.rows.n_groups):
        own = instance.rows.groups == group
        expected = np.zeros((own.sum(), instance.rows.n_targets))
        if not own.all():
            expected = reference.without(own).mean(instance.F[own])
        np.testing.assert_allclose(found[own], expected, rtol=1e-7, atol=1e-8)


@given(instance=instances())
def test_statistics_of_large_groups_equal_their_rows(kind, instance):
    """Groups with more rows than features: nothing is read after the first read."""
    oracle = sweeps(instance, kind)
    found = survey(oracle).oracle
    _, post = at_point(instance, oracle)
    c = instance.redundancy
    terms = oracle.terms(post, instance.log_noise, c, leave_out=True)
    fewer = found.terms(post, instance.log_noise, c, leave_out=True)
    np.testing.assert_allclose(fewer.residual, terms.residual, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(fewer.leverage, terms.leverage, **close)
    np.testing.assert_allclose(fewer.leave_out, terms.leave_out, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        found.moments(instance.log_noise, c).gram,
        oracle.moments(instance.log_noise, c).gram,
        **close,
    )
    if (instance.rows.group_sizes > instance.F.shape[1]).all():
        reads = found.reads
        found.terms(post, instance.log_noise, c, leave_out=False)
        assert found.reads == reads == 1.0


@given(instance=instances(unit_weights=True))
def test_integer_weights_equal_duplicated_rows(kind, instance):
    rng = np.random.default_rng(len(instance.rows))
    copies = rng.integers(1, 4, len(instance.rows))
    index = np.repeat(np.arange(len(instance.rows)), copies)
    plain = instance.rows
    weighted = Rows(
        plain.codes, copies.astype(float), plain.groups, plain.n_classes, plain.n_groups
    )
    once = sweeps(_with_rows(instance, instance.F, weighted), kind)
    many = sweeps(_with_rows(instance, instance.F[index], plain.take(index)), kind)
    (m1, p1), (m2, p2) = at_point(instance, once), at_point(instance, many)
    np.testing.assert_allclose(p1.mu, p2.mu, **close)
    v1 = evidence.objective(m1, p1, once.group_weight, instance.log_noise)
    v2 = evidence.objective(m2, p2, many.group_weight, instance.log_noise)
    assert v1 == pytest.approx(v2, rel=1e-8)
    t1 = once.terms(p1, instance.log_noise, 1.0, leave_out=True)
    t2 = many.terms(p2, instance.log_noise, 1.0, leave_out=True)
    for name in ("residual", "leverage", "leave_out"):
        np.testing.assert_allclose(getattr(t1, name), getattr(t2, name), rtol=1e-7, atol=1e-8)
    # The duplicated rows have a dense likelihood, which the weighted evidence equals.
    duplicated = dense(_with_rows(instance, instance.F[index], plain.take(index)))
    found = evidence.log_evidence(v1, float(copies.sum()), plain.n_targets)
    assert found == pytest.approx(duplicated.log_evidence, rel=1e-8)


def _with_rows(instance: Instance, F: np.ndarray, rows: Rows) -> Instance:
    return Instance(F, rows, instance.log_noise, instance.log_scales, instance.feature_index, 1.0)


def test_zero_scales():
    rng = np.random.default_rng(0)
    F, Y = rng.standard_normal((30, 4)), rng.choice([-1.0, 1.0], (30, 1))
    moments = Moments(F.T @ F, F.T @ Y, 30.0)
    post = evidence.posterior(moments, np.array([0.0, 0.0, 1.0, 1.0]))
    assert np.all(post.mu[:2] == 0)
    reduced = evidence.posterior(Moments(F[:, 2:].T @ F[:, 2:], F[:, 2:].T @ Y, 30.0), np.ones(2))
    np.testing.assert_allclose(post.mu[2:], reduced.mu)


def test_schedulers_agree(client, small_tasks):
    """Threads, the synchronous scheduler and a cluster of processes give the dense result."""
    data = classification(400, 12, 20)
    rows = Rows(data.y.astype(np.intp), np.ones(400), data.groups.astype(np.intp), 2, 20)
    X = da.from_array(data.X, chunks=(90, -1))
    log_noise = np.linspace(-1, 1, 20)
    expected = (data.X * np.exp(-log_noise)[data.groups, None]).T @ data.X
    for scheduler in (client, "threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            found = DaskSweeps(X, rows, Arithmetic(np.dtype(np.float64))).moments(log_noise, 1.0)
            np.testing.assert_allclose(found.gram, expected, **close)
