"""Fits after a few verdicts, which keep the second look of the model that they start at."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from gpgc_dask import GPGC, load
from tests.support.problems import classification

N_GROUPS = 600
DATA = classification(4800, 12, N_GROUPS, seed=1)
CLEAN = classification(4800, 12, N_GROUPS, seed=1, corrupted=0.0)
WRONG = int(np.argmax(DATA.flip_rate))
CORRECTED = np.where(DATA.groups == WRONG, CLEAN.y, DATA.y)


@pytest.fixture(scope="module")
def before():
    return GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)


def refit(start, y=CORRECTED, X=DATA.X, **changes):
    given = {"groups": DATA.groups, "trusted": [WRONG]} | changes
    return GPGC(warm_start=start).fit(X, y, **given)


def rounds_of(model):
    """Names of the entries of the second look."""
    return [entry["phase"] for entry in model.history_[model.n_iter_ :]]


def check_posterior(model, y=CORRECTED, data=DATA):
    """The posterior is that of the weights, noise and scales of the model, computed densely."""
    (scale,) = model.feature_scales_.values()
    codes = np.searchsorted(model.classes_, y)
    weight = np.empty(len(y))
    weight[np.argsort(data.groups, kind="stable")] = model.row_weight_
    precision = weight * model.class_weight_[codes]
    precision /= model.redundancy_ * model.noise_variance_[data.groups]
    covariance = np.linalg.inv(
        np.eye(data.X.shape[1]) / scale**2 + data.X.T @ (precision[:, None] * data.X)
    )
    mean = covariance @ (data.X.T @ (precision * np.where(codes == 1, 1.0, -1.0)))
    np.testing.assert_allclose(model.coef_[0], mean, rtol=1e-5, atol=1e-7)
    factor = model.covariance_factor_
    np.testing.assert_allclose(factor.T @ factor, covariance, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_it_is_nearly_that_of_a_full_fit(before, backend):
    """The tolerance: 1 % of the decision values, 0.01 of the weights on average."""
    X = DATA.X if backend == "numpy" else da.from_array(DATA.X, chunks=(800, -1))
    full = GPGC().fit(DATA.X, CORRECTED, groups=DATA.groups, trusted=[WRONG])
    warm = refit(before, X=X)
    assert rounds_of(warm) == ["second look 1"]
    assert warm.look_age_ == pytest.approx(np.mean(DATA.groups == WRONG))
    assert warm.converged_
    same = GPGC(rounds=0, redundancy=warm.redundancy_).fit(
        DATA.X, CORRECTED, groups=DATA.groups, trusted=[WRONG]
    )
    assert warm.log_evidence_ == pytest.approx(same.log_evidence_, abs=1e-6 * len(DATA.y))
    check_posterior(warm)
    values, expected = (DATA.X @ model.coef_[0] for model in (warm, full))
    assert np.sqrt(np.mean((values - expected) ** 2)) < 0.01 * np.sqrt(np.mean(expected**2))
    assert np.abs(warm.row_weight_ - full.row_weight_).mean() < 0.01
    np.testing.assert_allclose(warm.row_weight_[DATA.groups == WRONG], 1.0)
    np.testing.assert_allclose(
        warm.leave_group_out(DATA.X, CORRECTED, DATA.groups),
        full.leave_group_out(DATA.X, CORRECTED, DATA.groups),
        atol=0.03,
    )


def test_it_can_be_kept_again_and_saved(before, tmp_path):
    """Until too many rows have changed: then the second look is complete again."""
    before.save(tmp_path / "model.zarr")
    models = [refit(each) for each in (before, load(tmp_path / "model.zarr"))]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    same = refit(models[0])
    assert rounds_of(same) == ["second look 1"]
    assert same.look_age_ == models[0].look_age_
    check_posterior(same)
    more = np.argsort(-DATA.flip_rate)[:4]
    y = np.where(np.isin(DATA.groups, more), CLEAN.y, DATA.y)
    last = refit(same, y, trusted=more)
    assert rounds_of(last) == ["second look 1", "second look 2"]
    assert last.look_age_ == 0.0


def test_more_changes_renew_the_weights_in_one_round():
    """The posterior is exactly that of the weights, which are nearly those of a full fit."""
    data = classification(12_000, 12, 200, seed=1)
    clean = classification(12_000, 12, 200, seed=1, corrupted=0.0)
    worst = np.argsort(-data.flip_rate)[:10]
    y = np.where(np.isin(data.groups, worst), clean.y, data.y)
    given = {"groups": data.groups, "trusted": worst}
    first = GPGC().fit(data.X, data.y, groups=data.groups)
    full = GPGC().fit(data.X, y, **given)
    for X in (data.X, da.from_array(data.X, chunks=(3000, -1))):
        warm = GPGC(warm_start=first).fit(X, y, **given)
        assert rounds_of(warm) == ["second look 1"]
        assert warm.look_age_ == pytest.approx(np.isin(data.groups, worst).mean())
        check_posterior(warm, y, data)
        assert np.abs(warm.row_weight_ - full.row_weight_).mean() < 0.03
        values, expected = (data.X @ model.coef_[0] for model in (warm, full))
        assert np.sqrt(np.mean((values - expected) ** 2)) < 0.02 * np.sqrt(np.mean(expected**2))
        assert warm.calibration_.coef == pytest.approx(full.calibration_.coef, rel=0.05)
    # Too many changes since the last complete second look: the next one is complete.
    more = np.argsort(-data.flip_rate)[:60]
    y = np.where(np.isin(data.groups, more), clean.y, data.y)
    last = GPGC(warm_start=warm).fit(data.X, y, groups=data.groups, trusted=more)
    assert rounds_of(last) == ["second look 1", "second look 2"]
    assert last.look_age_ == 0.0


def test_other_fits_look_again_at_all_rows(before):
    kept = DATA.groups != 5
    some = {"groups": DATA.groups[kept], "trusted": [WRONG]}
    relabelled = np.where(DATA.groups == 7, 1 - CORRECTED, CORRECTED)
    models = [
        refit(before, CORRECTED[kept], DATA.X[kept], groups=some["groups"]),
        refit(before, relabelled),
        refit(before, trusted=None),
        GPGC(warm_start=before, class_weight=None).fit(
            DATA.X, CORRECTED, groups=DATA.groups, trusted=[WRONG]
        ),
        GPGC(warm_start=before, rounds=1).fit(
            DATA.X, CORRECTED, groups=DATA.groups, trusted=[WRONG]
        ),
    ]
    for model in models:
        assert model.look_age_ == 0.0
    assert len(rounds_of(models[0])) == 2
