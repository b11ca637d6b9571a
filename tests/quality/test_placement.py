"""Places that are compared with that of an annotation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from gpgc_dask.quality.placement import (
    N_PLACEMENT,
    Neighbours,
    contrast_edges,
    describe_placement,
    outline_of,
)

SIDE = 80
NOTHING = Neighbours(np.zeros((SIDE, SIDE), dtype=bool), np.zeros((SIDE, SIDE), dtype=bool))


def disc(y, x, radius=12):
    rows, columns = np.ogrid[:SIDE, :SIDE]
    return (rows - y) ** 2 + (columns - x) ** 2 < radius**2


def maps_of(truth):
    edges = outline_of(truth).astype(float)
    return edges, edges, 0.9 * truth + 0.05


def test_right_places_gain_nothing():
    truth = disc(40, 40)
    plain, outline, region, together, distance, overlap = describe_placement(
        truth, truth, maps_of(truth), NOTHING
    )
    assert max(plain, outline, region, together) == pytest.approx(0.0, abs=1e-5)
    assert distance == pytest.approx(0.0)
    assert overlap == 0.0


def test_moved_objects_fit_better_where_they_were():
    truth, moved = disc(40, 40), disc(40, 49)
    plain, outline, region, together, distance, _ = describe_placement(
        moved, moved, maps_of(truth), NOTHING
    )
    assert min(plain, outline, region, together) > 1.0
    assert distance == pytest.approx(9 / np.sqrt(moved.sum()), abs=0.05)


def test_places_of_neighbours_are_taken():
    truth, moved = disc(40, 40), disc(40, 49)
    taken = Neighbours(truth, np.zeros_like(truth))
    free, blocked = (
        describe_placement(moved, moved, maps_of(truth), each) for each in (NOTHING, taken)
    )
    assert blocked[2] < free[2]
    assert blocked[5] == pytest.approx((truth & moved).sum() / moved.sum())


def test_outlines_of_neighbours_are_edges():
    own, other = disc(40, 40), disc(40, 62, 11)
    flat = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE)), np.full((SIDE, SIDE), 0.5)
    around = Neighbours(other, ndimage.binary_dilation(outline_of(own)))
    assert describe_placement(own, own, flat, around)[1] < 0.1
    assert describe_placement(disc(40, 46), own, flat, around)[1] > 1.0


@pytest.mark.parametrize("inside", [np.ones((SIDE, SIDE), dtype=bool), disc(0, 0, 2)])
def test_extreme_sizes_are_described(inside):
    described = describe_placement(inside, inside, maps_of(disc(40, 40)), NOTHING)
    assert len(described) == N_PLACEMENT
    assert np.isfinite(described).all()


def test_contrast_is_largest_between_the_most_different_superpixels():
    segments = np.repeat(np.arange(3, dtype=np.uint16), 6)[None] + np.zeros((5, 1), dtype=np.uint16)
    edges = contrast_edges(segments, np.array([[0.0], [1.0], [5.0]]))
    np.testing.assert_allclose(edges[2, [5, 6, 11, 12]], [0.25, 0.25, 1.0, 1.0])
    np.testing.assert_allclose(edges[2, [2, 9, 10, 13]], [0.0, 0.0, 0.5, 0.5])
    assert contrast_edges(segments, np.zeros((3, 1))).max() == 0.0
