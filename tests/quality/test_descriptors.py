"""Descriptions of masks: defined for every mask, and different for good and bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.descriptors import Prediction, describe, mask_iou

SEGMENTS = (np.arange(60)[:, None] // 6 * 10 + np.arange(80) // 8).astype(np.uint16)


def _prediction(n_classes: int) -> tuple[Prediction, np.ndarray]:
    """A sure and right prediction, and the mask that it is right about."""
    codes = (np.arange(100) // 10 * n_classes // 10) if n_classes > 2 else _blob()
    shares = np.full((100, n_classes), 0.05 / (n_classes - 1))
    shares[np.arange(100), codes] = 0.95
    values = 2.0 * codes - 1 if n_classes == 2 else 2 * np.eye(n_classes)[codes] - 1
    frequency = np.bincount(codes, minlength=n_classes) / 100
    return Prediction(SEGMENTS, values, shares, frequency), codes.astype(np.uint8)[SEGMENTS]


def _blob() -> np.ndarray:
    row, column = np.divmod(np.arange(100), 10)
    return ((row > 2) & (row < 7) & (column > 2) & (column < 8)).astype(int)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("kind", ["right", "empty", "full", "void", "half void"])
def test_every_mask_has_a_finite_description(n_classes, kind):
    prediction, mask = _prediction(n_classes)
    mask = {
        "right": mask,
        "empty": np.zeros_like(mask),
        "full": np.full_like(mask, n_classes - 1),
        "void": np.full_like(mask, VOID),
        "half void": np.where(np.arange(80) < 40, VOID, mask).astype(np.uint8),
    }[kind]
    description = describe(prediction, mask)
    assert np.isfinite(description).all()
    assert description.shape == describe(prediction, _prediction(n_classes)[1]).shape


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_of_the_right_mask_are_better(n_classes):
    prediction, mask = _prediction(n_classes)
    right, wrong = (describe(prediction, each) for each in (mask, np.roll(mask, 20, axis=0)))
    assert right[0] == right[1] == right[2] == 1.0  # IoU and accuracy of the predicted labels
    assert wrong[0] < 0.7
    soft = slice(6, 12, 2)
    assert np.all(right[soft] > wrong[soft])
    assert right[12] > wrong[12]  # log-likelihood


def test_iou_of_masks():
    a = np.array([[1, 1, 0, VOID]], dtype=np.uint8)
    b = np.array([[1, 0, 0, 1]], dtype=np.uint8)
    assert mask_iou(a, b, 2) == 0.5
    assert mask_iou(a * 0, b * 0, 2) == 1.0
    assert mask_iou(a, b, 3) == pytest.approx((0.5 + 0.5) / 2)
    assert mask_iou(np.full_like(a, VOID), b, 3) == 1.0
