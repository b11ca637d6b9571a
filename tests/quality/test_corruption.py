"""Errors drawn into masks: void stays void, and each kind does what it is named after."""

from __future__ import annotations

import numpy as np
import pytest

from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.corruption import ONE_OBJECT, SEVERAL_CLASSES, corrupt, follow_superpixels


def _object() -> np.ndarray:
    mask = np.zeros((60, 80), dtype=np.uint8)
    rows, columns = np.ogrid[:60, :80]
    mask[((rows - 30) / 12) ** 2 + ((columns - 35) / 18) ** 2 < 1] = 1
    return mask


def _scene() -> np.ndarray:
    mask = np.zeros((60, 80), dtype=np.uint8)
    mask[30:] = 1
    mask[20:40, 50:70] = 2
    mask[:, :5] = VOID
    return mask


@pytest.mark.parametrize("n_classes", [2, 3])
def test_void_stays_void_and_classes_stay_in_range(n_classes):
    mask = _object() if n_classes == 2 else _scene()
    mask[:4] = VOID
    rng = np.random.default_rng(0)
    changed = 0
    for _ in range(60):
        drawn = corrupt(mask, mask[::-1], n_classes, rng)
        assert drawn.dtype == np.uint8
        assert np.array_equal(drawn == VOID, mask == VOID)
        assert drawn[drawn != VOID].max() < n_classes
        changed += np.any(drawn != mask)
    assert changed > 45


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("code", [0, 1, VOID])
def test_masks_of_one_class_or_void_can_be_corrupted(n_classes, code):
    mask = np.full((20, 30), code, dtype=np.uint8)
    rng = np.random.default_rng(1)
    for _ in range(40):
        assert corrupt(mask, mask, n_classes, rng).shape == mask.shape


def test_each_kind_of_error_of_one_object():
    mask, rng = _object(), np.random.default_rng(2)
    drawn = {kind.__name__: kind(mask, mask[:, ::-1], 2, rng) for kind in ONE_OBJECT}
    assert np.all(drawn["_too_large"] >= mask)
    assert drawn["_too_large"].sum() > mask.sum()
    assert np.all(drawn["_too_small"] <= mask)
    assert 0 < drawn["_too_small"].sum() < mask.sum()
    assert np.all(drawn["_box"] >= mask)
    assert drawn["_box"].sum() == 23 * 35
    assert not drawn["_empty"].any()
    assert np.array_equal(drawn["_confused"], mask[:, ::-1])
    assert np.all(drawn["_part_missing"] <= mask)


def test_each_kind_of_error_of_several_classes():
    mask = _scene()
    same = [
        kind.__name__ for kind in SEVERAL_CLASSES for _ in range(1) if _never_changes(kind, mask)
    ]
    assert same == []


def _never_changes(kind, mask) -> bool:
    rng = np.random.default_rng(3)
    return all(np.array_equal(kind(mask, mask, 3, rng), mask) for _ in range(20))


def test_masks_along_superpixels_have_one_class_in_each():
    segments = (np.arange(60)[:, None] // 10 * 8 + np.arange(80) // 10).astype(np.uint16)
    drawn = follow_superpixels(_scene(), segments, 3)
    for number in range(48):
        own = drawn[segments == number]
        assert np.unique(own[own != VOID]).size == 1
    assert np.array_equal(drawn == VOID, _scene() == VOID)
