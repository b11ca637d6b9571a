"""The solvers reach the same optimum; reads of the data; the history of a fit."""

from __future__ import annotations

import itertools

import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gpgc_dask import GP, GPGC
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.solvers import SOLVERS, scales
from tests.support.problems import classification

PROBLEMS = {
    "plain": {"n": 6000, "k": 60, "n_groups": 100, "seed": 1},
    "many features": {"n": 2400, "k": 200, "n_groups": 60, "seed": 2},
    "small groups": {"n": 1500, "k": 50, "n_groups": 150, "seed": 3},
    "noisy": {"n": 4000, "k": 80, "n_groups": 50, "seed": 4, "corrupted": 0.7},
    "tempered": {"n": 6000, "k": 90, "n_groups": 100, "seed": 5},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_three_solvers_one_optimum(name):
    data = classification(**PROBLEMS[name])
    weight = np.full(len(data.y), 1 / 16 if name == "tempered" else 1.0)
    models = {
        solver: GPGC(solver=solver, redundancy=1.0).fit(
            data.X, data.y, groups=data.groups, sample_weight=weight
        )
        for solver in SOLVERS
    }
    reference = models.pop("lbfgs")
    assert reference.converged_
    for model in models.values():
        assert model.converged_
        assert model.log_evidence_ == pytest.approx(reference.log_evidence_, abs=1e-3)
        gap = np.log(model.noise_variance_) - np.log(reference.noise_variance_)
        assert np.abs(gap).max() < 1e-2


def test_no_model_at_all_may_be_the_optimum():
    """If the features are unrelated to the labels, every solver finds σ = 0."""
    rng = np.random.default_rng(0)
    X, y, groups = (
        rng.standard_normal((900, 40)),
        rng.integers(0, 2, 900),
        np.repeat(np.arange(30), 30),
    )
    found = [
        GPGC(solver=solver, redundancy=1.0).fit(X, y, groups=groups).log_evidence_
        for solver in SOLVERS
    ]
    assert np.ptp(found) < 1e-2


def test_reads_of_auto_are_few():
    data = classification(20_000, 200, 300)
    model = GPGC(redundancy=1.0, rounds=0).fit(data.X, data.y, groups=data.groups)
    assert model.converged_
    assert model.n_reads_ <= 10
    assert model.n_iter_ == len(model.history_)


def test_scattered_groups_find_the_same_optimum_in_twice_the_reads():
    data = classification(4000, 60, 80)
    order = np.random.default_rng(0).permutation(4000)
    together = GPGC(rounds=0).fit(
        da.from_array(data.X, chunks=(500, -1)), data.y, groups=data.groups
    )
    scattered = GPGC(rounds=0).fit(
        da.from_array(data.X[order], chunks=(500, -1)), data.y[order], groups=data.groups[order]
    )
    np.testing.assert_allclose(scattered.noise_variance_, together.noise_variance_, rtol=1e-3)
    assert scattered.redundancy_ == pytest.approx(together.redundancy_, rel=1e-3)
    assert together.n_reads_ < scattered.n_reads_ <= 2 * together.n_reads_


def test_single_noise_takes_one_read():
    data = classification(5000, 40, 50)
    for X in (data.X, da.from_array(data.X, chunks=(700, -1))):
        model = GP(redundancy=1.0).fit(X, data.y, groups=data.groups)
        assert model.n_reads_ == 1
        assert model.converged_


def test_large_groups_take_one_read():
    data = classification(6000, 25, 12)
    for X in (data.X, da.from_array(data.X, chunks=(700, -1))):
        model = GPGC(rounds=0).fit(X, data.y, groups=data.groups)
        assert model.n_reads_ == 1
        assert model.converged_


def test_one_group_is_the_plain_gp():
    data = classification(800, 20, 8)
    gpgc, gp = GPGC().fit(data.X, data.y), GP().fit(data.X, data.y)
    assert gpgc.log_evidence_ == pytest.approx(gp.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(gpgc.coef_, gp.coef_)


def test_evidence_never_falls_at_fixed_redundancy():
    data = classification(3000, 150, 60, seed=7)
    model = GPGC(solver="fixed-point", redundancy=1.0).fit(data.X, data.y, groups=data.groups)
    course = [entry["log_evidence"] for entry in model.history_]
    assert np.all(np.diff(course) > -1e-4)


def test_step_that_lowers_the_evidence_is_repeated(monkeypatch):
    """With a wrong MacKay step the solver falls back to EM and still finds the optimum."""
    data = classification(1500, 60, 50, seed=8)
    expected = GPGC(redundancy=1.0).fit(data.X, data.y, groups=data.groups)
    honest = FixedPointRule.__call__

    def wild(rule, log_noise, weight, residual, leverage):
        new = honest(rule, log_noise, weight, residual, leverage)
        return new if rule.monotone else new + 3.0 * np.sign(new - log_noise)

    monkeypatch.setattr(FixedPointRule, "__call__", wild)
    model = GPGC(redundancy=1.0).fit(data.X, data.y, groups=data.groups)
    assert any(entry.get("redone") for entry in model.history_)
    assert model.converged_
    assert model.log_evidence_ == pytest.approx(expected.log_evidence_, abs=1e-3)


def test_em_step_if_leverage_is_close_to_the_weight():
    rule = FixedPointRule(1, -20.0, 20.0)
    weight, residual = np.array([4.0, 4.0]), np.array([2.0, 2.0])
    leverage = np.array([3.9, 1.0])
    new = rule(np.zeros(2), weight, residual, leverage)
    np.testing.assert_allclose(new, np.log([(2.0 + 3.9) / 4.0, 2.0 / 3.0]))
    beyond = rule(np.zeros(1), np.array([1.0]), np.array([0.5]), np.array([1.5]))
    assert np.isfinite(beyond).all()


def test_history_entries():
    data = classification(1500, 60, 50)
    seen = []
    model = GPGC(progress=seen.append).fit(data.X, data.y, groups=data.groups)
    assert seen == model.history_
    entry = model.history_[-1]
    for name in ("log_evidence", "projected_gradient", "reads", "redundancy", "arithmetic"):
        assert name in entry
    assert set(entry["seconds"]) <= {"sweep", "solve"}
    assert all(a["reads"] <= b["reads"] for a, b in itertools.pairwise(seen))


def test_progress_prints_lines(capsys):
    data = classification(600, 10, 20)
    model = GPGC(progress=True).fit(data.X, data.y, groups=data.groups)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == model.n_iter_ + 2
    assert "log evidence" in lines[0]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("max_iter", [1, 3])
def test_max_iter_is_respected_with_a_warning(solver, max_iter):
    data = classification(3000, 150, 60)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = GPGC(solver=solver, max_iter=max_iter).fit(data.X, data.y, groups=data.groups)
    assert model.n_iter_ == max_iter
    assert not model.converged_


def test_one_noise_for_all_with_many_scales():
    data = classification(600, 120, 20)
    model = GP(redundancy=1.0).fit(data.X, data.y, feature_groups=np.arange(120))
    assert model.converged_


def test_uninformative_features_take_few_evaluations(monkeypatch):
    """The optimum of their scale is 0, which ln σ² only approaches."""
    evaluated = []
    usual = scales._evaluate
    monkeypatch.setattr(scales, "_evaluate", lambda *args: evaluated.append(1) or usual(*args))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 40))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(2000) > 0
    model = GP(redundancy=1.0).fit(X, y, feature_groups=np.repeat(["used", "unused"], 20))
    assert model.converged_
    assert model.feature_scales_["unused"] < 1e-3 * model.feature_scales_["used"]
    assert len(evaluated) < 30
