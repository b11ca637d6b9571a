"""Masks of every common form give the same classes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.imaging.masks import VOID, MaskFormat, read_mask
from gpgc_dask.imaging.photos import read_photo
from tests.support.images import draw

PHOTO, MASK = draw(0, 48, 64)
DRAWN = MASK.astype(np.uint8)


@pytest.fixture
def orientation(tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "photo.png")
    return read_photo(tmp_path / "photo.png", 512).orientation


def palette(indices):
    image = Image.fromarray(indices.astype(np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0] + [0] * 759)
    image.putdata(indices.ravel().tolist())
    return image


def rgba_cut_out(mask):
    image = Image.new("RGBA", mask.shape[::-1], (0, 0, 0, 0))
    image.putalpha(Image.fromarray(mask * np.uint8(255)))
    return image


FORMS = {
    "0/255": (Image.fromarray(DRAWN * 255), MaskFormat()),
    "0/1": (Image.fromarray(DRAWN), MaskFormat()),
    "one bit": (Image.fromarray(MASK), MaskFormat()),
    "16 bit": (Image.fromarray(DRAWN.astype(np.uint16) * 65535), MaskFormat()),
    "grey as RGB": (Image.fromarray(np.repeat(DRAWN[..., None] * 255, 3, 2)), MaskFormat()),
    "cut-out": (rgba_cut_out(DRAWN), MaskFormat()),
    "palette": (palette(DRAWN * 2), MaskFormat()),
    "quantised, white first": (
        Image.fromarray(np.repeat(DRAWN[..., None] * 255, 3, 2)).quantize(2),
        MaskFormat(),
    ),
    "soft grey palette": (
        Image.fromarray((40 + 170 * DRAWN).astype(np.uint8)).convert("P"),
        MaskFormat(threshold=0.5),
    ),
    "class index": (Image.fromarray(DRAWN * 13 + (1 - DRAWN) * 4), MaskFormat(foreground=(13,))),
    "two foregrounds": (Image.fromarray(DRAWN * 3 + 4), MaskFormat(foreground=(7, 9))),
    "soft": (Image.fromarray((40 + 170 * DRAWN).astype(np.uint8)), MaskFormat(threshold=0.5)),
    "soft fractions": (
        Image.fromarray((0.2 + 0.6 * MASK).astype(np.float32)),
        MaskFormat(threshold=0.5),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path, orientation, form):
    image, fmt = FORMS[form]
    path = tmp_path / ("mask.tif" if image.mode == "F" else "mask.png")
    image.save(path)
    np.testing.assert_array_equal(read_mask(path, fmt, orientation), DRAWN)


def test_classes_and_void(tmp_path, orientation):
    values = DRAWN * 7
    values[:5] = 3
    values[-5:] = 255
    Image.fromarray(values).save(tmp_path / "mask.png")
    fmt = MaskFormat(classes=((3, "sky"), (0, "ground"), (7, "horse")), void=(255,))
    codes = read_mask(tmp_path / "mask.png", fmt, orientation)
    assert fmt.names == ("sky", "ground", "horse")
    assert fmt.values == (3, 0, 7)
    assert np.all(codes[:5] == 0)
    assert np.all(codes[-5:] == VOID)
    np.testing.assert_array_equal(codes[5:-5], 1 + DRAWN[5:-5])


@pytest.mark.parametrize(
    ("values", "fmt", "message"),
    [
        (DRAWN * 3 + 1, MaskFormat(), r"mask holds 2 values \(1, 4\).*--foreground.*--threshold"),
        (DRAWN * 3, MaskFormat(classes=((0, "a"), (1, "b"))), r"value\(s\) 3 .*--classes"),
        (DRAWN.astype(np.float32) / 2, MaskFormat(), "fractions.*--threshold"),
        (np.dstack([DRAWN * 255, DRAWN, DRAWN]), MaskFormat(), "colour picture"),
        (DRAWN[:-1], MaskFormat(), "mask is 64×47 pixels but its photo 64×48"),
    ],
)
def test_masks_that_cannot_be_read(tmp_path, orientation, values, fmt, message):
    path = tmp_path / "mask.tif"
    Image.fromarray(values).save(path)
    with pytest.raises(UnusableFileError, match=message):
        read_mask(path, fmt, orientation)


def test_a_corrupted_mask_is_distinguished_from_a_corrupted_photo(tmp_path, orientation):
    (tmp_path / "mask.png").write_bytes(b"")
    with pytest.raises(UnusableFileError, match=r"mask .*mask.png: the file is empty"):
        read_mask(tmp_path / "mask.png", MaskFormat(), orientation)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"foreground": (1,), "threshold": 0.5}, "choose one of"),
        ({"classes": ((0, "a"),)}, "classes must be 2"),
        ({"classes": ((0, "a"), (0, "b"))}, r"value\(s\) 0 have two meanings"),
        ({"foreground": (1,), "void": (1,)}, r"value\(s\) 1 have two meanings"),
        ({"threshold": 1.5}, "threshold must be"),
    ],
)
def test_formats_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        MaskFormat(**options)


@pytest.mark.parametrize("tag", [3, 5, 6, 7, 8])
def test_masks_of_turned_photos(tmp_path, tag):
    """A mask drawn upright is taken as it is, one drawn on the stored pixels is turned."""
    exif = Image.Exif()
    exif[0x0112] = tag
    Image.fromarray(PHOTO).save(tmp_path / "photo.png", exif=exif)
    orientation = read_photo(tmp_path / "photo.png", 512).orientation
    both = np.dstack([PHOTO[..., 0], DRAWN, DRAWN])
    Image.fromarray(both).save(tmp_path / "both.png", exif=exif)
    upright = read_photo(tmp_path / "both.png", 512).pixels[..., 1]
    for name, values in (("upright", upright), ("stored", DRAWN)):
        if tag == 3 and name == "stored":
            continue  # both have one size: taken to be upright
        Image.fromarray(values).save(tmp_path / "mask.png")
        found = read_mask(tmp_path / "mask.png", MaskFormat(), orientation)
        np.testing.assert_array_equal(found, upright)
