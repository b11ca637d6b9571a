from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from skimage.segmentation import slic

from gpgc_dask.imaging.slic import _centres, _sharpen, segment
from gpgc_dask.imaging.superpixels import class_counts

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from photos import draw

PARAMETERS = {"compactness": 20.0, "sigma": 1.0}


def share_right(segments, mask):
    """Share of the pixels that are right if each superpixel has the class of most of its pixels."""
    n = int(segments.max()) + 1
    votes = class_counts(segments.astype(np.uint16), n, mask.astype(np.uint8), 2)[:, :-1]
    return votes.max(1).sum() / votes.sum()


def test_superpixels_represent_masks_as_well_as_those_of_scikit_image():
    ours, theirs = [], []
    for seed in range(6):
        photo, mask = draw(seed, 192, 256)
        segments = segment(photo, 300, **PARAMETERS)
        other = slic(photo, n_segments=300, start_label=0, channel_axis=-1, **PARAMETERS)
        assert int(segments.max()) + 1 == pytest.approx(np.unique(other).size, rel=0.15)
        ours.append(share_right(segments, mask))
        theirs.append(share_right(other, mask))
    assert np.mean(ours) >= np.mean(theirs) - 0.001


@pytest.mark.parametrize("n", [150, 300, 450, 500, 600, 900])
def test_as_many_superpixels_as_asked(n):
    photo, _ = draw(1, 190, 256)
    segments = segment(photo, n, **PARAMETERS)
    assert segments.dtype == np.uint16
    assert np.unique(segments).tolist() == list(range(segments.max() + 1))
    assert int(segments.max()) + 1 == pytest.approx(n, rel=0.05)


@pytest.mark.parametrize("shape", [(2, 8), (3, 400), (400, 3), (25, 30), (64, 64), (31, 257)])
@pytest.mark.parametrize("n", [2, 50, 5000])
def test_any_shape_and_number(shape, n):
    photo = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    segments = segment(photo, n, **PARAMETERS)
    assert segments.shape == shape
    assert np.unique(segments).tolist() == list(range(segments.max() + 1))


def test_pixels_at_borders_go_to_the_nearest_superpixel_that_touches_them():
    rng = np.random.default_rng(2)
    colours = rng.normal(size=(14, 17, 3)).astype(np.float32)
    labels = np.kron(np.arange(12).reshape(3, 4), np.ones((5, 5), int))[:14, :17]
    space = 0.3
    rows, columns = np.arange(14) * space, np.arange(17) * space
    centres = _centres(colours, labels, rows, columns)
    sharpened = _sharpen(colours, labels, centres, space)
    padded = np.pad(labels, 1, mode="edge")
    for y, x in np.ndindex(14, 17):
        touching = {padded[y + 1, x + 1], padded[y, x + 1], padded[y + 2, x + 1]}
        touching |= {padded[y + 1, x], padded[y + 1, x + 2]}
        point = np.array([*colours[y, x], y * space, x * space])
        distance = {n: np.sum((point - centres[n].astype(float)) ** 2) for n in touching}
        assert distance[sharpened[y, x]] == pytest.approx(min(distance.values()), rel=1e-5)


def test_centres_are_means():
    rng = np.random.default_rng(3)
    colours = rng.normal(size=(6, 8, 3)).astype(np.float32)
    labels = rng.integers(0, 4, (6, 8))
    y, x = np.indices(labels.shape)
    centres = _centres(colours, labels, np.arange(6.0), np.arange(8.0))
    for n in range(4):
        own = labels == n
        expected = [*colours[own].mean(0), y[own].mean(), x[own].mean()]
        np.testing.assert_allclose(centres[n], expected, rtol=1e-5, atol=1e-5)
