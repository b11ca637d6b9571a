"""A COCO file with scores and proposed annotations, as pycocotools reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from gpgc_dask import GPGC, GpgcError, load, open_dataset
from gpgc_dask.cli import main
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.export import export
from tests.support.coco_files import write_coco
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Fourteen photos, two of them without an annotation, and a model."""
    folder = tmp_path_factory.mktemp("coco")
    images, masks = save_pairs(folder, 14)
    write_coco(images, masks, folder / "coco.json")
    content = json.loads((folder / "coco.json").read_text())
    del content["annotations"][3], content["annotations"][7]
    (folder / "coco.json").write_text(json.dumps(content))
    options = MaskOptions(format="coco", categories=["horse"])
    ingest(images, folder / "coco.json", folder / "coco.zarr", recipe=QUICK, masks_as=options)
    dataset = open_dataset(folder / "coco.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    model.save(folder / "model.zarr")
    return folder


def test_scores_and_proposals(job):
    model = load(job / "model.zarr")
    report = export(model, job / "scored.json", "coco")
    assert (report.images, report.of) == (14, 14)
    coco = COCO(job / "scored.json")
    entries = coco.loadAnns(coco.getAnnIds())
    given = [one for one in entries if not one.get("proposed")]
    source = json.loads((job / "coco.json").read_text())
    assert [one["id"] for one in given] == [one["id"] for one in source["annotations"]]
    assert [one["segmentation"] for one in given] == [
        one["segmentation"] for one in source["annotations"]
    ]
    assert all(0 <= one["score"] <= 1 for one in given)
    proposed = [one for one in entries if one.get("proposed")]
    missing = model.objects_[model.objects_["kind"] == "missing"]
    assert 0 < len(proposed) <= len(missing)
    for one in proposed:
        assert one["iscrowd"] == 0
        assert one["category_id"] == 7
        drawn = coco.annToMask(one)
        assert drawn.sum() == pytest.approx(one["area"], rel=0.3, abs=20)
        x, y, width, height = one["bbox"]
        rows, columns = np.nonzero(drawn)
        assert x - 2 <= columns.min() <= columns.max() <= x + width + 2
        assert y - 2 <= rows.min() <= rows.max() <= y + height + 2
    assert len({one["id"] for one in entries}) == len(entries)


def test_some_images_alone(job):
    export(load(job / "model.zarr"), job / "worst.json", "coco", count=3)
    content = json.loads((job / "worst.json").read_text())
    assert len(content["images"]) == 3
    own = {image["id"] for image in content["images"]}
    assert {one["image_id"] for one in content["annotations"]} <= own


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    assert ended.value.code == 0


def test_the_list_of_objects(job, capsys):
    out = job / "objects.csv"
    run("rank", job / "model.zarr", "--objects", "-o", out)
    lines = out.read_text().splitlines()
    assert lines[0] == "rank,annotation,image,class,kind,score,x,y,width,height"
    assert sum(",given," in line for line in lines) == 12
    capsys.readouterr()
    run("rank", job / "model.zarr", "--objects", "--json")
    records = json.loads(capsys.readouterr().out)
    assert len(records) == len(lines) - 1
    assert {"polygon", "given_class", "area", "judged"} <= records[0].keys()


def test_a_model_without_a_review_has_no_objects(job):
    model = GPGC().fit(open_dataset(job / "coco.zarr"))
    assert model.objects_table is None
    with pytest.raises(GpgcError, match="has not reviewed the objects"):
        _ = model.objects_


def test_masks_from_files(tmp_path):
    images, masks = save_pairs(tmp_path, 12)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    export(model, tmp_path / "scored.json", "coco")
    coco = COCO(tmp_path / "scored.json")
    assert [one["name"] for one in coco.loadCats(coco.getCatIds())] == ["foreground"]
    annotations = coco.loadAnns(coco.getAnnIds())
    given = [one for one in annotations if not one.get("proposed")]
    assert len(given) == 12
    for one in given:
        (image,) = coco.loadImgs([one["image_id"]])
        mask = np.asarray(Image.open(masks / f"{Path(image['file_name']).stem}.png"))
        np.testing.assert_array_equal(coco.annToMask(one), mask > 0)
