"""Labels and probabilities from decision values, with and without a calibration."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.special import softmax

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset
from gpgc_dask.models.decisions import class_probabilities, decide
from gpgc_dask.quality.calibration import Calibration
from tests.support.problems import classification

NAMES = np.array(["cat", "dog", "sheep"])
THREE = Calibration(
    np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]),
    np.array([0.0, -3.0, 0.5]),
    np.array([0.25, 0.25, 0.5]),
)
TWO = Calibration(np.array([[0.0], [2.0]]), np.array([0.0, -1.0]), np.array([0.8, 0.2]))


@pytest.mark.parametrize("lazy", [False, True])
def test_rare_classes_gain_by_the_root_of_their_frequency(lazy):
    """In the first row, the logits 0.1 and 0.3 become 0.1 + ln 2 and 0.3 + ½ ln 2."""
    values = np.array([[0.1, 0.4, -0.2], [-1.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    given = da.from_array(values, chunks=(2, -1)) if lazy else values
    logits = values * [1, 2, 1] + [0, -3, 0.5]
    assert np.asarray(decide(given, NAMES, THREE)).tolist() == ["cat", "dog", "cat"]
    assert np.asarray(decide(given, NAMES)).tolist() == ["dog", "dog", "cat"]
    found = class_probabilities(given, 0.0, 1.0, 3, THREE)
    assert isinstance(found, da.Array) == lazy
    np.testing.assert_allclose(np.asarray(found), softmax(logits, axis=1))


@pytest.mark.parametrize("lazy", [False, True])
def test_the_sign_decides_between_two_classes(lazy):
    values = np.array([-0.5, 0.1, 2.0])
    given = da.from_array(values, chunks=2) if lazy else values
    assert np.asarray(decide(given, NAMES[:2], TWO)).tolist() == ["cat", "dog", "dog"]
    found = class_probabilities(given, 0.0, 1.0, 2, TWO)
    assert found.shape == (3, 2)
    np.testing.assert_allclose(np.asarray(found)[:, 1], 1 / (1 + np.exp(1 - 2 * values)))


def test_probabilities_of_a_second_look_are_calibrated():
    """Of predictions with a probability of about p, a share of about p is right."""
    data = classification(6000, 12, 120, n_classes=3, corrupted=0.0)
    fitted = data.groups < 60
    model = GPGC(rounds=2).fit(data.X[fitted], data.y[fitted], groups=data.groups[fitted])
    shares = model.predict_proba(data.X[~fitted])
    truth = data.y[~fitted]
    halfway = shares / np.sqrt(np.bincount(data.y[fitted]) / fitted.sum())
    assert (model.predict(data.X[~fitted]) == halfway.argmax(1)).mean() > 0.98
    right, sure = shares.argmax(1) == truth, shares.max(1)
    bins = np.digitize(sure, [0.5, 0.7, 0.9])
    for number in np.unique(bins):
        own = bins == number
        assert abs(right[own].mean() - sure[own].mean()) < 0.08
    frequencies = np.bincount(truth) / truth.size
    np.testing.assert_allclose(shares.mean(0), frequencies, atol=0.04)


def test_probabilities_of_a_fit_to_several_classes_are_calibrated():
    """Labels are drawn with known probabilities, which the fit finds without a second look."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((12000, 11)), np.ones(12000)])
    expected = softmax(1.5 * X @ rng.standard_normal((12, 3)) / np.sqrt(3), axis=1)
    y = (rng.random((12000, 1)) > expected.cumsum(1)).sum(1)
    groups = np.arange(12000) // 50
    fitted = groups < 120
    model = GPGC().fit(X[fitted], y[fitted], groups=groups[fitted])
    found, expected = model.predict_proba(X[~fitted]), expected[~fitted]
    assert np.abs(found - expected).mean() < 0.05
    sure, bins = found.max(1), np.digitize(found.max(1), [0.5, 0.7, 0.9])
    for number in np.unique(bins):
        own = bins == number
        right = np.take_along_axis(expected[own], found[own].argmax(1)[:, None], axis=1)
        assert abs(right.mean() - sure[own].mean()) < 0.05


@pytest.mark.parametrize("model", [GPGC(), GPGC(rounds=0), GP(), MarginSVM(C=0.1)], ids=repr)
def test_a_review_calibrates(model, reference, tmp_path):
    dataset = open_dataset(reference)
    model.fit(dataset)
    before = model.calibration
    assert (before is None) == (getattr(model, "rounds", 0) == 0)
    model.review(dataset)
    after = model.calibration
    if before is not None:
        assert not np.array_equal(before.to_array(), after.to_array())
    model.save(tmp_path / "model.zarr")
    stored = load(tmp_path / "model.zarr").calibration
    np.testing.assert_array_equal(stored.to_array(), after.to_array())
    area = dataset["pixels"].values * (dataset["weight"].values > 0)
    shares = after.probabilities(model.leave_out.values)
    labels = dataset["label"].values
    expected = np.average(shares[:, 1], weights=area)
    assert expected == pytest.approx(np.average(labels, weights=area), abs=0.1)
    model.fit(dataset)
    assert (model.calibration is None) == (before is None)
