"""Photos of more than 8 bits are stretched by their content."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from PIL import Image

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.core.tiles import Tile, join_address
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photos import read_orientation, read_photo
from gpgc_dask.imaging.survey import survey_photos
from tests.support.deep import to_depth, write_deep
from tests.support.images import draw

PHOTO, _ = draw(0, 48, 64)
TWELVE = to_depth(PHOTO, 12)
FULL = PhotoFormat(stretch=(0, 4095))


def assert_is_photo(pixels, expected=PHOTO):
    assert pixels.shape == (*expected.shape[:2], 3)
    np.testing.assert_allclose(pixels.astype(int), np.broadcast_to(expected, pixels.shape), atol=1)


@pytest.mark.parametrize("ending", ["png", "tif"])
@pytest.mark.parametrize("bands", [1, 3])
def test_12_bits_in_16_lose_nothing(tmp_path, ending, bands):
    path = tmp_path / f"photo.{ending}"
    write_deep(path, TWELVE if bands == 3 else TWELVE[..., 0])
    assert_is_photo(read_photo(path, 512, FULL).pixels, PHOTO if bands == 3 else PHOTO[..., :1])


def test_transparent_pixels_are_white(tmp_path):
    alpha = np.zeros((48, 64), np.uint16)
    alpha[:, 32:] = 65535
    expected = np.where(alpha[..., None] > 0, PHOTO, 255)
    write_deep(tmp_path / "photo.png", np.dstack([TWELVE, alpha]))
    write_deep(tmp_path / "photo.tif", np.dstack([TWELVE, alpha]), extrasamples=["unassalpha"])
    for name in ("photo.png", "photo.tif"):
        assert_is_photo(read_photo(tmp_path / name, 512, FULL).pixels, expected)
    write_deep(tmp_path / "grey.png", np.dstack([TWELVE[..., 0], alpha]))
    assert_is_photo(read_photo(tmp_path / "grey.png", 512, FULL).pixels, expected[..., :1])


@pytest.mark.parametrize("tag", range(1, 9))
def test_orientation(tmp_path, tag):
    deep, plain = tmp_path / "deep.tif", tmp_path / "plain.png"
    write_deep(deep, TWELVE, extratags=[(274, "H", 1, tag, True)])
    exif = Image.Exif()
    exif[274] = tag
    Image.fromarray(PHOTO).save(plain, exif=exif)
    assert_is_photo(read_photo(deep, 512, FULL).pixels, read_photo(plain, 512).pixels)
    assert read_orientation(deep) == read_orientation(plain)


def test_size_is_reduced(tmp_path):
    write_deep(tmp_path / "photo.tif", TWELVE)
    found = read_photo(tmp_path / "photo.tif", 32, FULL)
    assert found.pixels.shape == (24, 32, 3)
    assert (found.orientation.height, found.orientation.width) == (48, 64)


def test_levels_of_a_set_are_percentiles_of_its_photos(tmp_path):
    paths = []
    for number, share in enumerate((0.25, 1.0)):
        path = tmp_path / f"{number}.tif"
        write_deep(path, np.linspace(0, 4095 * share, 10_000).astype(np.uint16).reshape(100, 100))
        paths.append(str(path))
    found = survey_photos(paths, PhotoFormat())
    assert found.photo_format.levels == pytest.approx((3, 4088), abs=3)
    assert "12-bit data in 16-bit photos are stretched from " in found.notes[0]
    dark, light = (read_photo(path, 512, found.photo_format).pixels.max() for path in paths)
    assert (dark, light) == (64, 255)
    alone = PhotoFormat(stretch="image")
    assert read_photo(paths[0], 512, survey_photos(paths, alone).photo_format).pixels.max() == 255
    unstretched = read_photo(paths[1], 512, PhotoFormat(stretch="none")).pixels
    assert unstretched.max() == 16
    assert survey_photos(paths, found.photo_format).photo_format == found.photo_format


def test_sets_of_8_bits_cost_nothing(tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    missing = [str(tmp_path / f"{number}.jpg") for number in range(3)]  # not even opened
    found = survey_photos([str(tmp_path / "a.png"), *missing], PhotoFormat())
    assert (found.photo_format, found.notes) == (PhotoFormat(), [])


def test_missing_values_are_black_and_have_no_part_in_the_levels(tmp_path):
    values = TWELVE[..., 0].astype(np.float32) / 4095
    for name, lost, tags in (
        ("nan.tif", np.nan, []),
        ("nodata.tif", -9999.0, [(42113, "s", 0, "-9999", True)]),
    ):
        holes = values.copy()
        holes[:10] = lost
        write_deep(tmp_path / name, holes, extratags=tags)
        found = read_photo(tmp_path / name, 512).pixels
        assert np.all(found[:10] == 0)
        low, high = np.percentile(values[10:], [0.1, 99.9])
        expected = np.clip((values[10:] - low) / (high - low), 0, 1) * 255
        np.testing.assert_allclose(found[10:, :, 0], expected, atol=1)


def test_photos_without_data(tmp_path):
    write_deep(tmp_path / "nan.tif", np.full((20, 30), np.nan, np.float32))
    with pytest.raises(UnusableFileError, match="all of its values are missing, NaN or infinite"):
        read_photo(tmp_path / "nan.tif", 512)
    fixed = PhotoFormat(levels=(0, 1))
    with pytest.raises(UnusableFileError, match="holds no data"):
        read_photo(tmp_path / "nan.tif", 512, fixed)
    tile = Tile(0, 0, 10, 10, (0, 0, 10, 10))
    assert np.all(read_photo(join_address(tmp_path / "nan.tif", tile), 512).pixels == 0)
    write_deep(tmp_path / "flat.tif", np.full((20, 30), 7, np.uint16))
    assert np.all(read_photo(tmp_path / "flat.tif", 512).pixels == 0)


def test_white_may_be_0(tmp_path):
    write_deep(tmp_path / "film.tif", 4095 - TWELVE[..., 0], photometric="miniswhite")
    assert_is_photo(read_photo(tmp_path / "film.tif", 512, FULL).pixels, PHOTO[..., :1])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_corrupted_tiffs(tmp_path, share):
    path = tmp_path / "photo.tif"
    write_deep(path, TWELVE, compression="zlib", rowsperstrip=8)
    path.write_bytes(path.read_bytes()[: 4 + int(path.stat().st_size * share)])
    with pytest.raises(UnusableFileError):
        read_photo(path, 512)


def test_no_numbers(tmp_path):
    tifffile.imwrite(tmp_path / "photo.tif", TWELVE[..., 0].astype(np.complex64))
    with pytest.raises(UnusableFileError, match="complex64"):
        read_photo(tmp_path / "photo.tif", 512)


@pytest.mark.parametrize("stretch", ["most", (1, 0), (0,), (0, np.nan), ("a", "b")])
def test_wrong_stretch(stretch):
    with pytest.raises(InputError, match="stretch"):
        PhotoFormat(stretch=stretch)


def test_json_restores():
    for one in (PhotoFormat(), FULL, PhotoFormat(levels=(1, 2))):
        assert PhotoFormat.from_json(one.to_json()) == one
