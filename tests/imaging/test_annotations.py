"""Annotations of all formats: each layout is read as the same masks in plain PNG files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GpgcError, MaskOptions
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.run_lengths import decode
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, ObjectMask, open_source
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.photos import Orientation
from tests.support import annotation_files as files
from tests.support.annotation_files import DOG, HORSE, LAYOUTS, SCENES, H, W

UPRIGHT = Orientation(H, W, (H, W), None)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """{layout: where it was written}; each is written once."""
    done = {}

    def write(layout):
        if layout not in done:
            done[layout] = LAYOUTS[layout](tmp_path_factory.mktemp("layout"))
        return done[layout]

    return write


def stem(item):
    return Path(item.pair.name).stem


def plain(folder, categories, *, hidden=False):
    """The source of the same masks in PNG files."""
    images, masks = files.save_photos(folder / "images"), folder / "masks"
    masks.mkdir()
    for photo in SCENES:
        Image.fromarray(files.true_codes(photo, categories, hidden=hidden)).save(
            masks / f"{photo}.png"
        )
    classes = dict(enumerate(["background", *categories]))
    return open_source(images, masks, MaskOptions(classes=classes))


@pytest.mark.parametrize("chosen", [[HORSE], [HORSE, DOG], ["all"]], ids="+".join)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_recognised_and_read_as_plain_masks(layout, chosen, written, tmp_path):
    if layout == "COCO panoptic" and chosen == ["all"]:
        pytest.skip("has no background: see below")
    place = written(layout)
    source = open_source(place.images, place.masks, MaskOptions(categories=chosen))
    assert (source.options.format, source.problems) == (place.format, [])
    pictures = place.format in ("coco-panoptic", "voc")
    categories = [name for name in source.mask_format.names if name != "background"]
    assert sorted(categories) == sorted(chosen if chosen != ["all"] else [HORSE, DOG])
    expected = plain(tmp_path, categories, hidden=pictures)
    assert [stem(item) for item in source.items] == [stem(item) for item in expected.items]
    for item, other in zip(source.items, expected.items, strict=True):
        codes = item.mask.read(UPRIGHT)
        known = codes != VOID
        assert known.mean() >= 0.98
        assert known.all() or pictures
        np.testing.assert_array_equal(codes[known], other.mask.read(UPRIGHT)[known])
        again = MASK_SOURCES[place.format].restore(
            source.provenance(), [item.pair.name], [item.pair.mask]
        )
        np.testing.assert_array_equal(again[0].read(UPRIGHT), codes)


OBJECTS = [name for name in LAYOUTS if name not in ("VOC without objects",)]


@pytest.mark.parametrize("layout", OBJECTS)
def test_objects_are_those_of_the_scenes(layout, written):
    place = written(layout)
    source = open_source(place.images, place.masks, MaskOptions(categories=[HORSE, DOG]))
    seen = set()
    for item in source.items:
        assert isinstance(item.mask, ObjectMask)
        objects = item.mask.read_objects(UPRIGHT, H, W)
        seen |= {one.id for one in objects}
        boxes = sorted((one.code, one.box) for one in objects)
        scene = [
            ([HORSE, DOG].index(label) + 1, (left, top, right - left, bottom - top))
            for label, (left, top, right, bottom) in SCENES[stem(item)]
        ]
        if place.format in ("coco-panoptic", "voc"):  # void cuts nothing off the boxes of "d"
            assert [code for code, _ in boxes] == sorted(code for code, _ in scene)
        else:
            assert boxes == sorted(scene)
        for one in objects:
            assert decode(one.counts, H, W).mean() == pytest.approx(one.area)
    assert len(seen) == sum(len(objects) for objects in SCENES.values())


def test_panoptic_without_background(written):
    """If all categories are chosen, no pixel is background, and unlabelled ones are void."""
    place = written("COCO panoptic")
    source = open_source(place.images, place.masks, MaskOptions(categories=["all"]))
    assert source.mask_format.names == (HORSE, DOG, "grass")
    codes = source.items[0].mask.read(UPRIGHT)
    true = files.true_codes("a", [HORSE, DOG])
    np.testing.assert_array_equal(codes[:, :-1], np.where(true == 0, 2, true - 1)[:, :-1])
    assert (codes[:, -1] == VOID).all()


def test_overlaps_of_formats_without_an_order_are_drawn_large_first(written):
    place = written("YOLO root")
    text = (place.masks / "labels/train/a.txt").read_text()
    assert text.startswith("0")  # the small dog is first in the file
    source = open_source(place.images, place.masks, MaskOptions(categories=["all"]))
    assert (source.items[0].mask.read(UPRIGHT)[25, 25]) == 1


def test_images_without_the_categories(written):
    for layout in ("YOLO root", "VOC root", "CVAT masks", "COCO panoptic"):
        place = written(layout)
        options = MaskOptions(categories=[HORSE], with_empty=False)
        source = open_source(place.images, place.masks, options)
        assert [stem(item) for item in source.items] == ["a", "d"]


# -- files that cannot be used ---------------------------------------------------------------------


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_text(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def value(content):
    return content[0]["annotations"][0]["result"][0]["value"]


WRONG = [
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("0 .5 .5 .2 .2\n"),
     r"a\.txt line 1 is a box .*not a polygon"),
    ("YOLO root", lambda p: [(p / f"labels/train/{n}.txt").write_text("0 .5 .5 .2 .2\n")
                             for n in "abd"], "has boxes, not outlines"),
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("0 .1 .1\n"),
     "has 1 point and needs at least 3"),
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("0 1 2 3 4 5 6 7\n"),
     "7 coordinates: points need two each"),
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("7 .1 .1 .2 .1 .2 .2\n"),
     "has class 7, and the names are those of classes 0 to 1"),
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("0 10 10 20 10 20 20\n"),
     "a coordinate is 10, outside of 0 … 1.*not pixels"),
    ("YOLO root", lambda p: (p / "labels/train/a.txt").write_text("horse 1 2 3 4 5 6\n"),
     "a number is 'horse', not a number"),
    ("YOLO root", lambda p: (p / "data.yaml").write_text("names: [a, b"), "not a YAML file"),
    ("YOLO root", lambda p: (p / "data.yaml").write_text("names: 5"), "has no list of names"),
    ("YOLO root", lambda p: (p / "images/train/a.jpg").unlink(), "a.txt: image missing"),
    ("VOC root", lambda p: (p / "JPEGImages/a.jpg").unlink(), "a: image missing"),
    ("VOC folders and lists", lambda p: (p / "SegmentationClass/b.png").unlink(),
     r"b: mask missing: there is no SegmentationClass/b\.png"),
    ("VOC root", lambda p: Image.fromarray(np.full((H, W), 77, np.uint8)).save(
        p / "SegmentationClass/a.png"), "has the value 77, and the classes are 0 to 20"),
    ("VOC root", lambda p: (p / "SegmentationClass/a.png").write_bytes(b"no picture"),
     r"SegmentationClass/a\.png: not an image"),
    ("CVAT masks 1.1, labelmap", lambda p: edit_text(p / "labelmap.txt", "dog:9", "dog:8"),
     "the colour 9,200,30, which is of no class"),
    ("CVAT masks 1.1, labelmap", lambda p: edit_text(p / "labelmap.txt", "dog:9,200", "dog:9"),
     r"labelmap\.txt: line 3 is not of the form label:red,green,blue::"),
    ("CVAT polygons", lambda p: edit_text(p, "</annotations>", ""), "is not an XML file"),
    ("CVAT polygons", lambda p: edit_text(p, 'label="dog"', ""), "<polygon> has no label"),
    ("CVAT polygons", lambda p: edit_text(p, ";50.00,40.00;10.00,40.00", ""),
     "has 2 points and needs at least 3"),
    ("CVAT masks", lambda p: edit_text(p, 'rle="0, ', 'rle="1, '), "do not fill its box"),
    ("CVAT masks", lambda p: edit_text(p, 'left="10"', 'left="70"'), "is not within the photo"),
    ("CVAT polygons", lambda p: edit_text(p, "b.jpg", "a.jpg"), "are annotations of one photo"),
    ("CVAT polygons", lambda p: edit_text(p, "project/b.jpg", "q.jpg"), "q.jpg: image missing"),
    ("CVAT polygons", lambda p: edit_text(p, "<polygon", '<box label="cat" />\n<polygon'), None),
    ("CVAT polygons", lambda p: edit_text(p, 'name="project/c.jpg" width="80" height="60" />',
                                          'name="c.jpg" width="80" height="60"><box label="dog" '
                                          'xtl="1" ytl="1" xbr="9" ybr="9"/></image>'),
     r"c\.jpg: dog is marked there without an outline \(1 box\)"),
    ("LabelMe polygons", lambda p: edit_json(p / "a.json", lambda c: c.pop("shapes")),
     "a.json: it is not a file of LabelMe"),
    ("LabelMe polygons", lambda p: (p / "a.json").write_text("{"), "a.json is not a JSON file"),
    ("LabelMe polygons", lambda p: edit_json(
        p / "a.json", lambda c: c["shapes"][0].update(points=[[1, 2], [3, 4]])),
     "a.jpg: a:1: a polygon has 2 points"),
    ("LabelMe masks", lambda p: edit_json(
        p / "a.json", lambda c: c["shapes"][0].update(points=[[1, 2], [3, 4]])),
     "a mask is 40×20 pixels, and its points enclose 3×3"),
    ("LabelMe polygons", lambda p: edit_json(
        p / "b.json", lambda c: c["shapes"][0].update(shape_type="spline")),
     "unknown type 'spline'"),
    ("LabelMe polygons", lambda p: edit_json(p / "b.json", lambda c: c.update(imagePath="a.jpg")),
     "are annotations of one photo"),
    ("LabelMe polygons", lambda p: edit_json(
        p / "a.json", lambda c: c["shapes"][0].update(points=[[900, 1], [950, 1], [950, 9]])),
     "completely outside of the photo of 80×60"),
    ("Label Studio polygons", lambda p: edit_json(p, lambda c: value(c).update(points=[[1, 2]])),
     "has 1 point and needs"),
    ("Label Studio polygons", lambda p: edit_json(
        p, lambda c: value(c).update(points=[[1, 2], [800, 9], [9, 9]])), "coordinate is 800"),
    ("Label Studio polygons", lambda p: edit_json(p, lambda c: value(c).pop("polygonlabels")),
     "region a0 has no label"),
    ("Label Studio polygons", lambda p: edit_json(
        p, lambda c: c[0]["annotations"][0]["result"][1].update(id="a0")), "several regions have"),
    ("Label Studio brushes", lambda p: edit_json(
        p, lambda c: [one.update(original_width=90) for one in c[0]["annotations"][0]["result"]]),
     "a brush cannot be decoded"),
    ("Label Studio polygons", lambda p: p.write_text('[{"image": "a.jpg"}]'), "choose JSON, not"),
    ("COCO panoptic", lambda p: edit_json(
        p, lambda c: c["annotations"][0]["segments_info"][1].update(id=70_000)),
     "several segments have the id 70000"),
    ("COCO panoptic", lambda p: edit_json(
        p, lambda c: c["annotations"][0]["segments_info"][1].update(category_id=5)),
     "the unknown category 5"),
    ("COCO panoptic", lambda p: (p.parent / "panoptic/b.png").unlink(), "b.jpg: mask missing"),
    ("COCO run lengths", lambda p: edit_json(
        p, lambda c: c["annotations"][0]["segmentation"]["counts"].pop()), "wrong run lengths"),
    ("COCO compressed run lengths", lambda p: edit_json(
        p, lambda c: c["annotations"][0]["segmentation"].update(counts="1")), "wrong run lengths"),
    ("COCO polygons", lambda p: edit_json(
        p, lambda c: c["annotations"][0].update(segmentation=[[900, 1, 950, 1, 950, 9]])),
     "completely outside of the image of 80×60"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "edit", "message"), WRONG)
def test_wrong_files_are_reported_before_any_work(layout, edit, message, tmp_path):
    place = LAYOUTS[layout](tmp_path)
    edit(place.masks)
    options = MaskOptions(format=place.format, categories=[HORSE, DOG])
    try:
        problems = open_source(place.images, place.masks, options).problems
        found = [f"{one.name}: {one.reason}" for one in problems]
    except GpgcError as error:
        found = [str(error)]
    if message is None:
        assert not found
    else:
        assert re.search(message, found[0]), found
        assert not any("\n" in text for text in found)


@pytest.mark.parametrize(
    ("layout", "chosen", "message"),
    [
        ("YOLO root", [], r"gpgc ingest \S+ \S+ --format yolo --category dog .*has dog, horse"),
        ("VOC root", [], r"--format voc --category dog -o DATA.zarr \(or --category all\)"),
        ("CVAT masks", ["cow"], "has no category cow; it has dog, horse"),
        ("VOC root", ["cow"], "has no annotation of cow"),
        ("YOLO root", [DOG, DOG], "named twice"),
    ],
)
def test_categories_that_cannot_be(layout, chosen, message, written):
    place = written(layout)
    with pytest.raises(InputError, match=message):
        open_source(place.images, place.masks, MaskOptions(categories=chosen))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("masks.zip", b"PK", "is an archive: extract it"),
        ("notes.doc", b"text", "neither a folder of masks nor a file of a known format"),
        ("missing.json", None, "does not exist"),
    ],
)
def test_files_of_no_format(name, content, message, tmp_path):
    images = files.save_photos(tmp_path / "images")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GpgcError, match=message):
        open_source(images, tmp_path / name)


@pytest.mark.parametrize("layout", ["YOLO root", "VOC root", "LabelMe polygons"])
def test_the_format_masks_is_corrected(layout, written, tmp_path):
    place = written(layout)
    images = files.save_photos(tmp_path / "other")
    with pytest.raises(InputError, match=rf"read it with .*--format {place.format}"):
        open_source(images, place.masks, MaskOptions(format="masks"))


@pytest.mark.parametrize(
    ("layout", "removed", "message"),
    [
        ("YOLO root", "data.yaml", "has no names of the classes: put the data.yaml"),
        (
            "VOC root",
            "SegmentationClass",
            "has no folder SegmentationClass: name the root of a VOC",
        ),
    ],
)
def test_incomplete_folders_are_recognised(layout, removed, message, tmp_path):
    """They are not taken for folders of masks, of which every photo lacks one."""
    place = LAYOUTS[layout](tmp_path)
    (tmp_path / removed).rename(tmp_path / "moved")
    with pytest.raises(InputError, match=message):
        open_source(place.images, place.masks)


def test_folders_of_masks_stay_folders_of_masks(tmp_path, written):
    source = plain(tmp_path, [HORSE, DOG])
    assert source.options.format == "masks"
    (tmp_path / "masks/notes.json").write_text("{}")
    options = MaskOptions(classes={0: "a", 1: "b", 2: "c"})
    assert open_source(source.images, source.masks, options).options.format == "masks"
    voc = written("VOC root").masks
    options = MaskOptions(foreground=[13], void=[255])
    opened = open_source(voc / "JPEGImages", voc / "SegmentationClass", options)
    assert opened.options.format == "masks"
    assert len(opened.items) == len(SCENES)
