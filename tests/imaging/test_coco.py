"""COCO files: polygons and run lengths, one category or several."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as rle

from gpgc_dask import GpgcError, open_dataset
from gpgc_dask.core.errors import PipelineError, UnusableFileError
from gpgc_dask.data.run_lengths import decode
from gpgc_dask.imaging.mask_sources.coco import CocoFile, CocoMask
from gpgc_dask.imaging.photos import Orientation, read_photo
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, RunOptions, ingest
from tests.support.images import draw, save_pairs

H, W = 60, 80
BOX = [[10, 20, 50, 20, 50, 40, 10, 40]]
UPRIGHT = Orientation(H, W, (H, W), None)


def box_mask(x0=10, y0=20, x1=50, y1=40):
    inside = np.zeros((H, W), dtype=np.uint8)
    inside[y0:y1, x0:x1] = 1
    return inside


def compressed(inside):
    found = rle.encode(np.asfortranarray(inside))
    return {"size": found["size"], "counts": found["counts"].decode()}


def uncompressed(inside):
    flat = inside.ravel(order="F")
    changes = np.flatnonzero(np.diff(np.concatenate([[0], flat]))) if flat.any() else []
    bounds = np.concatenate([[0], changes, [flat.size]])
    return {"size": [H, W], "counts": np.diff(bounds).astype(int).tolist()}


@pytest.mark.parametrize(
    "segmentation", [BOX, compressed(box_mask()), uncompressed(box_mask())], ids=str
)
def test_every_kind_of_region(segmentation):
    found = CocoMask(H, W, ((1, segmentation),)).read(UPRIGHT)
    np.testing.assert_array_equal(found, box_mask())


def test_several_regions_and_classes_small_ones_in_front():
    small = compressed(box_mask(12, 22, 20, 30))
    found = CocoMask(H, W, ((1, BOX), (2, small))).read(UPRIGHT)
    assert found[25, 15] == 2
    assert found[25, 40] == 1
    assert found[0, 0] == 0


@pytest.mark.parametrize(
    "segmentation",
    [
        {"size": [H, W]},
        {"size": [H, W + 1], "counts": [0, H * (W + 1)]},
        {"counts": "abc"},
        [["x", "y", 1, 2, 3, 4]],
        [[1, 2, 1e9, 4, 5, 6]],
        {"size": [H, W], "counts": [-5, 10]},
        5,
    ],
    ids=str,
)
def test_regions_that_cannot_be_read(segmentation):
    with pytest.raises(UnusableFileError, match="unreadable segmentation"):
        CocoMask(H, W, ((1, segmentation),)).read(UPRIGHT)


def test_two_points_enclose_nothing():
    assert not CocoMask(H, W, ((1, [[1, 2, 30, 40]]),)).read(UPRIGHT).any()


@pytest.fixture
def coco(tmp_path):
    """Four photos: a horse, a horse and a dog, a dog, nothing."""
    (tmp_path / "images").mkdir()
    for number in range(4):
        Image.fromarray(draw(number, H, W)[0]).save(tmp_path / f"images/{number}.jpg")
    content = {
        "images": [
            {"id": 10 + n, "file_name": f"{n}.jpg", "height": H, "width": W} for n in range(4)
        ],
        "categories": [{"id": 7, "name": "horse"}, {"id": 9, "name": "dog"}],
        "annotations": [
            annotation(10, 7, BOX, 800),
            annotation(11, 7, compressed(box_mask()), 800, iscrowd=1),
            annotation(11, 9, compressed(box_mask(30, 30, 60, 50)), 600),
            annotation(12, 9, BOX, 800),
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    return tmp_path


def annotation(image, category, segmentation, area, iscrowd=0):
    return {
        "image_id": image,
        "category_id": category,
        "segmentation": segmentation,
        "area": area,
        "iscrowd": iscrowd,
    }


def made(folder, *, on_error="raise", **options):
    ingest(
        folder / "images",
        folder / "instances.json",
        folder / "data.zarr",
        recipe=Recipe(backbone="colour", superpixels=60),
        masks_as=MaskOptions(format="coco", **options),
        run=RunOptions(on_error=on_error),
    )
    return open_dataset(folder / "data.zarr")


def find_items(folder, categories):
    options = MaskOptions(format="coco", categories=categories)
    return CocoFile(folder / "images", folder / "instances.json", options).items


def test_one_category(coco):
    found = made(coco, categories=["horse"], with_empty=False)
    assert found["image_name"].values.tolist() == ["0.jpg", "1.jpg"]
    assert found.attrs["classes"] == ["background", "horse"]
    assert found.attrs["class_values"] == [0, 255]
    share = np.average(found["label"], weights=found["pixels"])
    assert share == pytest.approx(800 / (H * W), abs=0.06)


def test_images_without_the_category_are_kept(coco):
    found = made(coco, categories=["horse"])
    assert found.sizes["photo"] == 4
    assert found["flags"].values.tolist() == ["", "", "empty mask", "empty mask"]


def test_several_categories_are_classes(coco):
    found = made(coco, categories=["horse", "dog"])
    assert found.sizes["photo"] == 4
    assert found.attrs["classes"] == ["background", "horse", "dog"]
    assert found.attrs["class_values"] == [0, 1, 2]
    assert set(found["label"].values[found["image"].values == 1]) == {0, 1, 2}


def test_a_photo_that_is_not_there(coco):
    (coco / "images/0.jpg").unlink()
    with pytest.raises(PipelineError, match=r"0\.jpg: image missing"):
        made(coco, categories=["horse"])
    found = made(coco, categories=["horse"], on_error="skip")
    assert found["image_name"].values.tolist() == ["1.jpg", "2.jpg", "3.jpg"]
    assert found["skipped_name"].values.tolist() == ["0.jpg"]


def test_a_photo_of_another_size(coco):
    Image.fromarray(draw(0, H, W + 2)[0]).save(coco / "images/0.jpg")
    with pytest.raises(PipelineError, match=r"0\.jpg: mask is 80×60 pixels but its photo 82×60"):
        made(coco, categories=["horse"])


def test_a_turned_photo_whose_regions_were_drawn_on_the_stored_pixels(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(draw(0, H, W)[0]).save(tmp_path / "a.jpg", exif=exif)
    turned = CocoMask(H, W, ((1, BOX),)).read(read_photo(tmp_path / "a.jpg", 512).orientation)
    np.testing.assert_array_equal(turned, np.rot90(box_mask(), 3))


@pytest.mark.parametrize(
    ("content", "categories", "message"),
    [
        ("{", ["horse"], "not a JSON file"),
        ("[]", ["horse"], "not a COCO instances file"),
        ('{"images": []}', ["horse"], "not a COCO instances file"),
        (None, ["cow"], "no category cow; it has dog, horse"),
        (None, [], r"name the categories .*--category.* dog, horse"),
    ],
)
def test_files_and_categories_that_cannot_be(coco, content, categories, message):
    if content is not None:
        (coco / "instances.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        find_items(coco, categories)


def test_entries_without_what_they_need(coco):
    content = json.loads((coco / "instances.json").read_text())
    del content["annotations"][2]["image_id"]
    (coco / "instances.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"annotations\[2\] has no image_id"):
        find_items(coco, ["horse"])


def test_an_image_listed_twice(coco):
    content = json.loads((coco / "instances.json").read_text())
    content["images"].append(content["images"][0] | {"id": 99})
    (coco / "instances.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"several images of file_name 0\.jpg"):
        find_items(coco, ["horse"])


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (("images", 0), {"id": [1]}),
        (("images", 1), {"height": None}),
        (("annotations", 0), {"category_id": {}}),
        (("categories", 1), {"name": 5}),
    ],
    ids=str,
)
def test_entries_of_the_wrong_type(coco, place, change):
    content = json.loads((coco / "instances.json").read_text())
    content[place[0]][place[1]] |= change
    (coco / "instances.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"{place[0]}\[{place[1]}\] has no {next(iter(change))}"):
        find_items(coco, ["horse"])


def test_odd_entries_that_do_no_harm(coco):
    content = json.loads((coco / "instances.json").read_text())
    content["annotations"][0]["area"] = None
    content["images"][0]["height"] = float(H)
    content["categories"].append({"id": 21, "name": "horse"})
    content["annotations"][3]["category_id"] = 21
    (coco / "instances.json").write_text(json.dumps(content))
    assert made(coco, categories=["horse"], with_empty=False).sizes["photo"] == 3


# -- objects -------------------------------------------------------------------------------


def change(folder, edit):
    content = json.loads((folder / "instances.json").read_text())
    edit(content)
    (folder / "instances.json").write_text(json.dumps(content))


def number_annotations(content):
    for number, one in enumerate(content["annotations"]):
        one["id"] = 100 + number


def test_all_categories_and_objects(coco):
    change(coco, number_annotations)
    change(coco, lambda content: content["categories"].append({"id": 1, "name": "unused"}))
    found = made(coco, categories=["all"])
    assert found.attrs["classes"] == ["background", "horse", "dog"]
    assert found["object_image"].values.tolist() == [0, 1, 1, 2]
    assert found["object_id"].values.tolist() == ["100", "101", "102", "103"]
    assert found["object_class"].values.tolist() == [1, 1, 2, 2]
    assert found["object_crowd"].values.tolist() == [0, 1, 0, 0]
    assert found["object_area"].values == pytest.approx(
        [800 / (H * W), 800 / (H * W), 600 / (H * W), 800 / (H * W)]
    )
    assert found["object_box"].values[2].tolist() == [30, 30, 30, 20]
    # What other objects hide is part of an object.
    for number, inside in enumerate((box_mask(), box_mask(), box_mask(30, 30, 60, 50))):
        size = (int(found["segment_height"][0]), int(found["segment_width"][0]))
        region = decode(str(found["object_region"].values[number]), *size)
        assert region.mean() == pytest.approx(inside.mean(), rel=0.1)


def test_masks_from_files_have_no_objects(tmp_path):
    images, masks = save_pairs(tmp_path, 2)
    ingest(images, masks, tmp_path / "data.zarr", recipe=Recipe(backbone="colour", superpixels=30))
    found = open_dataset(tmp_path / "data.zarr")
    assert found.sizes["object"] == 0
    assert found["object_region"].values.tolist() == []


def test_images_without_objects_are_counted(coco):
    report = ingest(
        coco / "images",
        coco / "instances.json",
        coco / "counted.zarr",
        recipe=Recipe(backbone="colour", superpixels=60),
        masks_as=MaskOptions(format="coco", categories=["horse"]),
    )
    assert (report.images, report.objects, report.without_objects) == (4, 2, 2)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: [one.update(id=5) for one in c["annotations"]], "several annotations of id 5"),
        (lambda c: c["annotations"][0].update(image_id=77), "image_id 77, which is not in its im"),
        (lambda c: c["annotations"][0].update(category_id=5), "category_id 5, which is not in its"),
        (lambda c: c.update(annotations=c["annotations"][2:]), "no annotation of horse"),
        (
            lambda c: c["annotations"][0].update(segmentation=[[1, 2, 3, 4]]),
            r"0\.jpg: an annotation has a polygon of 4 numbers, which needs at least 3 points",
        ),
        (
            lambda c: c["annotations"][1]["segmentation"].update(size=[5, 5]),
            r"1\.jpg: an annotation has run lengths for a size of \[5, 5\], where the image has",
        ),
    ],
)
def test_annotations_that_cannot_be_right_are_reported_before_the_work(coco, edit, message):
    change(coco, edit)
    with pytest.raises(GpgcError, match=message):
        made(coco, categories=["horse"])
    assert not (coco / "data.zarr").exists()
