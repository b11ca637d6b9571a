"""Pages of kinds of data: each starts with a folder of small made data and ends with the report."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpgc_dask import open_dataset
from tests.project.test_documents import ROOT, near, run_blocks
from tests.support.kinds import KINDS

__all__ = ["near"]

pytestmark = pytest.mark.newest


def check_street_scenes(place, names):
    assert "iou:car" in (place / "street.csv").read_text().splitlines()[0]
    classes = {"Sky", "Road", "Car"}
    assert {*open_dataset(place / "camvid.zarr").attrs["classes"]} == classes
    assert len({*open_dataset(place / "street.zarr")["group"].values.tolist()}) == 4
    assert (place / "street.html").exists()


def check_medical(place, names):
    assert [*names["volumes"].count()] == [4, 4, 4]
    assert names["slices"]["image"].min() == "liver_0.nii.gz/0001"
    assert (place / "liver/drawn/liver_9.nii.gz/0002.png").exists()
    assert (place / "liver.html").exists()


def check_microscopy(place, names):
    dataset = open_dataset(place / "cells.zarr")
    assert list(dataset.attrs["classes"]) == ["background", "foreground"]
    assert 250 < dataset.attrs["recipe"]["photos"]["levels"][1] < 4095
    assert (place / "cells.html").exists()


def check_aerial(place, names):
    scenes = (place / "scenes.csv").read_text().splitlines()
    assert {line.split(",")[1] for line in scenes} == {"scene", "site_0.tif", "site_1.tif"}
    mask = np.asarray(Image.open(place / "aerial/masks/site_1.tif")) > 0
    drawn = np.asarray(Image.open(place / "aerial/drawn/site_1.png")) > 0
    assert np.mean(mask == drawn) > 0.9
    assert (place / "aerial.html").exists()


def check_coco(place, names):
    assert (place / "annotations.csv").read_text().startswith("rank,annotation,image,class")
    assert len(json.loads((place / "clean.json").read_text())["images"]) == 9
    assert (place / "coco.html").exists()


def check_crowd(place, names):
    people = pd.read_csv(place / "people.csv")
    assert people["annotator"].iloc[0] == "carl"
    assert len([*(place / "agreed").glob("*.png")]) == 6
    assert (place / "crowd.html").exists()


CHECKS = {
    "aerial": check_aerial,
    "coco": check_coco,
    "crowd": check_crowd,
    "medical": check_medical,
    "microscopy": check_microscopy,
    "street-scenes": check_street_scenes,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_page_runs(kind, tmp_path, monkeypatch, near, capsys):
    if kind == "medical":
        pytest.importorskip("nibabel")
    KINDS[kind](tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = run_blocks(ROOT / "docs/how-to" / f"{kind}.md", capsys)
    CHECKS[kind](tmp_path, names)


def test_every_page_is_run():
    assert {*CHECKS} == {*KINDS}
    for kind in KINDS:
        page = (ROOT / "docs/how-to" / f"{kind}.md").read_text()
        assert "gpgc report" in page.partition("## Rank")[2]
