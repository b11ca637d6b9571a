"""Exports read by the tools they are for, where those are installed.

They are too large, and too choosy about versions, to be among the tests' own needs. By hand, in
an environment each: ``pip install ".[test]" TOOL`` and ``pytest`` of this file, where TOOL is
label-studio-sdk, datumaro, or fiftyone with mongomock (in place of its database) and
importlib-metadata<8 (which it needs and does not declare).
"""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from gpgc_dask.results.export import export
from tests.support.exporting import VOID, make_job

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("tools"))


def test_label_studio_takes_the_tasks(job, tmp_path):
    brush = pytest.importorskip("label_studio_sdk.converter.brush")
    from label_studio_sdk.label_interface import LabelInterface

    export(job.model, tmp_path / "tasks.json", "label-studio", dataset=job.dataset)
    interface = LabelInterface((tmp_path / "tasks.config.xml").read_text())
    interface.validate()
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == 13
    for task in tasks:
        assert interface.validate_task({"data": task["data"]})
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction)
        given = job.given(task["data"]["name"])
        for region in task["predictions"][-1]["result"]:
            content = region["value"]["rle"]
            inside = given == {"foreground": 255, "void": VOID}[region["value"]["brushlabels"][0]]
            found = brush.decode_rle(content).reshape(*given.shape, 4)
            np.testing.assert_array_equal(found, np.repeat(255 * inside[..., None], 4, axis=2))
            own = brush.mask2rle(255 * inside.astype(np.uint8))
            assert content == own[: len(content)]
            assert not any(own[len(content) :])


def test_datumaro_reads_what_is_for_cvat(job, tmp_path):
    datumaro = pytest.importorskip("datumaro")

    export(job.model, tmp_path / "annotations.xml", "cvat")
    shutil.copytree(job.folder / "photos", tmp_path / "images")
    names = []
    for item in datumaro.Dataset.import_from(str(tmp_path), "cvat"):
        given, drawn = job.given(f"{item.id}.jpg"), 0
        for one in item.annotations:
            if one.type == datumaro.AnnotationType.mask:
                drawn += one.image * (255, VOID)[one.label]
            else:
                assert one.attributes["rank"] == str(item.attributes["frame"] + 1)
        np.testing.assert_array_equal(np.broadcast_to(drawn, given.shape), given)
        names.append(f"{item.id}.jpg")
    assert names == [os.path.relpath(path, job.folder / "photos") for path in _photos(tmp_path)]


def _photos(folder):
    return (folder / "annotations.photos.txt").read_text().splitlines()


@pytest.fixture
def fiftyone(monkeypatch):
    """The real one, with a stand-in for the MongoDB server that it would start."""
    mongomock = pytest.importorskip("mongomock")
    pymongo = pytest.importorskip("pymongo")
    connection = pytest.importorskip("mongoengine.connection")
    store = mongomock.store.ServerStore()

    class Client(mongomock.MongoClient):
        _closed = False

        def __init__(self, *_, **__):
            super().__init__(_store=store)

        def close(self):
            pass

    monkeypatch.setattr(pymongo, "MongoClient", Client)
    monkeypatch.setattr(connection, "MongoClient", Client)
    monkeypatch.setenv("FIFTYONE_DATABASE_URI", "mongodb://localhost:27017")
    monkeypatch.setenv("FIFTYONE_DATABASE_VALIDATION", "false")
    monkeypatch.setenv("FIFTYONE_DO_NOT_TRACK", "true")
    return pytest.importorskip("fiftyone")


def test_fiftyone_opens_the_dataset(job, tmp_path, fiftyone):
    export(job.model, tmp_path / "horses.json", "fiftyone", dataset=job.dataset)
    dataset = fiftyone.Dataset.from_json(str(tmp_path / "horses.json"))
    assert len(dataset) == 13
    assert dataset.default_mask_targets == {1: "foreground", 255: "void"}
    for number, sample in enumerate(dataset, start=1):
        given, mask = job.given(sample.name), sample.ground_truth.get_mask()
        np.testing.assert_array_equal(mask == 1, given == 255)
        np.testing.assert_array_equal(mask == 255, given == VOID)
        assert sample.prediction.get_mask().shape == given.shape
        assert sample.rank == number
        assert sample.filepath == str(job.folder / "photos" / sample.name)
    suspects = [sample.name for sample in dataset.match_tags("suspect").sort_by("rank")]
    assert suspects == ["photo_003.jpg", "photo_000.jpg", "photo_001.jpg"]
