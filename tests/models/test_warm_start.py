"""Fits that start at another model."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import fields

import dask.array as da
import numpy as np
import pytest

from gpgc_dask import GP, GPGC, RunOptions, load, open_dataset
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.gp.evidence import Moments, Posterior, posterior, posterior_moments
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.storage.location import Location
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK
from tests.support.problems import classification

DATA = classification(3600, 90, 60, seed=1)
CLEAN = classification(3600, 90, 60, seed=1, corrupted=0.0)
WRONG = np.flatnonzero(DATA.flip_rate > 0.1)[:4]
CORRECTED = np.where(np.isin(DATA.groups, WRONG), CLEAN.y, DATA.y)


@pytest.fixture(scope="module")
def before():
    return GPGC(redundancy=2.0, tol=1e-6).fit(DATA.X, DATA.y, groups=DATA.groups)


@pytest.mark.parametrize("solver", ["auto", "fixed-point", "lbfgs"])
@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_the_same_optimum(before, solver, backend):
    X = DATA.X if backend == "numpy" else da.from_array(DATA.X, chunks=(300, -1))
    given = {"redundancy": 2.0, "tol": 1e-6, "solver": solver}
    options = {"groups": DATA.groups, "trusted": WRONG}
    full = GPGC(**given).fit(X, CORRECTED, **options)
    warm = GPGC(**given, warm_start=before).fit(X, CORRECTED, **options)
    assert warm.converged_
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-6 * len(X))
    np.testing.assert_allclose(warm.noise_variance_, full.noise_variance_, rtol=0.01)
    np.testing.assert_allclose(warm.coef_, full.coef_, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize(("backend", "reads"), [("numpy", 4), ("dask", 2)])
def test_unchanged_data_is_certified_at_once(before, backend, reads):
    """One read for the moments, one for the certificate; the second look is that of the model.

    In memory two reads without moments come first.
    """
    X = DATA.X if backend == "numpy" else da.from_array(DATA.X, chunks=(300, -1))
    again = GPGC(redundancy=2.0, tol=1e-6, warm_start=before).fit(X, DATA.y, groups=DATA.groups)
    assert again.n_iter_ == 1
    assert again.n_reads_ == reads
    assert again.log_evidence_ == pytest.approx(before.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(again.coef_, before.coef_, rtol=1e-3, atol=1e-5)


def test_redundancy_is_solved_for(before):
    options = {"groups": DATA.groups, "trusted": WRONG}
    first = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    full = GPGC().fit(DATA.X, CORRECTED, **options)
    warm = GPGC(warm_start=first).fit(DATA.X, CORRECTED, **options)
    assert warm.converged_
    assert warm.redundancy_ == pytest.approx(full.redundancy_, rel=0.02)
    assert warm.n_iter_ < full.n_iter_


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_in_memory_need_fewer_steps(n_classes, monkeypatch):
    """Cheap reads find the noise; the result is that of a full fit, second look included."""

    def labels(y):
        return np.where((n_classes == 3) & (DATA.X[:, 0] > 0.7), 2, y)

    given = {"redundancy": 2.0, "rounds": 2}
    options = {"groups": DATA.groups, "trusted": WRONG}
    first = GPGC(**given).fit(DATA.X, labels(DATA.y), groups=DATA.groups)
    full = GPGC(**given).fit(DATA.X, labels(CORRECTED), **options)
    warm = GPGC(**given, warm_start=first).fit(DATA.X, labels(CORRECTED), **options)
    for place in ("gpgc_dask.gp.attempt", "gpgc_dask.gp.solvers.fixed_point"):
        monkeypatch.setattr(f"{place}.can_polish", lambda problem: False)
    plain = GPGC(**given, warm_start=first).fit(DATA.X, labels(CORRECTED), **options)
    gains = [model.history_[0]["predicted_gain"] for model in (warm, plain)]
    assert gains[0] < 0.02 * gains[1]
    assert warm.converged_
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-6 * len(DATA.y))
    # A row whose decision value is nearly 0 changes the agreement of its group by a step.
    np.testing.assert_allclose(warm.row_weight_, full.row_weight_, atol=0.02)
    assert np.abs(warm.row_weight_ - full.row_weight_).mean() < 1e-3
    np.testing.assert_allclose(DATA.X @ warm.coef_.T, DATA.X @ full.coef_.T, atol=2e-3)


def test_groups_with_little_noise_are_trusted(before):
    """Their noise increases to that of good groups: rows are subtracted from the moments."""
    good = np.argsort(before.noise_variance_)[:4]
    given = {"redundancy": 2.0, "tol": 1e-6}
    options = {"groups": DATA.groups, "trusted": good}
    full = GPGC(**given).fit(DATA.X, DATA.y, **options)
    warm = GPGC(**given, warm_start=before).fit(DATA.X, DATA.y, **options)
    assert warm.converged_
    assert warm.n_iter_ < full.n_iter_
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-6 * len(DATA.y))


@pytest.mark.parametrize("rounds", [0, 1])
def test_cheap_reads_come_before_the_first_moments(rounds):
    """They begin at the posterior of the fit; c and noise are then nearly those of the optimum."""
    options = {"groups": DATA.groups, "trusted": WRONG}
    given = {"rounds": 0}
    full = GPGC(**given).fit(DATA.X, CORRECTED, **options)
    first = GPGC(rounds=rounds).fit(DATA.X, DATA.y, groups=DATA.groups)
    warm = GPGC(**given, warm_start=first).fit(DATA.X, CORRECTED, **options)
    assert warm.converged_
    assert warm.history_[0]["predicted_gain"] < 0.005
    assert warm.history_[0]["redundancy_ratio"] == pytest.approx(1.0, abs=0.005)
    assert warm.n_iter_ < full.n_iter_
    same = GPGC(**given, redundancy=warm.redundancy_).fit(DATA.X, CORRECTED, **options)
    assert warm.log_evidence_ == pytest.approx(same.log_evidence_, abs=1e-6 * len(DATA.y))
    assert warm.redundancy_ == pytest.approx(full.redundancy_, rel=0.01)


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_refit_has_the_evidence_of_a_full_fit_at_default_tolerances(rounds):
    """Both are near the optimum, although the noise of trusted groups is not at one of its own."""
    options = {"groups": DATA.groups, "trusted": WRONG}
    first = GPGC(rounds=rounds).fit(DATA.X, DATA.y, groups=DATA.groups)
    warm = GPGC(rounds=0, warm_start=first).fit(DATA.X, CORRECTED, **options)
    same, best = (
        GPGC(rounds=0, redundancy=warm.redundancy_, tol=tol).fit(DATA.X, CORRECTED, **options)
        for tol in (1e-4, 1e-6)
    )
    assert warm.converged_
    assert best.n_iter_ <= same.n_iter_ + 3
    for model in (warm, same):
        assert model.log_evidence_ == pytest.approx(best.log_evidence_, abs=0.5e-6 * len(DATA.y))
    assert warm.log_evidence_ == pytest.approx(same.log_evidence_, abs=1e-6 * len(DATA.y))


def test_a_posterior_is_known_from_its_factor():
    model = GPGC(rounds=0, redundancy=1.0).fit(DATA.X[:600], DATA.y[:600], groups=DATA.groups[:600])
    scales = np.full(DATA.X.shape[1], *model.feature_scales_.values())
    precision = 1.0 / model.noise_variance_[np.unique(DATA.groups[:600], return_inverse=True)[1]]
    precision *= np.array(model.class_weight_)[(DATA.y[:600] == model.classes_[1]).astype(int)]
    targets = np.where(DATA.y[:600] == model.classes_[1], 1.0, -1.0)[:, None]
    moments = Moments(
        DATA.X[:600].T @ (precision[:, None] * DATA.X[:600]),
        DATA.X[:600].T @ (precision[:, None] * targets),
        float(precision.sum()),
    )
    wanted = posterior(moments, scales)
    again = posterior_moments(wanted, scales)
    np.testing.assert_allclose(again.gram, moments.gram, atol=1e-8 * np.abs(moments.gram).max())
    np.testing.assert_allclose(again.cross, moments.cross, atol=1e-8 * np.abs(moments.cross).max())
    found = Posterior.from_factor(model.covariance_factor_, model.coef_.T, scales)
    for field in fields(Posterior):
        np.testing.assert_allclose(
            getattr(found, field.name), getattr(wanted, field.name), rtol=1e-6, atol=1e-8
        )


def test_groups_with_more_rows_than_features():
    """Their statistics are read once."""
    small = DATA.X[:, :20]
    given = {"redundancy": 2.0, "tol": 1e-6, "rounds": 0}
    first = GPGC(**given).fit(small, DATA.y, groups=DATA.groups)
    options = {"groups": DATA.groups, "trusted": WRONG}
    full = GPGC(**given).fit(small, CORRECTED, **options)
    warm = GPGC(**given, warm_start=first).fit(small, CORRECTED, **options)
    assert warm.converged_
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-3)
    assert warm.n_reads_ <= full.n_reads_ <= 3


def test_new_and_missing_groups(before):
    """New groups start at the typical noise, and missing ones do not matter."""
    kept = DATA.groups >= 5
    names = np.where(DATA.groups < 10, DATA.groups + 100, DATA.groups)[kept]
    given = {"redundancy": 2.0, "tol": 1e-6, "rounds": 0}
    full = GPGC(**given).fit(DATA.X[kept], DATA.y[kept], groups=names)
    warm = GPGC(**given, warm_start=before).fit(DATA.X[kept], DATA.y[kept], groups=names)
    assert warm.converged_
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-3)


def test_owners(before):
    owners = {group: group % 5 for group in range(60)}
    given = {"redundancy": 2.0, "tol": 1e-6, "rounds": 0}
    options = {"groups": DATA.groups, "noise_groups": owners, "trusted": WRONG}
    full = GPGC(**given).fit(DATA.X, CORRECTED, **options)
    warm = GPGC(**given, warm_start=before).fit(DATA.X, CORRECTED, **options)
    assert warm.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-3)


def test_one_noise_for_all(before):
    """Without groups there is one noise, and the fit is the ordinary one."""
    warm = GPGC(redundancy=2.0, warm_start=GPGC(redundancy=2.0).fit(DATA.X, DATA.y))
    plain = GPGC(redundancy=2.0).fit(DATA.X, DATA.y)
    assert warm.fit(DATA.X, DATA.y).log_evidence_ == plain.log_evidence_


def test_other_settings_are_errors_before_anything_is_read(before):
    def unreadable(block):
        raise AssertionError("X was read")

    X = da.from_array(DATA.X, chunks=(300, -1)).map_blocks(unreadable, meta=np.empty((0, 0)))
    start = {"redundancy": 2.0, "warm_start": before}
    good = {"X": X, "y": DATA.y, "groups": DATA.groups}
    names = np.array([f"g{group}" for group in DATA.groups])
    for parameters, changes, message in (
        ({"warm_start": before}, {}, "redundancy 2.0, and this fit has redundancy 'auto'"),
        (start, {"X": X[:, :30]}, "90 features, and X has 30"),
        (start, {"feature_groups": np.arange(90) % 2}, "the feature groups all"),
        (start, {"y": DATA.y + 1}, "the classes 0, 1, not 1, 2"),
        (start, {"groups": names}, "none of the groups"),
        ({"warm_start": GPGC()}, {}, "not fitted"),
    ):
        given = good | changes
        with pytest.raises(InputError, match=message):
            GPGC(**parameters).fit(given.pop("X"), **given)
    with pytest.raises(InputTypeError, match="a fitted GPGC, got GP"):
        GPGC(warm_start=GP()).fit(X, DATA.y)


def test_rows_that_are_not_finite_are_named(before):
    X = DATA.X.copy()
    X[7, 3] = np.nan
    lazy = da.from_array(X, chunks=(300, -1))
    with pytest.raises(InputError, match="row"):
        GPGC(redundancy=2.0, warm_start=before).fit(lazy, DATA.y, groups=DATA.groups)


def test_a_model_does_not_keep_its_start(before, tmp_path):
    warm = GPGC(redundancy=2.0, warm_start=before).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert pickle.loads(pickle.dumps(warm)).warm_start is None
    warm.save(tmp_path / "model.zarr")
    assert load(tmp_path / "model.zarr").warm_start is None


def test_command(run, tmp_path):
    images, masks = save_pairs(tmp_path, 14)
    data, model = tmp_path / "data.zarr", tmp_path / "model.zarr"
    ingest(images, masks, data, recipe=QUICK)
    train(data, model)
    VerdictLog(Location.of(data)).append(Verdict("photo_003.jpg", "confirmed"))
    full = GPGC().fit(open_dataset(data))
    copy = shutil.copytree(model, tmp_path / "copy.zarr")
    code, _, err = run("fit", data, "-o", copy, "--from", copy, "--overwrite")
    assert code == 0, err
    again = load(copy)
    assert len(again.verdicts_) == 1
    assert again.redundancy_ == pytest.approx(full.redundancy_, rel=0.05)
    assert again.review_["flags"][3] == "confirmed"
    code, _, err = run("fit", data, "-o", tmp_path / "x.zarr", "--from", model, "--method", "gp")
    assert code == 2
    assert "only gpgc can" in err
    code, _, err = run(
        "fit", data, "-o", tmp_path / "x.zarr", "--from", model, "--redundancy", "1.0"
    )
    assert code == 2
    assert "redundancy" in err
    resumed = train(data, copy, start=model, run=RunOptions(resume=True))
    assert resumed.log_evidence_ == again.log_evidence_
