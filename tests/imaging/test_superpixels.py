"""Everything counted over superpixels, against loops over pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.backbones.colour import Colour
from gpgc_dask.imaging.features import PhotoFeatures, Recipe, label
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.painting import paint
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.imaging.superpixels import class_counts, pool, position_features, segment
from tests.support.images import draw


@st.composite
def segmentations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    h, w = draw(st.integers(2, 20)), draw(st.integers(2, 20))
    n = draw(st.integers(1, min(h * w, 12)))
    segments = np.concatenate([np.arange(n), rng.integers(0, n, h * w - n)])
    return rng.permutation(segments).reshape(h, w).astype(np.uint16), n, rng


@given(segmentations(), st.integers(1, 30), st.integers(1, 30))
def test_pooling_is_the_mean_over_pixels(given_, fh, fw):
    segments, n, rng = given_
    h, w = segments.shape
    maps = [rng.standard_normal((3, fh, fw)), rng.standard_normal((2, h, w))]
    expected = np.zeros((n, 5))
    for y in range(h):
        for x in range(w):
            cell = int((y + 0.5) * fh / h), int((x + 0.5) * fw / w)
            expected[segments[y, x], :3] += maps[0][:, cell[0], cell[1]]
            expected[segments[y, x], 3:] += maps[1][:, y, x]
    expected /= np.bincount(segments.ravel())[:, None]
    np.testing.assert_allclose(pool(maps, segments, n), expected, rtol=1e-12, atol=1e-12)


def test_pooling_of_many_cells_takes_the_other_way(monkeypatch):
    segments = segment(draw(3)[0], 40, 20.0, 1.0)
    n = int(segments.max()) + 1
    maps = [np.random.default_rng(0).standard_normal((4, 30, 40))]
    dense = pool(maps, segments, n)
    monkeypatch.setattr("gpgc_dask.imaging.superpixels.MAX_DENSE_COUNTS", 0)
    np.testing.assert_array_equal(pool(maps, segments, n), dense)


@given(segmentations())
def test_position_features_are_shares_of_a_grid(given_):
    segments, n, _ = given_
    found = position_features(segments, n)
    assert found.shape == (n, 16)
    np.testing.assert_allclose(found.sum(1), 1)
    h, w = segments.shape
    cells = (np.arange(h) * 2 + 1) * 4 // (2 * h), (np.arange(w) * 2 + 1) * 4 // (2 * w)
    y, x = np.nonzero(segments == 0)
    share = np.mean((cells[0][y] == 0) & (cells[1][x] == 3))
    assert found[0, 3] == pytest.approx(share)


@given(segmentations(), st.integers(1, 50), st.integers(1, 50))
def test_votes_are_counted_on_the_photo_as_it_is_painted(given_, height, width):
    segments, n, rng = given_
    codes = rng.choice([0, 1, 2, VOID], (height, width)).astype(np.uint8)
    counts = class_counts(segments, n, codes, 3)
    painted = paint(segments, np.arange(n), height, width)
    assert painted.shape == (height, width)
    for code, column in ((0, 0), (1, 1), (2, 2), (VOID, 3)):
        expected = np.bincount(painted[codes == code], minlength=n)
        np.testing.assert_array_equal(counts[:, column], expected)


def test_votes_in_strips_are_the_same(monkeypatch):
    photo, mask = draw(1, 97, 61)
    segments = segment(photo, 30, 20.0, 1.0)
    n = int(segments.max()) + 1
    whole = class_counts(segments, n, mask.astype(np.uint8), 2)
    monkeypatch.setattr("gpgc_dask.imaging.superpixels.STRIP_PIXELS", 100)
    np.testing.assert_array_equal(class_counts(segments, n, mask.astype(np.uint8), 2), whole)


def test_superpixels_are_about_as_many_as_asked_and_numbered_without_gaps():
    photo, _ = draw(0, 120, 160)
    for asked in (20, 150):
        segments = segment(photo, asked, 20.0, 1.0)
        n = int(segments.max()) + 1
        assert 0.5 * asked < n < 1.5 * asked
        np.testing.assert_array_equal(np.unique(segments), np.arange(n))


def test_an_image_of_one_colour_has_superpixels_too():
    segments = segment(np.full((40, 50, 3), 120, dtype=np.uint8), 20, 20.0, 1.0)
    np.testing.assert_array_equal(np.unique(segments), np.arange(int(segments.max()) + 1))


@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (3, 3)])
def test_images_too_small(shape):
    with pytest.raises(UnusableFileError, match=f"only {shape[1]}×{shape[0]} pixels"):
        segment(np.zeros((*shape, 3), dtype=np.uint8), 150, 20.0, 1.0)


def described(segments):
    n = int(segments.max()) + 1
    h, w = segments.shape
    return PhotoFeatures(np.zeros((n, 1)), segments, {}, Orientation(h, w, (h, w), None))


def test_labels_weights_and_flags():
    segments = np.repeat(np.arange(12, dtype=np.uint16), 4).reshape(12, 4)
    codes = np.zeros((12, 4), dtype=np.uint8)
    codes[0] = [1, 1, 1, 0]
    codes[1] = [VOID, VOID, VOID, 1]
    codes[2] = [VOID, VOID, 1, 1]
    codes[3] = VOID
    codes[4] = [VOID, 0, 1, 1]
    found = label(described(segments), codes, 2)
    assert found.label[:5].tolist() == [1, 1, 1, 0, 1]
    assert found.weight[:6].tolist() == [1, 0, 0, 0, 1, 1]
    assert found.pixels.tolist() == [4] * 12
    assert found.flags == ()


@pytest.mark.parametrize(
    ("rows", "fill", "flags"),
    [
        (12, 0, ("empty mask",)),
        (12, 1, ("one class",)),
        (12, VOID, ("mostly void",)),
        (5, 0, ("empty mask", "few superpixels")),
        (1, 0, ("empty mask", "few superpixels")),
        (1, VOID, ("mostly void", "few superpixels")),
    ],
)
def test_flags(rows, fill, flags):
    segments = np.repeat(np.arange(rows, dtype=np.uint16), 4).reshape(rows, 4)
    found = label(described(segments), np.full((rows, 4), fill, dtype=np.uint8), 2)
    assert found.flags == flags


def test_which_class_is_background():
    segments = np.repeat(np.arange(12, dtype=np.uint16), 4).reshape(12, 4)
    codes = np.ones((12, 4), dtype=np.uint8)
    assert label(described(segments), codes, 2, background=1).flags == ("empty mask",)
    assert label(described(segments), codes, 2, background=None).flags == ("one class",)


def test_a_mask_too_small_to_win_a_superpixel_is_flagged():
    segments = np.repeat(np.arange(12, dtype=np.uint16), 4).reshape(12, 4)
    codes = np.zeros((12, 4), dtype=np.uint8)
    codes[0, 0] = 1
    assert label(described(segments), codes, 2).flags == ("one class",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"superpixels": 1}, "superpixels must be 2"),
        ({"side": 4}, "side must be 16"),
        ({"compactness": 0.0}, "compactness must be"),
        ({"dtype": "int8"}, "dtype must be"),
    ],
)
def test_recipes_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(Colour(), **options)
