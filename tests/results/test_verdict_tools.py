"""Masks that were corrected in other tools: files that their libraries have written come back.

``tests/support/tool_files`` has the files, and the program that writes them. test_roundtrip_*.py
fit again after such an import.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as rle

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.core.errors import InputError, PipelineError, UnusableFileError
from gpgc_dask.data.verdicts import VerdictLog
from gpgc_dask.imaging.runs import draw_polygons, fill_boxed_runs, read_brush
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.corrected import CorrectedMasks
from gpgc_dask.results.export import export
from gpgc_dask.results.export.runs import boxed_runs, brush_bytes
from gpgc_dask.results.selection import filter_coco, write_folder
from gpgc_dask.results.verdicts import import_verdicts, list_verdicts
from gpgc_dask.storage.location import Location
from tests.support import tool_files
from tests.support.coco_files import write_coco
from tests.support.verdict_files import (
    SHIFTED,
    SMALL,
    make_dataset,
    name,
    save_shifted,
    true_mask,
    write_json,
)

FILES = Path(tool_files.__file__).parent
LABEL_STUDIO = FILES / "label_studio/export.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("verdict-tools")
    make_dataset(place)
    return place


@pytest.fixture
def place(folder, tmp_path):
    return shutil.copytree(folder / "data.zarr", tmp_path / "data.zarr")


@pytest.fixture(scope="module")
def model(folder):
    dataset = open_dataset(folder / "data.zarr")
    fitted = GPGC().fit(dataset)
    fitted.review(dataset)
    return fitted


def corrected(place):
    """{image: corrected mask}."""
    log = VerdictLog(Location.of(place)).read()
    return {one.image: one.correction.mask for one in log if one.correction is not None}


def check_corrected(place):
    masks = corrected(place)
    assert {*masks} == {name(number) for number in SHIFTED}
    for number in SHIFTED:
        np.testing.assert_array_equal(masks[name(number)], true_mask(number))


# -- files of the tools ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("label_studio/export.json", {}, ("label-studio", 3, 0)),
        ("label_studio/png", {"tasks": LABEL_STUDIO}, ("label-studio-png", 3, 0)),
        ("datumaro/masks", {}, ("cvat-masks", 0, 3)),
        ("datumaro/cvat/annotations.xml", {}, ("cvat", 0, 3)),
        ("datumaro/coco/annotations/instances_annotations.json", {}, ("coco", 0, 3)),
    ],
)
def test_corrections_come_back(place, path, options, expected):
    report = import_verdicts(place, FILES / path, **options)
    assert (report.format, report.confirmed, report.undecided) == expected
    assert report.corrected == 3
    check_corrected(place)
    own = open_dataset(place)
    given = open_dataset(place, verdicts=False)
    rows = np.isin(own["image"].values, SHIFTED)
    assert (own["label"].values != given["label"].values)[rows].any()
    assert not (own["label"].values != given["label"].values)[~rows].any()
    assert import_verdicts(place, FILES / path, **options).added == 0
    if report.undecided:
        assert import_verdicts(place, FILES / path, confirm_unchanged=True).confirmed == 3


def test_an_unchanged_export_changes_nothing(place, model, tmp_path):
    export(model, tmp_path / "worst.xml", "cvat", count=6)
    export(model, tmp_path / "scored.json", "coco")
    for file, images in (("worst.xml", 6), ("scored.json", 16)):
        report = import_verdicts(place, tmp_path / file)
        assert (report.added, report.undecided) == (0, images)
    export(model, tmp_path / "tasks.json", "label-studio")
    view = Xml.parse(tmp_path / "tasks.config.xml").getroot()
    choices = view.find("Choices")
    assert choices.get("toName") == view.find("Image").get("name")
    assert [choice.get("value") for choice in choices] == ["confirmed", "rejected"]
    with pytest.raises(InputError, match="has no annotation: it may be the file of tasks"):
        import_verdicts(place, tmp_path / "tasks.json")


# -- run lengths and polygons ----------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.001, 0.5, 1.0]))
def test_regions_are_decoded(seed, share):
    mask = np.random.default_rng(seed).random((30, 41)) < share
    np.testing.assert_array_equal(read_brush(brush_bytes(mask), 30, 41), mask)
    if mask.any():
        np.testing.assert_array_equal(fill_boxed_runs(*boxed_runs(mask), 30, 41), mask)


def test_wrong_regions():
    content = brush_bytes(np.eye(20, dtype=bool))
    for wrong in (content[:-20], [], [300], ["a"]):
        with pytest.raises(UnusableFileError, match="a brush cannot be decoded"):
            read_brush(wrong, 20, 20)
    with pytest.raises(UnusableFileError, match=r"it has 1,600 values, and the photo 2,400"):
        read_brush(content, 20, 30)
    with pytest.raises(UnusableFileError, match="do not fill its box"):
        fill_boxed_runs([3, 4], (0, 0, 4, 4), 9, 9)
    with pytest.raises(UnusableFileError, match="not within the photo"):
        fill_boxed_runs([0, 16], (6, 0, 4, 4), 9, 9)
    with pytest.raises(UnusableFileError, match="at least 3 points"):
        draw_polygons([[0, 0, 1, 1]], 9, 9)
    with pytest.raises(UnusableFileError, match="not within"):
        draw_polygons([[0, 0, 1, 1, float("nan"), 3]], 9, 9)


# -- Label Studio ----------------------------------------------------------------------------------


def tasks_of(*results, image="photo_000.jpg", **annotation):
    own = [{"id": 1, "result": result, "completed_by": 3} | annotation for result in results]
    return [{"id": 4, "data": {"image": f"/data/upload/1/0a1b2c3d-{image}"}, "annotations": own}]


def brush(mask, label="foreground", **more):
    value = {"format": "rle", "rle": brush_bytes(mask), "brushlabels": [label]}
    size = {"original_height": mask.shape[0], "original_width": mask.shape[1]}
    return {"type": "brushlabels", "value": value} | size | more


CHOICE = {"type": "choices", "value": {"choices": ["rejected"]}}


def test_choices_polygons_and_skipped_tasks(place, tmp_path):
    polygon = {
        "type": "polygonlabels",
        "original_height": 60,
        "original_width": 80,
        "value": {"points": [[25, 25], [75, 25], [75, 75]], "polygonlabels": ["Foreground "]},
    }
    confirmed = {"type": "choices", "value": {"choices": ["confirmed"]}}
    content = [
        *tasks_of([CHOICE], image=name(0)),
        *tasks_of([confirmed], image=name(1)),
        *tasks_of([polygon, {"type": "rectanglelabels", "value": {"x": 1}}], image=name(2)),
        *tasks_of([CHOICE], image=name(3), was_cancelled=True),
        *tasks_of([], image=name(4)),
    ]
    report = import_verdicts(place, write_json(tmp_path / "export.json", content))
    assert (report.corrected, report.confirmed, report.rejected) == (2, 1, 1)
    assert "1 rectanglelabels" in report.notes[0]
    assert f"1 annotation without a region count as empty masks: {name(4)}" in report.notes[1]
    masks = corrected(place)
    expected = draw_polygons([[20, 15, 60, 15, 60, 45]], 60, 80)
    np.testing.assert_array_equal(masks[name(2)], expected)
    assert not masks[name(4)].any()
    assert {*list_verdicts(place)["by"]} == {"user 3"}


def test_the_latest_annotation_counts(place, tmp_path):
    content = tasks_of([brush(true_mask(0))], [CHOICE])
    for one, day in zip(content[0]["annotations"], ("02", "01"), strict=True):
        one["updated_at"] = f"2026-11-{day}T10:00:00Z"
    report = import_verdicts(place, write_json(tmp_path / "export.json", content))
    assert (report.confirmed, report.rejected) == (1, 0)
    assert "several annotations" in report.notes[0]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (tasks_of([brush(true_mask(0), "dog")]), r"label 'dog' is no class .*has void, background"),
        (tasks_of([brush(np.zeros((6, 8), bool))]), "mask is 8×6 pixels but its photo 80×60"),
        (tasks_of([brush(true_mask(0), image_rotation=90)]), "rotated in Label Studio"),
        (tasks_of([CHOICE], image="horse.jpg"), r"horse.jpg: the dataset has no image .*task 4"),
    ],
)
def test_wrong_tasks(place, tmp_path, tasks, message):
    with pytest.raises(PipelineError, match=message):
        import_verdicts(place, write_json(tmp_path / "export.json", tasks))
    with pytest.raises(InputError, match="JSON, not JSON-MIN"):
        import_verdicts(place, write_json(tmp_path / "min.json", [{"image": "a.jpg"}]))


def test_pictures_need_the_tasks(place, tmp_path):
    shutil.copytree(FILES / "label_studio/png", tmp_path / "png")
    with pytest.raises(InputError, match=r"--tasks FILE.json"):
        import_verdicts(place, tmp_path / "png")
    shutil.copy(LABEL_STUDIO, tmp_path / "png")
    assert import_verdicts(place, tmp_path / "png").corrected == 3


# -- CVAT ------------------------------------------------------------------------------------------


def test_cvat_tags_polygons_and_boxes(place, model, tmp_path):
    export(model, tmp_path / "worst.xml", "cvat")
    tree = Xml.parse(tmp_path / "worst.xml")
    Xml.SubElement(tree.find("meta"), "dumped").text = "2026-11-09 16:39:31.190+00:00"
    images = {image.get("name"): image for image in tree.iter("image")}
    for number, label in ((0, "confirmed"), (1, "rejected")):
        Xml.SubElement(images[name(number)], "tag", label=label)
    own = images[name(2)]
    own.remove(own.find("mask"))
    Xml.SubElement(own, "polygon", label="foreground", points="20,15;60,15;60,45", z_order="1")
    Xml.SubElement(own, "polygon", label="background", points="20,15;40,15;40,45", z_order="2")
    Xml.SubElement(own, "box", label="foreground", xtl="0", ytl="0", xbr="9", ybr="9")
    for child in list(images[name(3)]):
        images[name(3)].remove(child)
    images[name(4)].remove(images[name(4)].find("mask"))
    tree.write(tmp_path / "worst.xml")
    report = import_verdicts(place, tmp_path / "worst.xml", by="anna")
    assert (report.corrected, report.confirmed, report.rejected) == (2, 1, 1)
    assert report.undecided == 11
    assert "ignored: 1 box" in report.notes[0]
    inside, cut = ([20, 15, 60, 15, 60, 45], [20, 15, 40, 15, 40, 45])
    expected = draw_polygons([inside], 60, 80) & ~draw_polygons([cut], 60, 80)
    masks = corrected(place)
    np.testing.assert_array_equal(masks[name(2)], expected)
    assert not masks[name(4)].any()
    assert {one[:19] for one in list_verdicts(place)["at"]} == {"2026-11-09T16:39:31"}


def test_wrong_files_of_cvat(place, tmp_path):
    path = tmp_path / "a.xml"
    path.write_text("<annotations><image")
    with pytest.raises(InputError, match="not an XML file"):
        import_verdicts(place, path)
    path.write_text("<annotations><track/></annotations>")
    with pytest.raises(InputError, match="export the task in that format"):
        import_verdicts(place, path)
    path.write_text(
        f'<annotations><image name="{name(0)}" width="80" height="60"><mask label="dog" rle="0, 1" '
        'left="0" top="0" width="1" height="1"/></image></annotations>'
    )
    with pytest.raises(PipelineError, match="label 'dog' is no class of the dataset"):
        import_verdicts(place, path)
    masks = shutil.copytree(FILES / "datumaro/masks", tmp_path / "masks")
    (masks / "labelmap.txt").write_text("background:0,0,0::\ndog:250,50,83::\n")
    with pytest.raises(PipelineError, match=r"label 'dog' is no class .*\(6 images"):
        import_verdicts(place, masks)
    (masks / "labelmap.txt").write_text("background:0,0,0::\n")
    with pytest.raises(PipelineError, match=r"colour 250,50,83, not in labelmap.txt"):
        import_verdicts(place, masks)


# -- COCO ------------------------------------------------------------------------------------------


@pytest.fixture
def coco_place(tmp_path):
    images, masks = save_shifted(tmp_path)
    write_coco(images, masks, tmp_path / "coco.json")
    options = MaskOptions(format="coco", categories=["horse"])
    place = tmp_path / "data.zarr"
    ingest(images, tmp_path / "coco.json", place, recipe=SMALL, masks_as=options)
    return place


def test_proposals_count_when_they_are_accepted(coco_place, tmp_path):
    content = json.loads((tmp_path / "coco.json").read_text())
    square = [[0, 0, 9, 0, 9, 9, 0, 9]]
    more = {"image_id": 0, "category_id": 7, "segmentation": square, "area": 81.0}
    cat = {"id": 99, "image_id": 1, "category_id": 8, "segmentation": square}
    content["annotations"] += [{"id": 98, "proposed": True} | more, cat]
    report = import_verdicts(coco_place, write_json(tmp_path / "edited.json", content))
    assert (report.added, report.undecided) == (0, 16)
    assert any("1 annotation still marked as proposed" in note for note in report.notes)
    assert any("1 annotation of other categories" in note for note in report.notes)
    del content["annotations"][-2]["proposed"]
    report = import_verdicts(coco_place, write_json(tmp_path / "edited.json", content))
    assert report.corrected == 1
    expected = true_mask(0) | draw_polygons(square, 60, 80)
    np.testing.assert_array_equal(corrected(coco_place)[name(0)], expected)


def test_unknown_categories_and_images(place, folder, tmp_path):
    write_coco(folder / "images", folder / "masks", tmp_path / "coco.json", "zebra")
    content = json.loads((tmp_path / "coco.json").read_text())
    content["images"][0]["file_name"] = "horse.jpg"
    with pytest.raises(PipelineError) as raised:
        import_verdicts(place, write_json(tmp_path / "coco.json", content))
    text = str(raised.value)
    assert "label 'zebra' is no class of the dataset" in text
    assert "(15 images: photo_001.jpg, photo_002.jpg, photo_003.jpg, …)" in text
    assert "(1 image: horse.jpg)" in text


def test_a_selection_of_a_coco_dataset_has_the_corrected_masks(coco_place, tmp_path):
    content = json.loads((tmp_path / "coco.json").read_text())
    square = [[0, 0, 9, 0, 9, 9, 0, 9]]
    more = {"id": 98, "image_id": 0, "category_id": 7, "segmentation": square}
    content["annotations"].append(more)
    import_verdicts(coco_place, write_json(tmp_path / "edited.json", content))
    dataset = open_dataset(coco_place)
    model = GPGC().fit(dataset)
    review = model.review(dataset)
    source, masks = model.dataset_["source"], CorrectedMasks(model, review)
    folder = write_folder(review, source, tmp_path / "clean", corrected=masks)
    path = filter_coco(source, review["image"], tmp_path / "kept.json", corrected=masks)
    written = json.loads(path.read_text())
    assert json.loads((folder / "annotations.json").read_text()) == written
    own = [one for one in written["annotations"] if one["image_id"] == 0]
    assert [one["category_id"] for one in own] == [7]
    decoded = rle.decode(own[0]["segmentation"]) > 0
    np.testing.assert_array_equal(decoded, true_mask(0) | draw_polygons(square, 60, 80))
    others = [one for one in written["annotations"] if one["image_id"] != 0]
    assert others == [one for one in content["annotations"] if one["image_id"] != 0]
