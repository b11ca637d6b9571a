"""Candidates of missing objects, and which of them are proposed."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import ndimage

from gpgc_dask.data.run_lengths import encode
from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.descriptors import Prediction
from gpgc_dask.quality.object_descriptors import Scene
from gpgc_dask.quality.region_scores import MAX_REGIONS, FoundRegion, _select
from gpgc_dask.quality.regions import (
    EIGHT,
    LEVELS,
    MAX_REMOVED,
    MIN_SUPERPIXELS,
    RING,
    SAME,
    describe_region,
    find_regions,
    remove_things,
)

SIDE, CELL = 40, 4
SEGMENTS = (np.arange(SIDE)[:, None] // CELL * (SIDE // CELL) + np.arange(SIDE) // CELL).astype(
    np.uint16
)


def scene_of(probability):
    """A scene of two classes with this P (10, 10) of the object."""
    p = np.clip(probability.ravel(), 1e-3, 1 - 1e-3)
    values = np.log(p / (1 - p))
    prediction = Prediction(SEGMENTS, values, np.column_stack([1 - p, p]), np.array([0.8, 0.2]))
    return Scene(prediction, np.ones(1))


def region(photo, probability, rows, columns):
    inside = np.zeros((SIDE, SIDE), dtype=bool)
    inside[rows, columns] = True
    return FoundRegion(photo, "missing", 1, 0, encode(inside), 0.0, np.zeros(1), probability)


def sizes(n):
    return xr.Dataset({name: ("photo", np.full(n, SIDE)) for name in SIZES})


SIZES = ("segment_height", "segment_width")


def test_missing_objects_have_candidates_at_several_levels():
    probability = np.full((10, 10), 0.005)
    probability[1:9, 1:9] = 0.03
    probability[2:4, 2:4] = 0.4
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    found = find_regions(scene_of(probability), mask, 0)
    assert sorted(int(one.inside.sum()) // CELL**2 for one in found) == [4, 64]
    assert {one.kind for one in found} == {"missing"}


def test_levels_that_add_little_are_left_out():
    probability = np.full((10, 10), 0.005)
    probability[2:7, 2:7] = 0.4
    probability[2:7, 7] = 0.2
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    (only,) = find_regions(scene_of(probability), mask, 0)
    assert only.inside.sum() == 25 * CELL**2


def test_the_most_probable_of_nested_regions_is_kept():
    whole, core = slice(0, 20), slice(0, 8)
    regions = [
        region(0, 0.3, core, core),
        region(0, 0.6, whole, whole),
        region(0, 0.2, slice(30, 40), slice(30, 40)),
        region(1, 0.5, core, core),
        region(1, 0.4, whole, whole),
    ]
    kept = _select(regions, sizes(2))
    assert [(one.photo, one.probability) for one in kept] == [
        (0, 0.6),
        (0, 0.2),
        (1, 0.5),
        (1, 0.4),
    ]


def test_regions_per_image_are_limited():
    regions = [region(0, k / 40, k, slice(0, 9)) for k in range(MAX_REGIONS + 5)]
    kept = _select(regions, sizes(1))
    assert [one.probability for one in kept] == [k / 40 for k in range(MAX_REGIONS + 4, 4, -1)]


def test_the_largest_things_are_removed_one_at_a_time():
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for k in range(8):
        mask[5 * k : 5 * k + 4, : 8 + k] = 1 + k % 2
    mask[:, 39], mask[38:, 30:32] = VOID, 1  # void, and too small
    prediction = scene_of(np.full((10, 10), 0.5)).prediction
    removed = list(remove_things(prediction, mask, 0))
    areas = [int(thing.sum()) for _, thing in removed]
    assert areas == [4 * (15 - k) for k in range(MAX_REMOVED)]
    for copy, thing in removed:
        np.testing.assert_array_equal(copy != mask, thing)
        assert (copy[thing] == 0).all()
    assert not list(remove_things(prediction, mask, -1))


def missing_regions(scene, mask):
    """Regions of missing objects, on whole maps and level by level."""
    p = scene.prediction.shares[:, 1]
    given = scene.prediction.counts(mask).argmax(1)
    found = []
    for level in LEVELS:
        numbers, count = ndimage.label(((given == 0) & (p > level))[SEGMENTS] & (mask == 0), EIGHT)
        parts = [numbers == number for number in range(1, count + 1)]
        higher = list(found)
        for part in parts:
            known = any((part & other).sum() >= SAME * part.sum() for other in higher)
            if part.sum() >= MIN_SUPERPIXELS * CELL**2 and not known:
                found.append(part)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_regions_are_those_of_whole_maps(seed):
    rng = np.random.default_rng(seed)
    scene = scene_of(rng.uniform(size=(10, 10)) ** 3)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    mask[tuple(rng.integers(SIDE, size=(2, 60)))] = 1
    mask[rng.integers(20) :, rng.integers(20, 39) :] = rng.choice([1, VOID])
    found = [one for one in find_regions(scene, mask, 0) if one.kind == "missing"]
    wanted = missing_regions(scene, mask)
    assert len(found) == len(wanted) > 3
    for one, inside in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.inside, inside)
        assert one.overlap(mask == 1) == 0
        ring = ndimage.binary_dilation(inside, EIGHT, iterations=RING) & ~inside
        description = describe_region(scene, mask, one)
        np.testing.assert_allclose(description[10], np.mean(mask[ring] == 1))
        np.testing.assert_allclose(description[3], np.log(inside.sum() / CELL**2))
