"""Folders to datasets: what they hold, the same whatever the workers."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import xarray as xr

from gpgc_dask import MaskOptions, Recipe, open_dataset
from gpgc_dask.data.schema import VARIABLES
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.pipelines.ingest import RunOptions, ingest
from tests.support.images import draw, save_pairs, tree_bytes
from tests.support.ingesting import QUICK


def test_the_dataset(reference, folders):
    found = open_dataset(reference)
    n = found.sizes["superpixel"]
    assert found.sizes["photo"] == 30
    assert found["features"].shape == (n, 14 + 16 + 1)
    assert found["features"].dtype == np.float32
    assert np.all(np.diff(found["image"].values) >= 0)
    assert [str(name) for name in found["image_name"].values] == sorted(
        path.name for path in folders[0].iterdir()
    )
    groups = found["feature_group"].values.tolist()
    assert groups == ["appearance"] * 14 + ["position"] * 16 + ["constant"]
    area = np.bincount(found["image"].values, found["pixels"].values)
    np.testing.assert_array_equal(area, 60 * 80)
    assert found.attrs["classes"] == ["background", "foreground"]
    assert found.attrs["backbone"]["name"] == "colour"
    assert found.attrs["recipe"]["superpixels"] == 20
    assert not [path for path in reference.rglob("*") if ".ingest" in path.parts]


def test_more_than_two_classes_have_smaller_superpixels(folders, tmp_path):
    several = MaskOptions(classes={0: "sky", 255: "animal", 7: "tree"})
    for name, masks_as, wanted in (("two", None, 300), ("three", several, 500)):
        ingest(*folders, tmp_path / name, recipe=Recipe("colour", side=64), masks_as=masks_as)
        assert open_dataset(tmp_path / name).attrs["recipe"]["superpixels"] == wanted
    chosen = Recipe("colour", superpixels=25)
    assert chosen.settle(9) == chosen


def test_plain_xarray_opens_it(reference):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = xr.open_zarr(reference)
    assert set(plain.variables) == set(VARIABLES)
    np.testing.assert_array_equal(plain["label"], open_dataset(reference)["label"])
    assert plain["features"].dims == ("superpixel", "feature")


def test_labels_are_the_masks_majority(reference):
    found = open_dataset(reference)
    for photo in (0, 17):
        _, mask = draw(photo)
        painted = paint_image(found, np.arange(found.sizes["superpixel"]), photo)
        assert painted.shape == mask.shape
        for row in np.unique(painted):
            assert found["label"].values[row] == (mask[painted == row].mean() > 0.5)
            assert found["pixels"].values[row] == (painted == row).sum()


def test_features_are_those_of_the_image_alone(reference, folders):
    from gpgc_dask.imaging.backbones import find_backbone
    from gpgc_dask.imaging.features import Recipe, describe

    found = open_dataset(reference)
    recipe = Recipe(find_backbone("colour"), superpixels=20)
    alone = describe(folders[0] / "photo_011.jpg", recipe)
    rows = found["image"].values == 11
    np.testing.assert_array_equal(found["features"].values[rows], alone.features)


def test_small_chunks_hold_the_same(folders, reference, tmp_path, small_chunks):
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK)
    found, expected = open_dataset(tmp_path / "data.zarr"), open_dataset(reference)
    assert found["features"].data.numblocks[0] > 5
    assert found["segments"].data.numblocks[0] > 5
    xr.testing.assert_identical(found.load(), expected.load())


def test_float16(folders, reference, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", recipe=replace(QUICK, dtype="float16"))
    found = open_dataset(tmp_path / "data.zarr")["features"]
    assert found.dtype == np.float16
    expected = open_dataset(reference)["features"].values.astype(np.float16)
    np.testing.assert_array_equal(found.values, expected)


def test_any_number_of_workers_gives_the_same_bytes(client, folders, reference, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK)
    assert tree_bytes(tmp_path / "data.zarr") == tree_bytes(reference)


def test_the_default_network(tmp_path):
    images, masks = save_pairs(tmp_path, 2)
    report = ingest(images, masks, tmp_path / "data.zarr")
    assert report.features == 472 + 16 + 1
    assert set(report.seconds) == {"decode", "superpixels", "backbone", "pooling", "write"}
    assert all(seconds > 0 for seconds in report.seconds.values())


def test_progress_is_reported(folders, tmp_path):
    told = []
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(progress=told.append))
    images = [one for one in told if one.phase == "images"]
    assert len(images) == 5
    assert (images[0].done, images[-1].done) == (0, 30)
    assert images[-1].rate > 0
    assert images[-1].seconds_left == 0
    assert told[-1].phase == "writing"
    assert told[-1].done == told[-1].total
