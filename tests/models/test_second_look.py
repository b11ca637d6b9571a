"""The second look: weights of rows and groups, against a dense computation and on wrong masks."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import gpgc_dask
from gpgc_dask import GP, GPGC
from gpgc_dask.core.errors import InputError
from gpgc_dask.quality.calibration import calibrate
from tests.support.problems import classification


def targets_of(y, n_classes):
    """(N, t) targets of ±1."""
    signs = np.where(np.eye(n_classes)[y] > 0, 1.0, -1.0)
    return signs[:, 1:] if n_classes == 2 else signs


def dense_posterior(X, Y, precision, prior):
    """(mean (k, t), covariance (k, k)) of the weights, with the prior's inverse."""
    covariance = np.linalg.inv(np.diag(1.0 / prior) + X.T @ (precision[:, None] * X))
    return covariance @ (X.T @ (precision[:, None] * Y)), covariance


def dense_leave_out(X, Y, precision, prior, groups):
    """(N, t) predictions for each group by a model of the other groups' rows."""
    values = np.empty(Y.shape)
    for group in np.unique(groups):
        own = groups == group
        mean, _ = dense_posterior(X[~own], Y[~own], precision[~own], prior)
        values[own] = X[own] @ mean
    return values


def dense_second_look(first, X, y, groups, weight, area, rounds):
    """(precision of the rows, row weights, class weights, last leave-out values), written out."""
    n_classes, n_groups = first.classes_.size, first.groups_.size
    (scale,) = first.feature_scales_.values()
    prior = np.full(X.shape[1], scale**2)
    Y = targets_of(y, n_classes)
    noise = first.redundancy_ * first.noise_variance_[groups]
    size = area * (weight > 0)
    precision = weight * first.class_weight_[y] / noise
    for _ in range(rounds):
        values = dense_leave_out(X, Y, precision, prior, groups)
        calibration = calibrate(
            values, y, size, groups, n_groups, n_classes, balanced=n_classes == 2
        )
        shares = calibration.probabilities(values)
        rho = np.empty(n_groups)
        for group in range(n_groups):
            own = groups == group
            if n_classes == 2:
                given, predicted = y[own] == 1, values[own, 0] > 0
                union = size[own][given | predicted].sum()
                rho[group] = size[own][given & predicted].sum() / union if union else 1.0
            else:
                right = shares[own].argmax(1) == y[own]
                rho[group] = size[own][right].sum() / size[own].sum()
        rho = np.clip(rho, 0.01, 1.0)
        row_weight = (weight * shares[np.arange(y.size), y] * rho[groups]).astype(np.float32)
        totals = np.bincount(y, row_weight.astype(float), n_classes)
        class_weight = totals.sum() / (n_classes * totals)
        precision = row_weight * class_weight[y] / noise
    return precision, prior, row_weight, class_weight, values


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_it_is_the_dense_computation(kind, n_classes, rounds, small_tasks):
    data = classification(600, 8, 20, n_classes=n_classes)
    rng = np.random.default_rng(1)
    weight = np.where(rng.random(600) < 0.05, 0.0, rng.uniform(0.5, 2.0, 600))
    X = data.X if kind == "numpy" else da.from_array(data.X, chunks=(90, -1))
    given = {"groups": data.groups, "sample_weight": weight}
    first = GPGC(rounds=0).fit(data.X, data.y, **given)
    model = GPGC(rounds=rounds).fit(X, data.y, **given)
    precision, prior, row_weight, class_weight, last = dense_second_look(
        first, data.X, data.y, data.groups, weight, np.ones(600), rounds
    )
    # What remains is the tolerance of the first fit, whose reads are summed in another order.
    np.testing.assert_allclose(model.row_weight_, row_weight, rtol=2e-4, atol=1e-7)
    np.testing.assert_allclose(model.class_weight_, class_weight, rtol=1e-4)
    Y = targets_of(data.y, n_classes)
    mean, covariance = dense_posterior(data.X, Y, precision, prior)
    np.testing.assert_allclose(model.coef_.T, mean, rtol=1e-3, atol=1e-4)
    factor = model.covariance_factor_
    np.testing.assert_allclose(factor.T @ factor, covariance, rtol=1e-3, atol=1e-6)
    values = np.asarray(model.leave_group_out(X, data.y, data.groups, sample_weight=weight))
    expected = dense_leave_out(data.X, Y, precision, prior, data.groups)
    np.testing.assert_allclose(values.reshape(expected.shape), expected, rtol=1e-3, atol=1e-4)
    natural = calibrate(last, data.y, (weight > 0) * 1.0, data.groups, 20, n_classes)
    np.testing.assert_allclose(
        model.calibration_.to_array(), natural.to_array(), rtol=1e-2, atol=1e-2
    )
    for name in ("noise_variance_", "confidence_", "redundancy_", "log_evidence_"):
        np.testing.assert_allclose(getattr(model, name), getattr(first, name), rtol=1e-6)


def half_wrong(seed=0):
    """Sixty images of 40 rows; in 30 of them a part of the mask is wrong, where x₁ > 0."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(60), 40)
    X = np.c_[rng.standard_normal((2400, 10)), np.ones(2400)]
    true = (X[:, 0] + 0.7 * X[:, 2] + 0.2 * rng.standard_normal(2400) > 0).astype(int)
    wrong = (groups < 30) & (X[:, 1] > 0)
    return X, np.where(wrong, 0, true), groups, true


def test_masks_that_are_half_wrong_do_less_harm():
    X, y, groups, _ = half_wrong()
    new, _, _, truth = half_wrong(seed=1)
    accuracies = [
        GPGC(rounds=rounds).fit(X, y, groups=groups).score(new, truth) for rounds in (0, 1, 2)
    ]
    assert accuracies[1] > accuracies[0] + 0.01
    assert accuracies[2] > accuracies[0] + 0.01


def test_wrong_rows_lose_their_weight():
    X, y, groups, true = half_wrong()
    model = GPGC().fit(X, y, groups=groups)
    assert model.row_weight_.dtype == np.float32
    assert model.row_weight_[y != true].mean() < 0.3 * model.row_weight_[y == true].mean()


def test_rounds_are_counted_and_shown():
    data = classification(600, 8, 20)
    seen = []
    plain = GPGC(rounds=0).fit(data.X, data.y, groups=data.groups)
    model = GPGC(progress=seen.append).fit(data.X, data.y, groups=data.groups)
    assert model.n_iter_ == plain.n_iter_
    assert model.n_reads_ == plain.n_reads_ + 4
    assert seen == model.history_
    assert [entry["phase"] for entry in seen[-2:]] == ["second look 1", "second look 2"]
    assert [entry["reads"] - plain.n_reads_ for entry in seen[-2:]] == [2, 4]
    assert all(entry.keys() == seen[0].keys() for entry in seen)
    assert model.to_xarray().sizes["iteration"] == len(seen)


def test_reads_of_a_dask_array_are_displayed(small_tasks):
    data = classification(600, 8, 20)
    phases = []

    class Listener:
        def __call__(self, entry):
            pass

        def reading(self, progress):
            phases.append((progress.phase.split("-")[0], progress.done == progress.total))

    X = da.from_array(data.X, chunks=(90, -1))
    GPGC(rounds=1, progress=Listener()).fit(X, data.y, groups=data.groups)
    assert ("leave", True) in phases
    assert phases[-1] == ("gram", True)


def test_scattered_groups_on_dask(small_tasks):
    data = classification(600, 8, 20)
    order = np.random.default_rng(0).permutation(600)
    X, y, groups = data.X[order], data.y[order], data.groups[order]
    local = GPGC().fit(X, y, groups=groups)
    model = GPGC().fit(da.from_array(X, chunks=(90, -1)), y, groups=groups)
    np.testing.assert_allclose(model.coef_, local.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.row_weight_, local.row_weight_, rtol=1e-3)


@pytest.mark.parametrize("groups", [None, 9])
def test_few_groups_have_no_second_look(groups):
    data = classification(600, 8, groups or 20)
    names = None if groups is None else data.groups
    model = GPGC().fit(data.X, data.y, groups=names)
    plain = GPGC(rounds=0).fit(data.X, data.y, groups=names)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert model.calibration is None
    assert "row_weight_" not in vars(model)


def test_a_new_fit_forgets_it():
    data = classification(600, 8, 20)
    model = GPGC().fit(data.X, data.y, groups=data.groups)
    model.set_params(rounds=0).fit(data.X, data.y, groups=data.groups)
    assert model.calibration is None
    assert not {"row_weight_", "group_rows_", "group_digests_"} & vars(model).keys()


def test_gp_has_none_by_default():
    data = classification(600, 8, 20)
    assert "row_weight_" not in vars(GP().fit(data.X, data.y, groups=data.groups))
    model = GP(rounds=1).fit(data.X, data.y, groups=data.groups)
    assert model.row_weight_.shape == (600,)


@pytest.mark.parametrize("rounds", [-1, 1.5, "auto"])
def test_rounds_are_checked(rounds):
    data = classification(600, 8, 20)
    with pytest.raises(InputError, match="rounds must be a whole number"):
        GPGC(rounds=rounds).fit(data.X, data.y, groups=data.groups)


def test_leave_group_out_takes_whole_groups_of_the_fit(tmp_path):
    data = classification(600, 8, 20)
    GPGC().fit(data.X, data.y, groups=data.groups).save(tmp_path / "model.zarr")
    model = gpgc_dask.load(tmp_path / "model.zarr")
    values = model.leave_group_out(data.X, data.y, data.groups)
    some = np.isin(data.groups, [3, 11])
    np.testing.assert_allclose(
        model.leave_group_out(data.X[some], data.y[some], data.groups[some]), values[some]
    )
    for rows, y, weight in (
        (some & (np.arange(600) % 7 > 0), data.y, None),
        (some, 1 - data.y, None),
        (some, data.y, np.full(600, 2.0)),
    ):
        with pytest.raises(InputError, match=r"group\(s\) 3, 11 are not those of the fit"):
            model.leave_group_out(
                data.X[rows],
                y[rows],
                data.groups[rows],
                sample_weight=None if weight is None else weight[rows],
            )


def test_a_class_keeps_its_weight():
    """A class that is never predicted right loses most of its weight, and is balanced again."""
    data = classification(600, 8, 20, n_classes=3)
    y = data.y.copy()
    y[::60] = 3
    model = GPGC().fit(data.X, y, groups=data.groups)
    totals = np.bincount(y, model.row_weight_.astype(float)) * model.class_weight_
    np.testing.assert_allclose(totals, totals.mean())


class StopError(Exception):
    pass


def test_a_run_stopped_in_a_round_does_not_fit_again(tmp_path):
    data = classification(600, 8, 20)
    path = tmp_path / "fit.npz"

    def stop(entry):
        if entry["phase"] == "second look 1":
            raise StopError

    whole = GPGC().fit(data.X, data.y, groups=data.groups)
    with pytest.raises(StopError):
        GPGC(checkpoint=path, progress=stop).fit(data.X, data.y, groups=data.groups)
    assert path.exists()
    entries = []
    model = GPGC(checkpoint=path, progress=entries.append).fit(data.X, data.y, groups=data.groups)
    assert not path.exists()
    assert [entry["phase"] for entry in entries] == ["second look 1", "second look 2"]
    assert model.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_array_equal(model.row_weight_, whole.row_weight_)
