"""Everything counted over superpixels, against loops over pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.backbones.colour import Colour
from gpgc_dask.imaging.features import PhotoFeatures, Recipe, describe, label
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.painting import paint
from gpgc_dask.imaging.photos import Orientation, reduce_photo
from gpgc_dask.imaging.slic import segment
from gpgc_dask.imaging.superpixels import class_counts, pool, position_features
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
    expected = np.concatenate([pool_by_loops(each, segments, n) for each in maps], axis=1)
    np.testing.assert_allclose(pool(maps, segments, n), expected, rtol=1e-12, atol=1e-12)


def pool_by_loops(values, segments, n):
    """The mean over pixels of the finer of the two, along each side."""
    (h, w), (fh, fw) = segments.shape, values.shape[1:]
    tall, wide = max(h, fh), max(w, fw)
    total, area = np.zeros((n, len(values))), np.zeros(n)
    for y in range(tall):
        for x in range(wide):
            own = segments[int((y + 0.5) * h / tall), int((x + 0.5) * w / wide)]
            total[own] += values[:, int((y + 0.5) * fh / tall), int((x + 0.5) * fw / wide)]
            area[own] += 1
    return total / area[:, None]


def test_every_cell_of_a_finer_map_counts():
    segments = np.array([[0, 0], [1, 2]], dtype=np.uint16)
    values = np.arange(16.0).reshape(1, 4, 4)
    assert pool([values], segments, 3).ravel().tolist() == [3.5, 10.5, 12.5]


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


def test_an_image_of_one_colour_has_superpixels_too():
    segments = segment(np.full((40, 50, 3), 120, dtype=np.uint8), 20, 20.0, 1.0)
    np.testing.assert_array_equal(np.unique(segments), np.arange(int(segments.max()) + 1))


@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (3, 3)])
def test_images_too_small(shape):
    with pytest.raises(UnusableFileError, match=f"only {shape[1]}×{shape[0]} pixels"):
        segment(np.zeros((*shape, 3), dtype=np.uint8), 150, 20.0, 1.0)


@pytest.fixture
def photo_file(tmp_path):
    def save(height, width, seed=0):
        path = tmp_path / f"{height}x{width}.png"
        Image.fromarray(draw(seed, height, width)[0]).save(path)
        return path

    return save


@pytest.mark.parametrize(
    ("height", "width", "side", "shape"),
    [
        (300, 400, 512, (192, 256)),
        (1024, 768, 512, (256, 192)),
        (192, 256, 512, (192, 256)),
        (60, 80, 512, (60, 80)),
        (60, 80, 80, (30, 40)),
        (2, 600, 512, (2, 256)),
    ],
)
def test_superpixels_are_computed_at_half_the_side(photo_file, height, width, side, shape):
    path, seen = photo_file(height, width), []

    def backbone(pixels):
        seen.append(pixels.shape[:2])
        return [np.moveaxis(pixels / 255, -1, 0)]

    recipe = Recipe(backbone, side=side, superpixels=40)
    found, again = describe(path, recipe), describe(path, recipe)
    scale = min(side / max(height, width), 1)
    assert seen[0] == (round(height * scale), round(width * scale))
    assert found.segments.shape == shape
    assert (found.orientation.height, found.orientation.width) == (height, width)
    np.testing.assert_array_equal(np.unique(found.segments), np.arange(found.n))
    np.testing.assert_array_equal(found.segments, again.segments)
    np.testing.assert_array_equal(found.features, again.features)
    assert paint(found.segments, np.arange(found.n), height, width).shape == (height, width)


def test_labels_of_reduced_superpixels_are_counted_at_the_photos_own_size(photo_file):
    found = describe(photo_file(300, 400, seed=2), Recipe(Colour()))
    mask = draw(2, 300, 400)[1].astype(np.uint8)
    labelled = label(found, mask, 2)
    assert labelled.pixels.sum() == mask.size
    assert labelled.mask.shape == found.segments.shape == (192, 256)
    painted = paint(found.segments, labelled.label, 300, 400)
    assert np.mean(painted == mask) > 0.98


def test_reducing_a_photo_takes_averages():
    pixels = draw(1, 40, 60)[0]
    blocks = pixels.reshape(20, 2, 30, 2, 3).mean((1, 3))
    reduced = reduce_photo(pixels, 30)
    assert reduced.dtype == np.uint8
    np.testing.assert_allclose(reduced, blocks, atol=1)
    assert reduce_photo(pixels, 60) is pixels
    assert reduce_photo(pixels[:3], 20).shape == (2, 20, 3)


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
