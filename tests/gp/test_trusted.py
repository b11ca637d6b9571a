"""Trusted groups: their noise is that of good groups, and is not estimated."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import minimize

from gpgc_dask import GP, GPGC, load
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.gp.noise import NoiseModel
from gpgc_dask.gp.solvers import SOLVERS
from gpgc_dask.gp.solvers.convergence import HELD_TOLERANCE
from gpgc_dask.gp.solvers.problem import Hyperparameters, Problem
from tests.support.dense import DenseGP
from tests.support.problems import Instance, Rows, classification, sweeps

TRUSTED = np.isin(np.arange(40), [3, 4, 17, 30])


def problem(n=1200, k=30, seed=2, **options):
    data = classification(n, k, 40, seed, **options)
    return data.X, data.y, {"groups": data.groups, "trusted": TRUSTED}


def good_noise(model):
    """The definition: the median of the more reliable half of the other groups."""
    others = np.sort(np.log(model.noise_variance_[~model.trusted_]))
    return float(np.median(others[: (others.size + 1) // 2]))


def assert_held(model):
    assert model.converged_
    held = np.log(model.noise_variance_[model.trusted_])
    assert np.ptp(held) < 1e-12
    assert held[0] == pytest.approx(good_noise(model), abs=HELD_TOLERANCE)


@pytest.mark.parametrize("oracle", ["numpy", "dask"])
@pytest.mark.parametrize("index", [np.arange(6), np.arange(6) % 3], ids=["groupwise", "tied"])
def test_gradient_of_the_free_noise_is_that_of_the_dense_matrix(oracle, index):
    rng = np.random.default_rng(5)
    rows = Rows(rng.integers(0, 2, 48), np.ones(48), np.repeat(np.arange(6), 8), 2, 6)
    features = np.array([0, 0, 0, 1, 1, 1, 1])
    scales = np.array([-0.5, 0.3])
    instance = Instance(rng.standard_normal((48, 7)), rows, np.zeros(6), scales, features, 1.0)
    trusted = np.isin(np.arange(6), [1, 5])
    noise = NoiseModel(index, trusted)
    values = np.linspace(-0.7, 0.6, noise.n_parameters)
    log_noise = noise.per_group(values, np.full(6, -1.1))
    assert log_noise[trusted].tolist() == [-1.1, -1.1]
    np.testing.assert_array_equal(noise.values(log_noise), values)
    oracle = sweeps(instance, oracle)
    own = oracle.select_groups(np.flatnonzero(trusted)).moments(np.zeros(2), 1.0)
    held = Problem(
        oracle, noise, features, np.ones(2), (-9.0, 9.0), 1.0, 1e-4, 10, lambda point: 0.0, own
    )
    point = held.evaluate(Hyperparameters(log_noise, scales), oracle.moments(log_noise, 1.0))
    terms = oracle.terms(point.post, log_noise, 1.0, leave_out=False)
    gradient = np.concatenate(held.gradient(point, terms))
    assert gradient.size == noise.n_parameters + 2

    def dense(x):
        row_noise = np.exp(noise.per_group(x[:-2], log_noise))[rows.groups]
        return DenseGP(instance.F, rows.targets(), row_noise, np.exp(x[-2:])[features]).log_evidence

    x = np.append(values, scales)
    assert held.log_evidence(point) == pytest.approx(dense(x), rel=1e-9)
    for number, slope in enumerate(gradient):
        step = 1e-5 * np.eye(x.size)[number]
        assert slope == pytest.approx(-(dense(x + step) - dense(x - step)) / 2e-5, rel=1e-4)
    # The noise of good groups follows the others without a read.
    moved = held.with_held_noise(point)
    target = noise.good_noise(log_noise)
    again = oracle.moments(np.where(trusted, target, log_noise), 1.0)
    np.testing.assert_allclose(moved.moments.gram, again.gram, rtol=1e-9)
    np.testing.assert_allclose(moved.moments.cross, again.cross, rtol=1e-9, atol=1e-9)
    assert held.held_change(moved) == 0.0 < held.held_change(point)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_optimum_is_that_of_the_dense_evidence(solver, backend):
    """The other parameters, maximised independently by scipy on the dense matrix."""
    X, y, options = problem(400, 6)
    features = X if backend == "numpy" else da.from_array(X, chunks=(60, -1))
    model = GPGC(redundancy=1.0, class_weight=None, tol=1e-8, rounds=0, solver=solver).fit(
        features, y, **options
    )
    assert_held(model)
    Y, groups = np.where(y == 1, 1.0, -1.0)[:, None], options["groups"]
    held = np.log(model.noise_variance_[model.trusted_][0])
    bounds = [(np.log(1e-4), np.log(1e4))] * 36 + [(None, None)]

    def value_and_gradient(x):
        log_noise = np.full(40, held)
        log_noise[~TRUSTED] = x[:36]
        dense = DenseGP(X, Y, np.exp(log_noise)[groups], np.full(6, np.exp(x[36])))
        noise = dense.gradient_noise(groups, 40)[~TRUSTED]
        return -dense.log_evidence, np.append(noise, dense.gradient_scales(np.zeros(6, int)))

    start = np.append(np.zeros(36), -1.0)
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds,
                     options={"ftol": 1e-15, "gtol": 1e-8, "maxiter": 500})  # fmt: skip
    assert model.log_evidence_ == pytest.approx(-found.fun, abs=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("redundancy", [2.0, "auto"])
def test_backends_and_solvers_agree(n_classes, redundancy):
    X, y, options = problem(n_classes=n_classes)
    X = X.astype(np.float32)
    fits = [
        GPGC(redundancy=redundancy, solver=solver, tol=1e-7, dtype="float64").fit(
            features, y, **options
        )
        for features, solver in (
            (X, "fixed-point"), (da.from_array(X, chunks=(100, -1)), "fixed-point"), (X, "lbfgs"),
        )
    ]  # fmt: skip
    for model in fits:
        assert_held(model)
    assert fits[1].log_evidence_ == pytest.approx(fits[0].log_evidence_, abs=1e-6)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=1e-5, atol=1e-7)
    if redundancy == 2.0:  # else c is solved for within a tolerance, and the evidence follows it
        assert fits[2].log_evidence_ == pytest.approx(fits[0].log_evidence_, abs=0.05)


def test_scattered_and_large_groups():
    """Groups with more rows than features become statistics; scattered ones take two reads."""
    X, y, options = problem(4000, 20)
    adjacent = GPGC(redundancy=1.0, tol=1e-7, rounds=0).fit(X, y, **options)
    order = np.random.default_rng(0).permutation(len(y))
    mixed = da.from_array(X[order], chunks=(500, -1))
    groups = options["groups"][order]
    scattered = GPGC(redundancy=1.0, tol=1e-7, rounds=0).fit(
        mixed, y[order], groups=groups, trusted=TRUSTED
    )
    for model in (adjacent, scattered):
        assert_held(model)
    assert scattered.log_evidence_ == pytest.approx(adjacent.log_evidence_, abs=1e-4)


def test_warm_start_by_a_sample():
    data = classification(24_000, 48, 1200, seed=3)
    trusted = np.arange(1200) % 9 == 0
    features = da.from_array(data.X, chunks=(2000, -1))
    fits = [
        GPGC(redundancy=2.0, tol=1e-6).fit(X, data.y, groups=data.groups, trusted=trusted)
        for X in (data.X, features)
    ]
    for model in fits:
        assert_held(model)
        assert model.history_[0]["seconds"].get("sample", 0) > 0
    assert fits[1].log_evidence_ == pytest.approx(fits[0].log_evidence_, abs=0.024)


def test_owners_of_trusted_groups():
    """The noise of an owner is that of its other groups."""
    X, y, options = problem()
    owners = np.where(np.arange(40) < 6, "a", np.where(np.arange(40) < 20, "b", "c"))
    trusted = np.isin(np.arange(40), [0, 1, 2, 3, 4, 5, 30])
    model = GPGC(redundancy=1.0, tol=1e-7).fit(
        X, y, groups=options["groups"], noise_groups=owners[options["groups"]], trusted=trusted
    )
    assert_held(model)
    a, b, c = model.noise_group_variance_
    assert a == model.noise_variance_[0] == model.noise_variance_[30]
    assert (b, c) == (model.noise_variance_[10], model.noise_variance_[20])


def test_one_noise_for_all_groups():
    """Nothing is held: trusted groups have the common noise."""
    X, y, options = problem()
    plain = GP(redundancy=1.0).fit(X, y, groups=options["groups"])
    trusting = GP(redundancy=1.0).fit(X, y, **options)
    assert trusting.log_evidence_ == plain.log_evidence_
    everyone = GPGC(redundancy=1.0).fit(X, y, groups=options["groups"], trusted=np.ones(40, bool))
    assert np.ptp(everyone.noise_variance_) == 0.0
    assert everyone.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-6)
    others = np.arange(40) != 7
    single = GPGC(redundancy=1.0).fit(X, y, groups=options["groups"], trusted=others)
    assert_held(single)


def test_trusted_labels_count_more():
    """A group that looks unreliable keeps its influence if it is trusted."""
    data = classification(2400, 30, 60, seed=4)
    worst = int(np.argmax(data.flip_rate))
    plain = GPGC(rounds=0).fit(data.X, data.y, groups=data.groups)
    trusting = GPGC(rounds=0).fit(data.X, data.y, groups=data.groups, trusted=[worst])
    assert plain.confidence_[worst] < 0.1
    assert trusting.noise_variance_[worst] < 0.5 * plain.noise_variance_[worst]
    own = data.groups == worst
    wanted = np.where(data.y[own] == 1, 1.0, -1.0)
    before, after = (
        np.mean((wanted - model.decision_function(data.X[own])) ** 2) for model in (plain, trusting)
    )
    assert after < before


def test_second_look_keeps_the_weights_of_trusted_rows():
    X, y, options = problem()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = GPGC().fit(X, y, sample_weight=weight, **options)
    own = TRUSTED[options["groups"]]
    np.testing.assert_allclose(model.row_weight_[own], weight[own], rtol=1e-6)
    assert np.all(model.row_weight_[~own] < weight[~own])


def test_names_of_groups():
    X, y, options = problem()
    names = np.array([f"image {number:02d}" for number in range(40)])
    groups, chosen = names[options["groups"]], names[TRUSTED]
    by_mask = GPGC(rounds=0).fit(X, y, groups=groups, trusted=TRUSTED)
    for trusted in (chosen, list(chosen), set(chosen.tolist())):
        again = GPGC(rounds=0).fit(X, y, groups=groups, trusted=trusted)
        assert again.log_evidence_ == by_mask.log_evidence_
    none = GPGC(rounds=0).fit(X, y, groups=groups)
    for trusted in ([], np.zeros(40, bool)):
        model = GPGC(rounds=0).fit(X, y, groups=groups, trusted=trusted)
        assert model.log_evidence_ == none.log_evidence_
        assert not hasattr(model, "trusted_")
    for trusted, error, message in (
        (["image 99"], InputError, "no groups of the fit"),
        ([3], InputError, "no groups of the fit"),
        (np.ones(39, bool), InputError, "39 truth values for 40 groups"),
        ("image 03", InputTypeError, "a list of groups"),
    ):
        with pytest.raises(error, match=message):
            GPGC().fit(X, y, groups=groups, trusted=trusted)


def test_a_trusted_group_may_have_a_single_row():
    X, y, options = problem()
    weight = np.ones(len(y))
    weight[np.flatnonzero(options["groups"] == 3)[1:]] = 0.0
    with pytest.raises(InputError, match="groups 3 have one row with weight"):
        GPGC().fit(X, y, groups=options["groups"], sample_weight=weight)
    assert_held(GPGC(rounds=0).fit(X, y, sample_weight=weight, **options))


def test_saved(tmp_path):
    X, y, options = problem()
    model = GPGC(rounds=0).fit(X, y, **options)
    model.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(load(tmp_path / "model.zarr").trusted_, TRUSTED)
    assert not hasattr(model.fit(X, y, groups=options["groups"]), "trusted_")


def test_checkpoint_belongs_to_the_trusted_groups(tmp_path):
    X, y, options = problem()
    path = tmp_path / "state.npz"
    whole = GPGC(tol=1e-6, rounds=0).fit(X, y, **options)

    def stop(entry):
        if entry["iteration"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GPGC(tol=1e-6, rounds=0, checkpoint=path, progress=stop).fit(X, y, **options)
    for trusted in (None, [3]):
        with pytest.raises(InputError, match="trusted groups"):
            GPGC(tol=1e-6, rounds=0, checkpoint=path).fit(
                X, y, groups=options["groups"], trusted=trusted
            )
    resumed = GPGC(tol=1e-6, rounds=0, checkpoint=path).fit(X, y, **options)
    assert resumed.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-6)
    assert resumed.n_iter_ == whole.n_iter_
