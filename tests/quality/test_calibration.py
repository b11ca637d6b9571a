"""Calibrated probabilities: they match frequencies, and bad images do not spoil them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpgc_dask.quality.calibration import MIN_PROBABILITY, Calibration, calibrate, reliability


def _two_classes(seed: int = 0, n_images: int = 60, rows: int = 50):
    """Rows whose label is 1 with probability 1/(1 + exp(−(3f − 1)))."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_images), rows)
    values = rng.normal(size=groups.size)
    truth = 1 / (1 + np.exp(1 - 3 * values))
    codes = (rng.random(groups.size) < truth).astype(np.intp)
    return values, codes, groups, truth


def test_probabilities_match_the_frequencies_of_the_labels():
    values, codes, groups, truth = _two_classes(n_images=400)
    fitted = calibrate(values, codes, np.ones(codes.size), groups, 400, 2)
    assert np.abs(fitted.probabilities(values)[:, 1] - truth).max() < 0.06


def test_a_third_of_wrong_images_hardly_changes_them():
    values, codes, groups, truth = _two_classes(n_images=400)
    wrong = groups % 3 == 0
    flipped = np.where(wrong, 1 - codes, codes)
    fitted = calibrate(values, flipped, np.ones(codes.size), groups, 400, 2)
    naive = np.abs(truth * 2 / 3 + (1 - truth) / 3 - truth).mean()
    assert np.abs(fitted.probabilities(values)[:, 1] - truth).mean() < 0.5 * naive


def test_balanced_classes_have_the_same_frequency():
    values, codes, groups, _ = _two_classes()
    balanced = calibrate(values, codes, np.ones(codes.size), groups, 60, 2, balanced=True)
    natural = calibrate(values, codes, np.ones(codes.size), groups, 60, 2)
    assert codes.mean() < 0.45
    assert np.all(balanced.probabilities(values)[:, 1] > natural.probabilities(values)[:, 1])


@pytest.mark.parametrize("present", [[0], [0, 2], [0, 1, 2, 3]])
def test_classes_without_rows_are_unlikely(present):
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(30), 40)
    codes = rng.choice(present, groups.size)
    values = np.eye(4)[codes] * 2 - 1 + 0.5 * rng.normal(size=(groups.size, 4))
    shares = calibrate(values, codes, np.ones(codes.size), groups, 30, 4).probabilities(values)
    assert shares.shape == (groups.size, 4)
    assert np.allclose(shares.sum(1), 1)
    assert shares.min() >= MIN_PROBABILITY
    assert (shares.argmax(1) == codes).mean() > 0.9
    absent = [code for code in range(4) if code not in present]
    assert np.all(shares[:, absent] < 0.01)


def test_rows_without_area_do_not_count():
    values, codes, groups, _ = _two_classes()
    area = np.ones(codes.size)
    area[::2] = 0
    half = calibrate(values, np.where(area > 0, codes, 1 - codes), area, groups, 60, 2)
    own = area > 0
    alone = calibrate(values[own], codes[own], area[own], groups[own], 60, 2)
    assert np.array_equal(half.to_array(), alone.to_array())


def test_saved_calibrations_are_the_same():
    fitted = Calibration(np.array([[0.0], [2.5]]), np.array([0.0, -1.0]), np.array([0.6, 0.4]))
    again = Calibration.from_array(fitted.to_array())
    values = np.linspace(-2, 2, 9)
    assert np.array_equal(fitted.probabilities(values), again.probabilities(values))


def test_a_class_between_others_is_found():
    """Least squares give the middle one of three classes on a line values that never win."""
    rng = np.random.default_rng(2)
    groups, codes = np.repeat(np.arange(200), 30), np.tile(np.arange(3), 2000)
    x = codes - 1 + 0.2 * rng.normal(size=codes.size)
    columns = np.column_stack([x, np.ones_like(x)])
    values = columns @ np.linalg.lstsq(columns, 2.0 * np.eye(3)[codes] - 1.0)[0]
    assert (values.argmax(1) == 1).mean() < 0.05
    fitted = calibrate(values, codes, np.ones(codes.size), groups, 200, 3)
    assert (fitted.probabilities(values).argmax(1) == codes).mean() > 0.95
    few = slice(0, 1200)
    fitted = calibrate(values[few], codes[few], np.ones(1200), groups[few], 40, 3)
    assert fitted.coef.shape == (3, 3)  # too few rows for squares


def test_reliability_is_the_soft_iou():
    shares = np.array([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
    rho = reliability(
        shares, np.array([1, 0, 0]), np.array([2.0, 1.0, 0.0]), np.array([0, 0, 1]), 3
    )
    assert rho[0] == pytest.approx(2 * 0.9 / (2 + 0.2))
    assert rho[1] == rho[2] == 0.0
    many = np.array([[0.1, 0.7, 0.2], [0.6, 0.2, 0.2]])
    rho = reliability(many, np.array([1, 0]), np.ones(2), np.zeros(2, dtype=np.intp), 1)
    assert rho[0] == pytest.approx((0.7 + 0.6) / (4 - 1.3))


def test_the_exponent_of_decisions_has_the_best_mean_iou():
    """Two common classes and a rare one that overlap: neither P nor P/π decides best."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(100), 60)
    codes = rng.choice(3, groups.size, p=[0.6, 0.37, 0.03])
    values = np.eye(3)[codes] + 0.45 * rng.normal(size=(groups.size, 3))
    fitted = calibrate(values, codes, np.ones(codes.size), groups, 100, 3)

    def mean_iou(exponent: float) -> float:
        decided = replace(fitted, exponent=exponent).scores(values).argmax(1)
        own = [np.logical_and(decided == c, codes == c).sum() for c in range(3)]
        union = [np.logical_or(decided == c, codes == c).sum() for c in range(3)]
        return float(np.mean(np.divide(own, union)))

    assert 0 < fitted.exponent < 1
    assert mean_iou(fitted.exponent) > max(mean_iou(0.0), mean_iou(1.0))
    assert mean_iou(fitted.exponent) >= mean_iou(0.5) - 0.002
    assert Calibration.from_array(fitted.to_array()).exponent == fitted.exponent
