"""Votes of several answers."""

from __future__ import annotations

import numpy as np
import pytest

from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.consensus import reliability_weights, vote

pytestmark = pytest.mark.quick


def test_votes_have_weights():
    masks = [np.array([[0, 1, 2]]), np.array([[1, 1, 2]]), np.array([[1, 0, 1]])]
    masks = [mask.astype(np.uint8) for mask in masks]
    assert vote(masks, np.ones(3), 3).tolist() == [[1, 1, 2]]
    assert vote(masks, np.array([1.0, 1.0, 3.0]), 3).tolist() == [[1, 0, 1]]


def test_void_pixels_do_not_vote():
    masks = [np.array([[VOID, VOID]], dtype=np.uint8), np.array([[1, VOID]], dtype=np.uint8)]
    assert vote(masks, np.array([9.0, 1.0]), 2).tolist() == [[1, VOID]]


def test_equal_votes_are_the_lower_class():
    masks = [np.array([[0]], dtype=np.uint8), np.array([[1]], dtype=np.uint8)]
    assert vote(masks, np.ones(2), 2).tolist() == [[0]]


def test_weights_follow_the_noise_or_the_quality():
    quality, noise = np.array([0.9, 0.3, np.nan]), np.array([4.0, 2.0, np.nan])
    assert reliability_weights(noise, quality) == pytest.approx([0.75, 1.5, 0.01])
    for unknown in (np.full(3, np.nan), np.full(3, 0.7)):
        assert reliability_weights(unknown, quality) == pytest.approx([0.81, 0.09, 0.01])
