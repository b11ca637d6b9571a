"""Outlines of regions as polygons."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import approximate_polygon, find_contours

from gpgc_dask.quality.polygons import outlines, simplify


def blobs(seed, shape=(60, 80)):
    """A region of several parts, some with holes."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    return ndimage.gaussian_filter(noise, 1 + seed % 4) > 0.01 * (seed % 3)


@pytest.mark.parametrize("tolerance", [0.3, 0.7, 3.0])
def test_chains_are_simplified_as_one_by_one(tolerance):
    chains = [
        chain for seed in range(12) for chain in find_contours(np.pad(blobs(seed), 1) * 1.0, 0.5)
    ]
    assert len(chains) > 100
    for own, chain in zip(simplify(chains, tolerance), chains, strict=True):
        np.testing.assert_array_equal(own, approximate_polygon(chain, tolerance))


def test_outlines_are_in_pixels_of_the_photo_and_the_largest_is_first():
    regions = [np.zeros((30, 40), dtype=bool) for _ in range(3)]
    regions[0][2:12, 5:25], regions[0][20:26, 0:4] = True, True
    regions[0][5:8, 10:15] = False  # a hole
    regions[2][:4, :4] = True
    first, nothing, corner = outlines(regions, [(2.0, 3.0)] * 3)
    boxes = [(np.min(each[::2]), np.max(each[::2]), np.min(each[1::2]), np.max(each[1::2]))
             for each in first]  # fmt: skip
    # Corners may be cut by half a pixel of the map.
    wanted = [(15.0, 75.0, 4.0, 24.0), (0.0, 12.0, 40.0, 52.0)]
    np.testing.assert_allclose(boxes, wanted, atol=1.5)
    assert nothing == []
    assert len(corner) == 1


def test_regions_do_not_depend_on_those_that_are_processed_with_them():
    regions = [blobs(seed) for seed in range(5)]
    scales = [(1.0 + 0.1 * seed, 2.0) for seed in range(5)]
    alone = [outlines([region], [scale])[0] for region, scale in zip(regions, scales, strict=True)]
    assert outlines(regions, scales) == alone
