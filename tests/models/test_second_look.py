"""The second look: weights of rows and groups, against a dense computation and on wrong masks."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import gpgc_dask
from gpgc_dask import GP, GPGC
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.oracle.rows import RowSweeps
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


def dense_second_look(first, X, y, groups, weight, area, rounds, units=None):
    """(precision of the rows, row weights, class weights, last leave-out values), written out."""
    units = groups if units is None else units
    n_classes, n_groups = first.classes_.size, first.groups_.size
    (scale,) = first.feature_scales_.values()
    prior = np.full(X.shape[1], scale**2)
    Y = targets_of(y, n_classes)
    noise = first.redundancy_ * first.noise_variance_[groups]
    size = area * (weight > 0)
    precision = weight * first.class_weight_[y] / noise
    for number in range(rounds):
        values = dense_leave_out(X, Y, precision, prior, units)
        if number == 0:
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
        if number == 0:
            totals = np.bincount(y, row_weight.astype(float), n_classes)
            wanted = np.ones(2) if n_classes == 2 else totals**0.25
            class_weight = wanted / totals * (totals.sum() / wanted.sum())
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


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_groups_of_images_are_left_out_together(kind, rounds, small_tasks):
    """The dense computation again, on a dataset with five groups of four images."""
    data = classification(600, 8, 20)
    X = data.X if kind == "numpy" else da.from_array(data.X, chunks=(90, -1))
    names = np.array([f"{number:02d}.jpg" for number in range(20)])
    dataset = xr.Dataset(
        {
            "features": (("superpixel", "feature"), X),
            "label": ("superpixel", data.y.astype(np.uint8)),
            "weight": ("superpixel", np.ones(600, dtype=np.float32)),
            "image": ("superpixel", data.groups.astype(np.int32)),
            "pixels": ("superpixel", np.ones(600, dtype=np.int64)),
            "feature_group": ("feature", np.array(["appearance"] * 8)),
            "image_name": ("photo", names),
            "group": ("photo", np.array([f"video {number // 4}" for number in range(20)])),
        },
        attrs={"classes": ["background", "foreground"]},
    )
    first, model = (GPGC(rounds=each).fit(dataset) for each in (0, rounds))
    *_, row_weight, class_weight, _ = dense_second_look(
        first, data.X, data.y, data.groups, np.ones(600), np.ones(600), rounds, data.groups // 4
    )
    np.testing.assert_allclose(model.row_weight_, row_weight, rtol=2e-4, atol=1e-7)
    np.testing.assert_allclose(model.class_weight_, class_weight, rtol=1e-4)
    *_, alone, _, _ = dense_second_look(
        first, data.X, data.y, data.groups, np.ones(600), np.ones(600), rounds
    )
    assert not np.allclose(model.row_weight_, alone, rtol=0.01)


@pytest.mark.parametrize(("kind", "reads"), [("numpy", 3), ("dask", 4)])
def test_scattered_groups_give_the_same_model(kind, reads, small_tasks):
    """A task over a dask array then holds no whole groups: each round takes two reads."""
    data = classification(600, 8, 20)
    order = np.random.default_rng(2).permutation(600)
    X = data.X[order] if kind == "numpy" else da.from_array(data.X[order], chunks=(90, -1))
    model = GPGC().fit(data.X, data.y, groups=data.groups)
    plain, scattered = (
        GPGC(rounds=rounds).fit(X, data.y[order], groups=data.groups[order]) for rounds in (0, 2)
    )
    np.testing.assert_allclose(scattered.coef_, model.coef_, rtol=1e-3, atol=1e-4)
    looks = [entry for entry in scattered.history_ if entry["phase"].startswith("second look")]
    assert looks[-1]["reads"] - plain.history_[-1]["reads"] == reads


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
    assert model.n_reads_ == plain.n_reads_ + 3
    assert seen == model.history_
    assert [entry["phase"] for entry in seen[-2:]] == ["second look 1", "second look 2"]
    assert [entry["reads"] - plain.n_reads_ for entry in seen[-2:]] == [2, 3]
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
    model = GPGC(rounds=1, class_weight="balanced").fit(data.X, y, groups=data.groups)
    totals = np.bincount(y, model.row_weight_.astype(float)) * model.class_weight_
    np.testing.assert_allclose(totals, totals.mean())


WIDE = {"n": 600, "k": 50, "n_groups": 20}
"""Fewer rows per group than features, so that the final check of the optimum has all rows."""


def reads_of_rounds(model):
    """Reads of each round of a fitted model, in addition to those before."""
    reads = [entry["reads"] for entry in model.history_]
    looks = [entry["phase"].startswith("second look") for entry in model.history_]
    return np.diff(reads)[looks[1:]].tolist()


@pytest.mark.parametrize("redundancy", ["auto", 3.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["numpy", "scattered", "dask", "float32"])
def test_the_first_round_takes_no_read_for_predictions(
    kind, n_classes, redundancy, small_tasks, monkeypatch
):
    """The read that certified the optimum has made them: the same as from a read of their own."""
    data = classification(**WIDE, n_classes=n_classes)
    order = np.arange(600)
    if kind == "scattered":
        order = np.random.default_rng(2).permutation(600)
    X, y, groups = data.X[order], data.y[order], data.groups[order]
    weight = np.where(np.random.default_rng(1).random(600) < 0.05, 0.0, 1.0)
    X = X.astype(np.float32) if kind == "float32" else X
    if kind in ("dask", "float32"):
        X = da.from_array(X, chunks=(90, -1))
    given = {"groups": groups, "sample_weight": weight}
    model = GPGC(redundancy=redundancy, rounds=2).fit(X, y, **given)
    assert reads_of_rounds(model) == [1, 1]

    terms = RowSweeps.terms

    def without_predictions(self, *arguments, request, **options):
        return terms(self, *arguments, request=replace(request, left_out=False), **options)

    monkeypatch.setattr(RowSweeps, "terms", without_predictions)
    other = GPGC(redundancy=redundancy, rounds=2).fit(X, y, **given)
    assert reads_of_rounds(other) == [2, 1]
    tolerance = 1e-4 if kind == "float32" else 1e-8
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(model.row_weight_, other.row_weight_, rtol=tolerance, atol=1e-7)
    assert model.n_reads_ == other.n_reads_ - 1
    first = GPGC(redundancy=redundancy, rounds=0).fit(X, y, **given)
    precision, prior, row_weight, _, _ = dense_second_look(
        first, data.X[order], y, groups, weight, np.ones(600), 2
    )
    by_group = np.argsort(groups, kind="stable")
    np.testing.assert_allclose(model.row_weight_, row_weight[by_group], rtol=2e-3, atol=1e-5)
    mean, _ = dense_posterior(data.X[order], targets_of(y, n_classes), precision, prior)
    np.testing.assert_allclose(model.coef_.T, mean, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "reads"),
    [({"solver": "lbfgs", "max_iter": 3}, [2, 1]), ({"max_iter": 1}, [2, 1])],
)
@pytest.mark.filterwarnings("ignore:the fit stopped")
def test_fits_without_a_final_certificate_read_once_more(options, reads):
    data = classification(**WIDE)
    assert reads_of_rounds(GPGC(**options).fit(data.X, data.y, groups=data.groups)) == reads


def test_tied_noise_and_one_noise_read_once_more():
    data = classification(**WIDE)
    owners = {group: group % 7 for group in range(20)}
    tied = GPGC().fit(data.X, data.y, groups=data.groups, noise_groups=owners)
    assert reads_of_rounds(tied) == [2, 1]
    assert reads_of_rounds(GP(rounds=2).fit(data.X, data.y, groups=data.groups)) == [2, 1]


class StopError(Exception):
    pass


def test_a_resumed_fit_reads_for_the_predictions_again(tmp_path):
    data = classification(**WIDE)
    path = tmp_path / "fit.npz"

    def stop(entry):
        if entry["phase"] == "second look 1":
            raise StopError

    whole = GPGC().fit(data.X, data.y, groups=data.groups)
    with pytest.raises(StopError):
        GPGC(checkpoint=path, progress=stop).fit(data.X, data.y, groups=data.groups)
    model = GPGC(checkpoint=path).fit(data.X, data.y, groups=data.groups)
    assert reads_of_rounds(whole) == [1, 1]
    assert reads_of_rounds(model) == [2, 1]
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)


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


@pytest.mark.parametrize("kind", ["numpy", "scattered", "dask"])
def test_more_classes_are_calibrated_without_a_second_look(kind, small_tasks):
    """Of the same fit, with probabilities from predictions of rows without their group."""
    data = classification(**WIDE, n_classes=3)
    order = np.arange(600)
    if kind == "scattered":
        order = np.random.default_rng(2).permutation(600)
    X, y, groups = data.X[order], data.y[order], data.groups[order]
    given = da.from_array(X, chunks=(90, -1)) if kind == "dask" else X
    model = GPGC().fit(given, y, groups=groups)
    plain = GPGC(rounds=0).fit(given, y, groups=groups)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert model.n_reads_ == plain.n_reads_
    assert not hasattr(model, "row_weight_")
    assert not hasattr(plain, "calibration_")
    values = plain.leave_group_out(X, y, groups)
    expected = calibrate(values, y, np.ones(600), groups, WIDE["n_groups"], 3)
    np.testing.assert_allclose(
        model.calibration_.to_array(), expected.to_array(), rtol=1e-4, atol=1e-5
    )
