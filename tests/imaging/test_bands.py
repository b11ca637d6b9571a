"""Sound files of any layout are read: bands, planes, tiles, pages and types."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from PIL import Image

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photos import read_orientation, read_photo
from gpgc_dask.imaging.survey import survey_photos
from tests.support.images import draw

PHOTO, _ = draw(0, 48, 64)
NEAR = 255 - PHOTO[..., :1]
FOUR = np.dstack([PHOTO, NEAR])
PLAIN = PhotoFormat(stretch="none")

LAYOUTS = {
    "contiguous": (FOUR, {"photometric": "rgb", "extrasamples": ["unspecified"]}),
    "planar": (
        FOUR.transpose(2, 0, 1),
        {"photometric": "rgb", "planarconfig": "separate", "extrasamples": ["unspecified"]},
    ),
    "min-is-black": (FOUR, {"photometric": "minisblack", "planarconfig": "contig"}),
    "min-is-black, planar": (
        FOUR.transpose(2, 0, 1),
        {"photometric": "minisblack", "planarconfig": "separate"},
    ),
    "in tiles": (
        FOUR,
        {"photometric": "minisblack", "planarconfig": "contig", "tile": (16, 32)}
        | {"compression": "zlib", "predictor": True},
    ),
    "in planes of tiles": (
        FOUR.transpose(2, 0, 1),
        {"photometric": "minisblack", "planarconfig": "separate", "tile": (16, 32)},
    ),
    "floats": (FOUR.astype(np.float32) / 255, {"photometric": "minisblack"}),
    "planes of floats": (
        FOUR.transpose(2, 0, 1).astype(np.float64) / 255,
        {"photometric": "minisblack", "planarconfig": "separate", "compression": "zlib"},
    ),
    "eight bands": (
        np.dstack([FOUR, FOUR]).astype(np.uint16) * 257,
        {"photometric": "minisblack", "planarconfig": "contig"},
    ),
    "32 bits": (FOUR.astype(np.uint32) * 16843009, {"photometric": "minisblack"}),
    "big-endian": (FOUR.astype(">u2") * 257, {"photometric": "minisblack", "byteorder": ">"}),
    "BigTIFF": (FOUR, {"photometric": "minisblack", "bigtiff": True}),
}


def write(path, layout):
    values, options = LAYOUTS[layout]
    options = {"planarconfig": "contig"} | options
    tifffile.imwrite(path, values, **options)


def assert_is(pixels, expected):
    expected = np.broadcast_to(expected, (*expected.shape[:2], 3))
    np.testing.assert_allclose(pixels.astype(int), expected, atol=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bands_of_every_layout(tmp_path, layout):
    path = tmp_path / "photo.tif"
    write(path, layout)
    assert_is(read_photo(path, 512, PLAIN).pixels, PHOTO)
    own = PhotoFormat(stretch="none", bands=(4, 1, 2))
    assert_is(read_photo(path, 512, own).pixels, FOUR[..., [3, 0, 1]])
    assert_is(read_photo(path, 512, PhotoFormat(stretch="none", bands=(4,))).pixels, NEAR)
    size = read_orientation(path)
    assert (size.height, size.width) == (48, 64)
    with pytest.raises(UnusableFileError, match=r"there is no band 9 \(--bands\)"):
        read_photo(path, 512, PhotoFormat(bands=(9,)))


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp"])
def test_bands_of_other_formats(tmp_path, ending):
    path = tmp_path / f"photo.{ending}"
    Image.fromarray(PHOTO).save(path)
    shown = read_photo(path, 512).pixels
    swapped = PhotoFormat(bands=(3, 2, 1))
    np.testing.assert_array_equal(read_photo(path, 512, swapped).pixels, shown[..., ::-1])
    green = read_photo(path, 512, PhotoFormat(bands=(2,))).pixels
    assert_is(green, shown[..., 1:2])
    with pytest.raises(UnusableFileError, match="has 3 bands: there is no band 4"):
        read_photo(path, 512, PhotoFormat(bands=(1, 2, 4)))
    with pytest.raises(UnusableFileError, match="has one page: there is no page 2"):
        read_photo(path, 512, PhotoFormat(page=2))


def test_pages(tmp_path):
    path = tmp_path / "stack.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(PHOTO, photometric="rgb", subifds=1)
        file.write(PHOTO[::2, ::2], photometric="rgb", subfiletype=1)
        file.write(PHOTO[::2, ::2], photometric="rgb", subfiletype=1)  # reduced: not a page
        file.write(255 - PHOTO, photometric="rgb")
    assert_is(read_photo(path, 512).pixels, PHOTO)
    assert_is(read_photo(path, 512, PhotoFormat(page=2)).pixels, 255 - PHOTO)
    with pytest.raises(UnusableFileError, match=r"has 2 pages: there is no page 3 \(--page\)"):
        read_photo(path, 512, PhotoFormat(page=3))
    notes = survey_photos([str(path)], PhotoFormat()).notes
    assert notes == ["files have up to 2 pages: the first is used; choose another with --page"]
    assert survey_photos([str(path)], PhotoFormat(page=2)).notes == []


def test_more_bands_are_announced(tmp_path):
    path = tmp_path / "photo.tif"
    write(path, "contiguous")
    (note,) = survey_photos([str(path)], PhotoFormat()).notes
    assert note.startswith("photos have up to 4 bands: 1, 2 and 3 are used as red, green and blue")
    assert survey_photos([str(path)], PhotoFormat(bands=(4, 2, 1))).notes == []


def test_bands_and_pages_that_no_photo_has(tmp_path):
    write(tmp_path / "photo.tif", "contiguous")
    Image.fromarray(PHOTO).save(tmp_path / "photo.jpg")
    paths = [str(tmp_path / name) for name in ("photo.tif", "photo.jpg")]
    with pytest.raises(InputError, match=r"photos have 4 band\(s\): there is no band 5"):
        survey_photos(paths, PhotoFormat(bands=(5,)))
    with pytest.raises(InputError, match=r"photos have 3 band\(s\): there is no band 4"):
        survey_photos(paths[1:], PhotoFormat(bands=(4,)))
    with pytest.raises(InputError, match=r"photos have 1 page\(s\): there is no page 2"):
        survey_photos(paths, PhotoFormat(page=2))


def test_compressions_that_pillow_knows(tmp_path):
    grey = PHOTO[..., 0].astype(np.uint16) * 257
    Image.fromarray(grey).save(tmp_path / "grey.tif", compression="tiff_lzw")
    assert_is(read_photo(tmp_path / "grey.tif", 512, PLAIN).pixels, PHOTO[..., :1])
    Image.fromarray(PHOTO).save(tmp_path / "photo.tif", compression="tiff_lzw")
    own = PhotoFormat(bands=(3, 2, 1))
    assert_is(read_photo(tmp_path / "photo.tif", 512, own).pixels, PHOTO[..., ::-1])


@pytest.mark.parametrize(
    "options",
    [{"bands": (1, 2)}, {"bands": (0,)}, {"bands": (1.5,)}, {"page": 0}, {"page": "2"}],
)
def test_wrong_options(options):
    with pytest.raises(InputError, match=r"bands must be|page must be"):
        PhotoFormat(**options)
