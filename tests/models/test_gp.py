"""GPGC and GP as users meet them."""

from __future__ import annotations

import threading

import dask.array as da
import numpy as np
import pytest

import gpgc_dask
from gpgc_dask import GP, GPGC
from gpgc_dask.core.threads import blas_threads
from gpgc_dask.quality.calibration import Calibration
from tests.support.dense import DenseGP
from tests.support.problems import classification

DATA = classification(2000, 30, 60)


@pytest.fixture(scope="module")
def model():
    return GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)


def dense_of(model, X, y, groups):
    """The dense GP with the model's own hyperparameters and row weights."""
    codes = np.searchsorted(model.classes_, y)
    targets = np.where(codes == 1, 1.0, -1.0)[:, None]
    if model.classes_.size > 2:
        targets = np.where(np.eye(model.classes_.size)[codes] > 0, 1.0, -1.0)
    variance = model.noise_variance_[np.searchsorted(model.groups_, groups)]
    weight = model.class_weight_[codes]
    if model.classes_.size == 2:  # more classes get no second look
        weight[np.argsort(groups, kind="stable")] *= model.row_weight_
    noise = variance * model.redundancy_ / weight
    (scale,) = model.feature_scales_.values()
    return DenseGP(X, targets, noise, np.full(X.shape[1], scale**2))


def test_corrupted_groups_are_found(model):
    from sklearn.metrics import roc_auc_score

    assert roc_auc_score(DATA.flip_rate > 0.1, model.noise_variance_) > 0.95
    assert roc_auc_score(DATA.flip_rate > 0.1, -model.confidence_) > 0.95


def test_confidence_is_the_share_estimated_less_reliable(model):
    expected = [(model.noise_variance_ > own).mean() for own in model.noise_variance_]
    np.testing.assert_allclose(model.confidence_, expected)


def test_predictions_are_those_of_the_dense_gp(model):
    reference = dense_of(model, DATA.X, DATA.y, DATA.groups)
    new = classification(50, 30, 5, seed=9).X
    mean, std = model.decision_function(new, return_std=True)
    np.testing.assert_allclose(mean, reference.mean(new)[:, 0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(std**2, reference.variance(new), rtol=1e-7, atol=1e-10)


def test_leave_group_out_is_exact(model):
    found = model.leave_group_out(DATA.X, DATA.y, DATA.groups)
    reference = dense_of(model, DATA.X, DATA.y, DATA.groups)
    for group in (0, 17, 59):
        own = DATA.groups == group
        expected = reference.without(own).mean(DATA.X[own])[:, 0]
        np.testing.assert_allclose(found[own], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("n_units", [2, 7, 30])
def test_groups_are_left_out_together(model, n_units, lazy):
    """Scattered and large units: with two of them, a unit has more rows than features."""
    units = np.array([f"unit {number % n_units}" for number in DATA.groups])
    X = da.from_array(DATA.X, chunks=(37, -1)) if lazy else DATA.X
    found = np.asarray(model.leave_group_out(X, DATA.y, DATA.groups, together=units))
    reference = dense_of(model, DATA.X, DATA.y, DATA.groups)
    for unit in ("unit 0", "unit 1"):
        own = units == unit
        expected = reference.without(own).mean(DATA.X[own])[:, 0]
        np.testing.assert_allclose(found[own], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("limit", [1, 30 * 8 * 300])
def test_units_too_large_for_a_task_are_left_out_exactly(model, monkeypatch, limit):
    """All units, or those of more than 300 rows, are left out by their sufficient statistics."""
    monkeypatch.setattr("gpgc_dask.models.leave_group_out.MAX_GROUP_BYTES", limit)
    units = np.where(DATA.groups < 30, 0, np.where(DATA.groups < 45, 1, DATA.groups))
    X = da.from_array(DATA.X, chunks=(37, -1))
    found = model.leave_group_out(X, DATA.y, DATA.groups, together=units)
    expected = model.leave_group_out(DATA.X, DATA.y, DATA.groups, together=units)
    assert (np.bincount(units) > 300).sum() == 2
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-8, atol=1e-10)


def test_a_group_the_fit_never_saw_gets_the_plain_prediction(model):
    names = np.where(DATA.groups < 30, DATA.groups, 1000 + DATA.groups)
    with pytest.warns(UserWarning, match="30 of 60 groups were not in the fit"):
        found = model.leave_group_out(DATA.X, DATA.y, names)
    strange = names >= 1000
    np.testing.assert_allclose(found[strange], model.decision_function(DATA.X)[strange])
    same = model.leave_group_out(DATA.X, DATA.y, DATA.groups)
    np.testing.assert_allclose(found[~strange], same[~strange])


def test_groups_of_another_fit_are_rejected(model):
    with pytest.raises(ValueError, match="none of the fit's groups"):
        model.leave_group_out(DATA.X, DATA.y, DATA.groups.astype(str))
    with pytest.raises(ValueError, match="none of the fit's groups"):
        GPGC().fit(DATA.X, DATA.y).leave_group_out(DATA.X, DATA.y, DATA.groups)


def test_one_noise_for_all_leaves_any_groups_out():
    without = GP(redundancy=1.0).fit(DATA.X, DATA.y)
    with_groups = GP(redundancy=1.0).fit(DATA.X, DATA.y, groups=DATA.groups)
    np.testing.assert_allclose(
        without.leave_group_out(DATA.X, DATA.y, DATA.groups),
        with_groups.leave_group_out(DATA.X, DATA.y, DATA.groups),
        rtol=1e-6,
        atol=1e-8,
    )


def test_agreement_ranks_corrupted_groups(model):
    from sklearn.metrics import roc_auc_score

    values, agreement = model.leave_group_out(DATA.X, DATA.y, DATA.groups, return_agreement=True)
    group = 3
    own = DATA.groups == group
    given, predicted = DATA.y[own] == 1, values[own] > 0
    iou = (given & predicted).sum() / (given | predicted).sum()
    assert agreement.iou[group] == pytest.approx(iou)
    recalls = [(predicted[given]).mean(), (~predicted[~given]).mean()]
    assert agreement.balanced_accuracy[group] == pytest.approx(np.mean(recalls))
    assert roc_auc_score(DATA.flip_rate > 0.1, -agreement.iou) > 0.95


def test_agreement_is_weighted_by_area(model):
    area = np.random.default_rng(0).integers(1, 50, 2000).astype(float)
    values, agreement = model.leave_group_out(
        DATA.X, DATA.y, DATA.groups, area=area, return_agreement=True
    )
    own = DATA.groups == 8
    given, predicted = DATA.y[own] == 1, values[own] > 0
    expected = area[own][given & predicted].sum() / area[own][given | predicted].sum()
    assert agreement.iou[8] == pytest.approx(expected)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_string_labels_and_more_classes(n_classes):
    data = classification(2500, 20, 50, n_classes=n_classes)
    names = np.array([f"class {i}" for i in range(n_classes)])
    images = np.array([f"img_{g:03d}.jpg" for g in data.groups])
    model = GPGC().fit(data.X, names[data.y], groups=images)
    assert model.classes_.tolist() == names.tolist()
    assert set(model.predict(data.X)) <= set(names)
    assert (model.predict(data.X) == names[data.y]).mean() > 0.7
    proba = model.predict_proba(data.X)
    assert proba.shape == (2500, n_classes)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    if n_classes > 2:
        chosen = model.calibration_
        decided = (proba / chosen.frequency**chosen.exponent).argmax(1)
    else:
        decided = (model.decision_function(data.X) > 0).astype(int)
    np.testing.assert_array_equal(names[decided], model.predict(data.X))
    reference = dense_of(model, data.X, names[data.y], images)
    expected = reference.mean(data.X[:20])
    found = model.decision_function(data.X[:20])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-6, atol=1e-8)
    own = images == "img_007.jpg"
    found = model.leave_group_out(data.X, names[data.y], images)[own]
    expected = reference.without(own).mean(data.X[own])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-6, atol=1e-8)


def test_many_classes_cost_one_gram():
    data = classification(2000, 40, 60, n_classes=6)
    model = GPGC().fit(data.X, data.y, groups=data.groups)
    assert model.n_reads_ <= 15
    assert model.coef_.shape == (6, 40)


def test_probabilities_look_calibrated():
    """On new data, of the rows given p a share near p is positive."""
    data = classification(12_000, 20, 150, seed=3, corrupted=0.0)
    rng = np.random.default_rng(0)
    f = (data.X - data.X.mean(0)) @ rng.standard_normal(20)
    data.y[:] = rng.random(12_000) < 1 / (1 + np.exp(-3 * f / f.std()))
    train, test = data.groups < 75, data.groups >= 75
    model = GPGC().fit(data.X[train], data.y[train], groups=data.groups[train])
    p = model.predict_proba(data.X[test])[:, 1]
    bins = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
    share = np.bincount(bins, data.y[test]) / np.bincount(bins)
    mean = np.bincount(bins, p) / np.bincount(bins)
    gap = np.bincount(bins) / bins.size @ np.abs(share - mean)
    assert gap < 0.1
    far = model.predict_proba(1e3 * np.ones((1, 20)))
    assert np.all((far >= 0) & (far <= 1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_dask_in_lazy_dask_out(n_classes, small_tasks):
    data = classification(900, 15, 30, n_classes=n_classes)
    X = da.from_array(data.X, chunks=((400, 13, 487), -1))
    local = GPGC().fit(data.X, data.y, groups=data.groups)
    model = GPGC().fit(X, da.from_array(data.y, chunks=300), groups=data.groups)
    np.testing.assert_allclose(model.noise_variance_, local.noise_variance_, rtol=1e-6)
    mean, std = model.decision_function(X, return_std=True)
    pairs = {
        "mean": (mean, local.decision_function(data.X)),
        "std": (std, local.decision_function(data.X, return_std=True)[1]),
        "proba": (model.predict_proba(X), local.predict_proba(data.X)),
        "leave out": (
            model.leave_group_out(X, data.y, data.groups),
            local.leave_group_out(data.X, data.y, data.groups),
        ),
    }
    for lazy, expected in pairs.values():
        assert isinstance(lazy, da.Array)
        assert lazy.shape == expected.shape
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-5, atol=1e-7)
    labels = model.predict(X)
    assert isinstance(labels, da.Array)
    assert labels.dtype == model.classes_.dtype
    np.testing.assert_array_equal(labels.compute(), local.predict(data.X))


def test_scattered_groups_leave_out_lazily(small_tasks):
    # The first row of each group, then the second of each, and so on.
    position = np.arange(2000) - np.searchsorted(DATA.groups, DATA.groups)
    order = np.argsort(position, kind="stable")
    X = da.from_array(DATA.X[order], chunks=(300, -1))
    model = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    expected = model.leave_group_out(DATA.X, DATA.y, DATA.groups)[order]
    lazy = model.leave_group_out(X, DATA.y[order], DATA.groups[order])
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-8, atol=1e-10)
    eager = model.leave_group_out(DATA.X[order], DATA.y[order], DATA.groups[order])
    np.testing.assert_allclose(eager, expected, rtol=1e-8, atol=1e-10)


def test_on_a_cluster(client, small_tasks):
    X = da.from_array(DATA.X, chunks=(300, -1))
    local = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    model = GPGC().fit(X, DATA.y, groups=DATA.groups)
    np.testing.assert_allclose(model.noise_variance_, local.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X).compute(), local.predict_proba(DATA.X))


def test_feature_groups_have_scales_of_their_own():
    names = np.array(["appearance"] * 29 + ["constant"])
    model = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups, feature_groups=names)
    assert set(model.feature_scales_) == {"appearance", "constant"}
    single = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    assert model.log_evidence_ > single.log_evidence_ - 20
    assert set(single.feature_scales_) == {"all"}


@pytest.mark.parametrize("kind", [GPGC, GP])
def test_save_and_load(tmp_path, kind):
    names = np.array(["cat", "dog", "sheep"])
    data = classification(900, 10, 30, n_classes=3)
    images = np.array([f"a b/ü_{g}.jpg" for g in data.groups])
    saved = kind(class_weight={"cat": 2.0, "dog": 1.0}).fit(
        data.X, names[data.y], groups=images, feature_groups=[0] * 9 + [1]
    )
    saved.save(tmp_path / "model.zarr")
    model = gpgc_dask.load(tmp_path / "model.zarr")
    assert type(model) is kind
    assert model.get_params() == saved.get_params()
    for name, value in vars(saved).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(model, name), value)
        elif isinstance(value, Calibration):
            np.testing.assert_array_equal(getattr(model, name).to_array(), value.to_array())
        else:
            assert getattr(model, name) == value, name
    np.testing.assert_array_equal(model.predict_proba(data.X), saved.predict_proba(data.X))
    np.testing.assert_array_equal(
        model.leave_group_out(data.X, names[data.y], images),
        saved.leave_group_out(data.X, names[data.y], images),
    )
    saved.save(tmp_path / "model.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["model.zarr"]


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_dates_as_groups_survive_saving(tmp_path, unit):
    days = np.datetime64("2026-11-16", unit) + DATA.groups
    saved = GPGC().fit(DATA.X, DATA.y, groups=days)
    saved.save(tmp_path / "model.zarr")
    model = gpgc_dask.load(tmp_path / "model.zarr")
    assert model.groups_.dtype == saved.groups_.dtype
    expected = saved.leave_group_out(DATA.X, DATA.y, days)
    np.testing.assert_array_equal(model.leave_group_out(DATA.X, DATA.y, days), expected)


def test_what_cannot_be_saved_is_named(tmp_path, model):
    class Mine(GPGC):
        pass

    with pytest.raises(TypeError, match="Mine cannot be saved"):
        Mine().fit(DATA.X, DATA.y, groups=DATA.groups).save(tmp_path / "model.zarr")
    assert not list(tmp_path.iterdir())


def test_empty_blocks_are_no_trouble(model):
    X = da.from_array(DATA.X, chunks=((0, 7, 0, 1993), -1))
    for lazy, expected in (
        (model.predict(X), model.predict(DATA.X)),
        (model.predict_proba(X), model.predict_proba(DATA.X)),
    ):
        assert lazy.shape == expected.shape
        np.testing.assert_allclose(lazy.compute(), expected)


def test_fits_side_by_side_leave_the_threads_of_blas_alone():
    before = blas_threads()
    X = da.from_array(DATA.X, chunks=(400, -1))
    fits = [
        threading.Thread(target=lambda: GPGC().fit(X, DATA.y, groups=DATA.groups)) for _ in range(4)
    ]
    for fit in fits:
        fit.start()
    for fit in fits:
        fit.join()
    assert blas_threads() == before


def test_nothing_else_is_overwritten_or_taken_for_a_model(tmp_path, model):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not a gpgc_dask model"):
        model.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"
    with pytest.raises(ValueError, match="not a gpgc_dask model"):
        gpgc_dask.load(tmp_path / "notes")
    with pytest.raises(FileNotFoundError, match="make a model with gpgc fit"):
        gpgc_dask.load(tmp_path / "nowhere")


def test_saving_needs_a_fit(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        GPGC().save(tmp_path / "model.zarr")
