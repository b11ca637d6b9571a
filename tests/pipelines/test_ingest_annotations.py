"""Datasets made of annotations equal those of the same masks in PNG files."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GPGC, MaskOptions, ingest, open_dataset, rank, update
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.results.selection import write_folder
from tests.support.annotation_files import (
    DOG,
    HORSE,
    LAYOUTS,
    SCENES,
    H,
    W,
    save_photos,
    true_codes,
)
from tests.support.ingesting import QUICK

CATEGORIES = [HORSE, DOG]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Dataset of the masks in PNG files."""
    folder = tmp_path_factory.mktemp("plain")
    images, masks = save_photos(folder / "images"), folder / "masks"
    masks.mkdir()
    for photo in SCENES:
        Image.fromarray(true_codes(photo, CATEGORIES)).save(masks / f"{photo}.png")
    classes = dict(enumerate(["background", *CATEGORIES]))
    options = MaskOptions(classes=classes)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK, masks_as=options)
    return open_dataset(folder / "data.zarr")


@pytest.mark.parametrize(
    "layout", ["YOLO root", "CVAT both", "LabelMe masks", "Label Studio brushes", "VOC root"]
)
def test_datasets_are_those_of_plain_masks(layout, plain, tmp_path):
    place = LAYOUTS[layout](tmp_path)
    options = MaskOptions(categories=CATEGORIES)
    target = tmp_path / "data.zarr"
    report = ingest(place.images, place.masks, target, recipe=QUICK, masks_as=options)
    dataset = open_dataset(target)
    assert dataset.attrs["source"]["format"] == place.format
    assert dataset.attrs["classes"] == plain.attrs["classes"]
    np.testing.assert_array_equal(dataset["label"].values, plain["label"].values)
    np.testing.assert_array_equal(dataset["features"].values, plain["features"].values)
    assert (report.objects, report.without_objects) == (5, 1)
    assert update(target, place.images, place.masks).unchanged == len(SCENES)


def test_selected_masks_are_written_as_png(tmp_path):
    place = LAYOUTS["YOLO root"](tmp_path)
    options = MaskOptions(categories=CATEGORIES)
    ingest(place.images, place.masks, tmp_path / "data.zarr", recipe=QUICK, masks_as=options)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC(rounds=0).fit(dataset)
    model.review(dataset)
    # Annotations have the number of their line: the horse is drawn first but listed last.
    assert set(model.objects_["annotation"]) >= {"a:1", "a:2", "b:1", "d:1", "d:2"}
    folder = write_folder(rank(model.review_), dataset.attrs["source"], tmp_path / "clean")
    masks = DatasetMasks.from_dataset(dataset)
    for number, photo in enumerate(SCENES):
        written = np.asarray(Image.open(folder / f"masks/train/{photo}.png"))
        np.testing.assert_array_equal(written, true_codes(photo, CATEGORIES))
        codes = masks.codes(number, Orientation(H, W, (H, W)))
        np.testing.assert_array_equal(codes, written)


def test_the_root_of_a_dataset_is_enough(run, tmp_path):
    place = LAYOUTS["VOC root"](tmp_path / "voc")
    target, quick = tmp_path / "data.zarr", ("--backbone", "colour", "--superpixels", 20)
    code, _, err = run("ingest", place.images, "-o", target, *quick)
    assert code == 2
    assert "is read as Pascal VOC (--format voc)" in err
    assert "--format voc --category" in err
    assert not target.exists()
    code, out, err = run("ingest", place.images, "-o", target, "--category", "horse", *quick)
    assert code == 0, err
    assert "4 images" in out
    assert open_dataset(target).attrs["classes"] == ["background", "horse"]
