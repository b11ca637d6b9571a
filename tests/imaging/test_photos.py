"""Photos of every kind come out as people see them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photos import read_photo
from tests.support.images import draw

PHOTO, MASK = draw(0, 48, 64)


def saved(tmp_path, image, name="photo.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA", "I;16", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    rgb = Image.fromarray(PHOTO)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(rgb.convert("L")).astype(np.uint16) * 257)
    else:
        image = rgb.convert(mode)
    path = saved(tmp_path, image, "photo.tif" if mode == "CMYK" else "photo.png")
    found = read_photo(path, 512, PhotoFormat(stretch="none")).pixels
    assert found.shape == PHOTO.shape
    assert found.dtype == np.uint8
    expected = np.asarray(rgb if mode in ("RGBA", "CMYK") else rgb.convert("L").convert("RGB"))
    if mode in ("RGBA", "CMYK", "L", "LA", "I;16"):
        np.testing.assert_allclose(found.astype(int), expected, atol=2)


def test_transparency_is_laid_on_white(tmp_path):
    image = Image.fromarray(PHOTO).convert("RGBA")
    image.putalpha(0)
    assert np.all(read_photo(saved(tmp_path, image), 512).pixels == 255)


TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 3),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: np.rot90,
}


@pytest.mark.parametrize("ending", ["png", "tif", "webp"])
@pytest.mark.parametrize("tag", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, tag, ending):
    exif = Image.Exif()
    exif[0x0112] = tag
    options = {"lossless": True} if ending == "webp" else {}
    path = saved(tmp_path, Image.fromarray(PHOTO), f"photo.{ending}", exif=exif, **options)
    found = read_photo(path, 512)
    expected = TURNS[tag](PHOTO)
    np.testing.assert_array_equal(found.pixels, expected)
    assert (found.orientation.height, found.orientation.width) == expected.shape[:2]
    assert found.orientation.stored == PHOTO.shape[:2]


def test_large_photos_are_scaled_and_small_ones_are_not(tmp_path):
    photo, _ = draw(1, 300, 400)
    path = saved(tmp_path, Image.fromarray(photo), "photo.jpg", quality=95)
    found = read_photo(path, 100)
    assert found.pixels.shape == (75, 100, 3)
    assert (found.orientation.height, found.orientation.width) == (300, 400)
    assert read_photo(path, 512).pixels.shape == photo.shape
    means = found.pixels.mean((0, 1)), photo.mean((0, 1))
    np.testing.assert_allclose(*means, atol=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"a letter to a friend", "not an image"),
        (b"\xff\xd8\xff\xe0 nothing of the kind", "corrupted or truncated"),
        (None, "corrupted or truncated"),
    ],
)
def test_corrupted_files_are_named_as_such(tmp_path, content, message):
    path = saved(tmp_path, Image.fromarray(PHOTO), "photo.jpg")
    path.write_bytes(path.read_bytes()[:-600] if content is None else content)
    with pytest.raises(UnusableFileError, match=message):
        read_photo(path, 512)


def test_a_link_in_a_circle(tmp_path):
    path = tmp_path / "photo.jpg"
    path.symlink_to(path)
    with pytest.raises(UnusableFileError, match="cannot be opened"):
        read_photo(path, 512)


def test_a_png_with_an_endless_comment(tmp_path):
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("xmp", "a" * (3 << 20), zip=True)
    path = saved(tmp_path, Image.fromarray(PHOTO), pnginfo=info)
    with pytest.raises(
        UnusableFileError, match="corrupted: ValueError: Decompressed data too large"
    ):
        read_photo(path, 512)


def test_photos_in_fractions(tmp_path):
    values = np.linspace(0, 1, 600, dtype=np.float32).reshape(20, 30)
    found = read_photo(saved(tmp_path, Image.fromarray(values), "photo.tif"), 512)
    np.testing.assert_allclose(found.pixels[..., 0], values * 255, atol=1)
