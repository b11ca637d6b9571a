"""Noise models: one variance for all, per group, per owner of groups, or by a rule of one's own."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import minimize

from gpgc_dask import GP, GPGC, load
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp import evidence
from gpgc_dask.gp.noise import NOISE_MODELS, FixedPointRule, NoiseModel, PooledRule
from gpgc_dask.gp.solvers import SOLVERS
from gpgc_dask.gp.solvers.problem import Hyperparameters, Problem
from tests.support.dense import DenseGP
from tests.support.problems import Instance, Rows, classification, sweeps

OWNERS = np.arange(40) % 5


def tied_problem(n=1200, k=30, n_groups=40, seed=0, **options):
    """Labels whose noise belongs to five owners of eight groups each."""
    data = classification(n, k, n_groups, seed, corrupted=0.0, **options)
    rng = np.random.default_rng(seed)
    rates = np.array([0.0, 0.08, 0.18, 0.3, 0.45])[OWNERS[data.groups]]
    flipped = rng.random(n) < rates
    classes = options.get("n_classes", 2)
    y = np.where(flipped, (data.y + rng.integers(1, classes, n)) % classes, data.y)
    return data.X, y, data.groups


@pytest.mark.parametrize("oracle", ["numpy", "dask"])
def test_gradient_is_that_of_the_dense_matrix(oracle):
    """Summed over the owners, and by finite differences of the dense evidence."""
    instance = _instance()
    n = instance.rows.n_groups
    noise = NoiseModel(np.arange(n) % 2)
    log_noise = noise.per_group(np.array([-0.7, 0.4]))
    oracle = sweeps(instance, oracle)
    problem = Problem(
        oracle, noise, instance.feature_index, np.ones(instance.log_scales.size),
        (-9.0, 9.0), 1.0, 1e-4, 10, lambda point: 0.0,
    )  # fmt: skip
    point = problem.evaluate(
        Hyperparameters(log_noise, instance.log_scales, 1.0), oracle.moments(log_noise, 1.0)
    )
    terms = oracle.terms(point.post, log_noise, 1.0, leave_out=False)
    by_noise, by_scale = problem.gradient(point, terms)

    def dense(values):
        row_noise = np.exp(values[noise.index])[instance.rows.groups]
        return DenseGP(instance.F, instance.rows.targets(), row_noise, instance.prior)

    values, step = noise.values(log_noise), 1e-5
    reference = dense(values)
    assert problem.log_evidence(point) == pytest.approx(reference.log_evidence, rel=1e-9)
    owner_of_row = noise.index[instance.rows.groups]
    np.testing.assert_allclose(by_noise, reference.gradient_noise(owner_of_row, 2), rtol=1e-7)
    np.testing.assert_allclose(
        by_scale, reference.gradient_scales(instance.feature_index), rtol=1e-7
    )
    for number in range(2):
        shift = step * np.eye(2)[number]
        slope = dense(values + shift).log_evidence - dense(values - shift).log_evidence
        assert -slope / (2 * step) == pytest.approx(by_noise[number], rel=1e-5)


def _instance():
    """A small instance with unit weights, always the same."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(6), 8)
    rows = Rows(rng.integers(0, 2, 48), np.ones(48), groups, 2, 6)
    return Instance(
        F=rng.standard_normal((48, 7)),
        rows=rows,
        log_noise=np.zeros(6),
        log_scales=np.array([-0.5, 0.3]),
        feature_index=np.array([0, 0, 0, 1, 1, 1, 1]),
        redundancy=1.0,
    )


def test_optimum_is_that_of_the_dense_evidence():
    """Maximised independently: scipy on the evidence of the dense 300×300 matrix."""
    X, y, groups = tied_problem(300, 6)
    model = GPGC(redundancy=1.0, class_weight=None, tol=1e-8).fit(
        X, y, groups=groups, noise_groups=OWNERS[groups]
    )
    Y = np.where(y == 1, 1.0, -1.0)[:, None]

    def value_and_gradient(x):
        dense = DenseGP(X, Y, np.exp(x[:5])[OWNERS[groups]], np.full(6, np.exp(x[5])))
        gradient = [
            dense.gradient_noise(OWNERS[groups], 5),
            dense.gradient_scales(np.zeros(6, int)),
        ]
        return -dense.log_evidence, np.concatenate(gradient)

    start = np.r_[np.zeros(5), -2.0]
    best = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
    assert model.log_evidence_ == pytest.approx(-best.fun, abs=1e-4)
    np.testing.assert_allclose(np.log(model.noise_group_variance_), best.x[:5], atol=2e-3)


@pytest.mark.parametrize("redundancy", [1.0, "auto"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_three_solvers_one_optimum(redundancy, n_classes):
    X, y, groups = tied_problem(2400, 40, n_classes=n_classes)
    models = [
        GPGC(solver=solver, redundancy=redundancy, tol=1e-6).fit(
            X, y, groups=groups, noise_groups=OWNERS[groups]
        )
        for solver in SOLVERS
    ]
    for model in models:
        assert model.converged_
        assert model.redundancy_ == pytest.approx(models[0].redundancy_, rel=1e-2)
        if redundancy == 1.0:
            assert model.log_evidence_ == pytest.approx(models[0].log_evidence_, abs=1e-3)
        np.testing.assert_allclose(
            np.log(model.noise_group_variance_),
            np.log(models[0].noise_group_variance_),
            atol=1e-2,
        )
    assert np.all(np.diff(models[0].noise_group_variance_) > 0)  # owners by their error rates


def test_dask_equals_numpy(small_tasks):
    X, y, groups = tied_problem()
    given = {"groups": groups, "noise_groups": OWNERS[groups]}
    here = GPGC(tol=1e-6).fit(X, y, **given)
    lazy = GPGC(tol=1e-6).fit(da.from_array(X, chunks=(173, -1)), y, **given)
    np.testing.assert_allclose(lazy.noise_variance_, here.noise_variance_, rtol=1e-4)
    assert lazy.log_evidence_ == pytest.approx(here.log_evidence_, abs=1e-3)


@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_one_owner_is_gp_and_one_per_group_is_gpgc(redundancy):
    X, y, groups = tied_problem()
    options = {"redundancy": redundancy, "tol": 1e-6}
    single = GPGC(**options).fit(X, y, groups=groups, noise_groups=np.zeros(len(y)))
    gp = GP(**options).fit(X, y, groups=groups)
    assert single.log_evidence_ == pytest.approx(gp.log_evidence_, abs=1e-4)
    np.testing.assert_allclose(single.noise_variance_, gp.noise_variance_, rtol=1e-4)
    own = GPGC(**options).fit(X, y, groups=groups, noise_groups=-groups)
    gpgc = GPGC(**options).fit(X, y, groups=groups)
    assert own.log_evidence_ == pytest.approx(gpgc.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(own.noise_variance_, gpgc.noise_variance_, rtol=1e-2)
    assert own.noise_groups_.tolist() == list(range(-39, 1))


def test_leaving_out_goes_by_group_not_by_owner():
    X, y, groups = tied_problem(300, 6)
    model = GPGC(class_weight=None, redundancy=1.0, rounds=0).fit(
        X, y, groups=groups, noise_groups=OWNERS[groups]
    )
    values = model.leave_group_out(X, y, groups)
    Y = np.where(y == 1, 1.0, -1.0)[:, None]
    prior = np.full(6, next(iter(model.feature_scales_.values())) ** 2)
    dense = DenseGP(X, Y, model.noise_variance_[groups], prior)
    for group in (0, 17, 39):
        own = groups == group
        np.testing.assert_allclose(values[own], dense.without(own).mean(X[own])[:, 0], rtol=1e-6)


def test_owners_by_name_are_saved_and_loaded(tmp_path):
    X, y, groups = tied_problem(600, 10)
    names = np.array([f"photo_{group:02d}" for group in groups])
    people = np.array(["anna", "ben", "cleo", "dan", "eve"])
    given = {f"photo_{group:02d}": people[owner] for group, owner in enumerate(OWNERS)}
    model = GPGC().fit(X, y, groups=names, noise_groups=given)
    assert model.noise_groups_.tolist() == people.tolist()
    assert np.unique(model.noise_variance_).size == 5
    model.save(tmp_path / "model.zarr")
    same = load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(same.noise_groups_, model.noise_groups_)
    np.testing.assert_array_equal(same.noise_group_variance_, model.noise_group_variance_)
    again = model.fit(X, y, groups=names)
    assert not hasattr(again, "noise_groups_")


def test_a_fit_with_owners_resumes(tmp_path):
    X, y, groups = tied_problem()
    given = {"groups": groups, "noise_groups": OWNERS[groups]}
    whole = GPGC(tol=1e-6).fit(X, y, **given)
    checkpoint = tmp_path / "state.npz"
    with pytest.warns(UserWarning, match="max_iter"):
        GPGC(tol=1e-6, max_iter=2, checkpoint=checkpoint).fit(X, y, **given)
    with pytest.raises(InputError, match="noise model"):
        GPGC(tol=1e-6, checkpoint=checkpoint).fit(X, y, groups=groups)
    resumed = GPGC(tol=1e-6, checkpoint=checkpoint).fit(X, y, **given)
    assert resumed.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-3)


@pytest.mark.parametrize(
    ("noise_groups", "message"),
    [
        (lambda groups: np.arange(groups.size), "rows of several noise_groups"),
        (lambda groups: {0: "anna"}, "no owner for group"),
        (lambda groups: groups[:-1], "noise_groups has"),
        (lambda groups: np.where(groups == 3, None, "a"), "noise_groups has NaN or None"),
    ],
)
def test_wrong_owners_are_named(noise_groups, message):
    X, y, groups = tied_problem(600, 10)
    with pytest.raises(InputError, match=message):
        GPGC().fit(X, y, groups=groups, noise_groups=noise_groups(groups))


def test_a_gp_has_no_owners():
    X, y, groups = tied_problem(600, 10)
    with pytest.raises(InputError, match="fit a GPGC"):
        GP().fit(X, y, groups=groups, noise_groups=OWNERS[groups])


def test_a_new_noise_model_is_a_function_and_a_line():
    """Groups of even and of odd number: two variances, found by all solvers."""
    X, y, groups = tied_problem()

    def even_and_odd(n_groups, owners=None):
        return np.arange(n_groups) % 2

    class EvenOdd(GPGC):
        _noise_model = "even and odd"

    NOISE_MODELS.add("even and odd", even_and_odd)
    try:
        models = [EvenOdd(solver=solver, tol=1e-6).fit(X, y, groups=groups) for solver in SOLVERS]
        tied = GPGC(tol=1e-6).fit(X, y, groups=groups, noise_groups=groups % 2)
    finally:
        NOISE_MODELS.remove("even and odd")
    for model in models:
        assert np.unique(model.noise_variance_).size == 2
        np.testing.assert_allclose(model.noise_variance_, tied.noise_variance_, rtol=1e-2)
    with pytest.raises(InputError, match="choose one of homoscedastic, groupwise, tied"):
        EvenOdd().fit(X, y, groups=groups)


def test_pooled_rule_of_separate_groups_is_the_rule():
    rng = np.random.default_rng(0)
    log_noise, weight, residual, leverage = rng.uniform(0.5, 2.0, (4, 7))
    rule = FixedPointRule(1, -5.0, 5.0)
    pooled = PooledRule(rule, NoiseModel(np.arange(7)))
    np.testing.assert_array_equal(
        pooled(log_noise, weight, residual, leverage), rule(log_noise, weight, residual, leverage)
    )


def test_terms_of_noise_and_evidence_agree():
    """With all groups of one owner the gradient follows from the moments alone."""
    instance = _instance()
    oracle = sweeps(instance, "numpy")
    problem = Problem(
        oracle, NoiseModel(np.zeros(6, dtype=int)), instance.feature_index, np.ones(2),
        (-9.0, 9.0), 1.0, 1e-4, 10, lambda point: 0.0,
    )  # fmt: skip
    zero = np.zeros(6)
    point = problem.evaluate(
        Hyperparameters(zero, instance.log_scales, 1.0), oracle.moments(zero, 1.0)
    )
    terms = oracle.terms(point.post, zero, 1.0, leave_out=False)
    np.testing.assert_allclose(problem.gradient(point, terms)[0], problem.gradient(point, None)[0])
    assert evidence.log_evidence(point.value, 48.0) == pytest.approx(problem.log_evidence(point))
