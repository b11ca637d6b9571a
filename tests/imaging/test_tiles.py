"""Scenes are cut into tiles whose cores are a partition, and each tile is the part of the scene."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from PIL import Image

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.tiles import cut_scene, join_address, split_address
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.mask_sources.folder import MaskFile
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photo_values import read_values
from gpgc_dask.imaging.photos import open_image, read_orientation, read_photo
from gpgc_dask.imaging.scene_masks import TileMask
from gpgc_dask.imaging.tiff import TiffPage
from tests.support.deep import to_depth, write_deep
from tests.support.images import draw

PHOTO, MASK = draw(3, 150, 230)
TILES = [tile for _, _, tile in cut_scene(150, 230, 64, 10)]


@pytest.mark.parametrize(
    ("height", "width", "size", "overlap"),
    [
        (150, 230, 64, 10),
        (64, 65, 64, 0),
        (1000, 129, 128, 64),
        (300, 300, 100, 0),
        (50, 40, 64, 7),
    ],
)
def test_cores_are_a_partition(height, width, size, overlap):
    covered = np.zeros((height, width), dtype=int)
    for _, _, tile in cut_scene(height, width, size, overlap):
        covered[tile.core_slices] += 1
        assert max(tile.height, tile.width) <= size
        assert tile.crop(covered).shape == (tile.height, tile.width)
        assert tile.crop_core(tile.crop(covered)).size == tile.area
        assert np.count_nonzero(~tile.outside_core()) == tile.area
        assert split_address(join_address("a/scene#1.tif", tile)) == ("a/scene#1.tif", tile)
    assert np.all(covered == 1)
    assert split_address("a/scene.tif") == ("a/scene.tif", None)


WAYS = {
    "tiles.tif": {"tile": (32, 48), "compression": "zlib"},
    "strips.tif": {"rowsperstrip": 7, "compression": "zlib"},
    "whole.tif": {},
    "planes.tif": {"planarconfig": "separate", "tile": (32, 48)},
    "scene.png": None,
    "lzw.tif": None,
}


@pytest.mark.parametrize("name", WAYS)
def test_tiles_are_parts_of_the_scene(tmp_path, name):
    path = tmp_path / name
    if WAYS[name] is None:
        Image.fromarray(PHOTO).save(path, **({"compression": "tiff_lzw"} if "lzw" in name else {}))
    else:
        planes = PHOTO.transpose(2, 0, 1) if "planes" in name else PHOTO
        tifffile.imwrite(path, planes, photometric="rgb", **WAYS[name])
    for tile in TILES:
        found = read_photo(join_address(path, tile), 512)
        np.testing.assert_array_equal(found.pixels, tile.crop(PHOTO))
        assert found.orientation == read_orientation(join_address(path, tile))


def test_only_parts_of_a_tiff_are_decoded(tmp_path, monkeypatch):
    path = tmp_path / "scene.tif"
    tifffile.imwrite(path, PHOTO, photometric="rgb", tile=(32, 48), compression="zlib")
    decoded, original = [], TiffPage._decode
    monkeypatch.setattr(
        TiffPage, "_decode", lambda self, number: decoded.append(number) or original(self, number)
    )
    read_photo(join_address(path, TILES[0]), 512)
    assert decoded == [0, 1, 5, 6]  # of 25


def test_deep_scenes_and_rotated_ones(tmp_path):
    deep, turned = tmp_path / "deep.png", tmp_path / "turned.tif"
    write_deep(deep, to_depth(PHOTO, 12))
    full = PhotoFormat(stretch=(0, 4095))
    write_deep(turned, to_depth(PHOTO, 12), extratags=[(274, "H", 1, 3, True)])
    for tile in TILES[::5]:
        own = read_photo(join_address(deep, tile), 512, full).pixels
        np.testing.assert_allclose(own.astype(int), tile.crop(PHOTO), atol=1)
        own = read_photo(join_address(turned, tile), 512, full).pixels
        np.testing.assert_allclose(own.astype(int), tile.crop(PHOTO[::-1, ::-1]), atol=1)


@pytest.mark.parametrize("name", ["mask.png", "mask.tif", "palette.png"])
def test_masks_are_cut_alike(tmp_path, name):
    scene, path = tmp_path / "scene.png", tmp_path / name
    Image.fromarray(PHOTO).save(scene)
    image = Image.fromarray(MASK.astype(np.uint8))
    if name == "palette.png":
        image = image.convert("P")
        image.putpalette([0, 0, 0, 200, 30, 10])
    if name == "mask.tif":
        tifffile.imwrite(path, MASK.astype(np.uint8), tile=(32, 48), compression="zlib")
    else:
        image.save(path)
    for tile in TILES[::3]:
        codes = TileMask(MaskFile(str(path), MaskFormat()), tile, str(scene)).read(
            read_orientation(join_address(scene, tile))
        )
        expected = tile.crop(MASK).astype(np.uint8)
        expected[tile.outside_core()] = VOID
        np.testing.assert_array_equal(codes, expected)


def test_tiles_of_palette_tiffs(tmp_path):
    path, indices = tmp_path / "mask.tif", MASK.astype(np.uint8)
    colours = np.zeros((3, 256), np.uint16)
    colours[:, 1] = (200 << 8, 30 << 8, 10 << 8)
    tifffile.imwrite(path, indices, photometric="palette", colormap=colours, tile=(32, 48))
    with open_image(join_address(path, TILES[4])) as image:
        assert image.mode == "P"
        assert image.getpalette("RGB")[3:6] == [200, 30, 10]
        np.testing.assert_array_equal(np.asarray(image), TILES[4].crop(indices))


def test_holes_of_sparse_scenes(tmp_path):
    def parts():
        for number in range(4):
            yield None if number == 1 else np.full((32, 32, 3), 100 + number, np.uint8)

    path = tmp_path / "sparse.tif"
    tifffile.imwrite(
        path, parts(), shape=(64, 64, 3), dtype="uint8", tile=(32, 32), photometric="rgb"
    )
    tile = next(iter(cut_scene(64, 64, 64, 0)))[2]
    values, _ = read_values(join_address(path, tile), PhotoFormat())
    assert values.array[::32, ::32, 0].tolist() == [[100, 0], [102, 103]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile": 10}, "tile must be 64 to 8192"),
        ({"tile": 128, "overlap": 65}, "overlap must be 0 to half of tile, 64"),
        ({"overlap": 1}, "overlap must be 0"),
        ({"tile": 128, "stretch": "image"}, "stretched alike"),
    ],
)
def test_wrong_tiles(options, message):
    with pytest.raises(InputError, match=message):
        PhotoFormat(**options)
