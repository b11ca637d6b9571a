"""Predictions with the backbone that a model was fitted with, and only with this one."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from gpgc_dask import GP, open_dataset
from gpgc_dask.imaging.backbones import find_backbone, restore_backbone
from gpgc_dask.imaging.backbones.onnx import Lite0
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.pipelines.ingest import Recipe, RunOptions, ingest, work
from gpgc_dask.pipelines.predict import predict_masks
from tests.imaging.test_backbones import onnx_file
from tests.pipelines.test_predict import save_photos
from tests.support.images import save_pair, tree_bytes
from tests.support.ingesting import CrashError, crash_after

pytestmark = pytest.mark.newest


@pytest.fixture
def networked(tmp_path):
    """(folder, model with an ONNX backbone)."""
    (tmp_path / "then").mkdir()
    onnx_file(tmp_path / "then/net.onnx")
    for seed in range(3):
        save_pair(tmp_path, f"{seed}", seed)
    settings = {"side": 64, "mean": (100, 110, 120), "std": (50, 60, 70)}
    net = find_backbone(str(tmp_path / "then/net.onnx"), layers=["relu"], **settings)
    ingest(
        tmp_path / "images",
        tmp_path / "masks",
        tmp_path / "data.zarr",
        recipe=Recipe(backbone=net, superpixels=20),
    )
    return tmp_path, GP().fit(open_dataset(tmp_path / "data.zarr"))


def test_a_network_that_moves(networked):
    folder, model = networked
    images, dataset = folder / "images", open_dataset(folder / "data.zarr")
    write_masks(dataset, model.predict(dataset), folder / "expected")
    predict_masks(model, images, folder / "at once")
    shutil.move(folder / "then/net.onnx", folder / "moved.onnx")
    with pytest.raises(FileNotFoundError, match=r"not at .*then/net.onnx: .*--backbone FILE.onnx"):
        predict_masks(model, images, folder / "x")
    with pytest.raises(FileNotFoundError, match=r"not at .*nowhere.onnx: .*--backbone FILE.onnx"):
        predict_masks(model, images, folder / "x", backbone=str(folder / "nowhere.onnx"))
    predict_masks(model, images, folder / "moved", backbone=str(folder / "moved.onnx"))
    for target in ("at once", "moved"):
        assert tree_bytes(folder / target) == tree_bytes(folder / "expected")
    del model.dataset_["backbone"]["path"]
    with pytest.raises(ValueError, match=r"not recorded where the network net.onnx is.*--backbone"):
        predict_masks(model, images, folder / "x")


def test_a_network_that_changes(networked):
    folder, model = networked
    onnx_file(folder / "then/net.onnx", 9)
    with pytest.raises(ValueError, match=r"then/net.onnx has other weights than at ingest"):
        predict_masks(model, folder / "images", folder / "x")
    assert not (folder / "x").exists()


def test_an_ingest_resumes_with_a_network_that_moved(networked, monkeypatch):
    folder, _ = networked
    given = [folder / "images", folder / "masks"]
    there, here = str(folder / "then/net.onnx"), str(folder / "now/net.onnx")

    def recipe(path):
        return Recipe(find_backbone(path, layers=["relu"], side=64), superpixels=20)

    again = RunOptions(resume=True)
    with monkeypatch.context() as patch:
        crash_after(patch, work.Assembly, "begin", 0)
        with pytest.raises(CrashError):
            ingest(*given, folder / "x.zarr", recipe=recipe(there))
    os.renames(there, here)
    report = ingest(*given, folder / "x.zarr", recipe=recipe(here), run=again)
    assert report.resumed == 3
    assert open_dataset(folder / "x.zarr").attrs["backbone"]["path"] == here
    os.renames(here, there)
    assert ingest(*given, folder / "x.zarr", recipe=recipe(there), run=again).images == 3


def test_python_functions(tmp_path):
    images = save_photos(tmp_path)

    def mine(image):
        return [np.moveaxis(image, -1, 0) / 255]

    masks = images.parent / "masks"
    ingest(images, masks, tmp_path / "data.zarr", recipe=Recipe(backbone=mine, superpixels=20))
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GP().fit(dataset)
    for given in (None, "net.onnx"):
        with pytest.raises(ValueError, match=r"mine, .*the program cannot.*backbone="):
            predict_masks(model, images, tmp_path / "out", backbone=given)
    predict_masks(model, images, tmp_path / "out", backbone=mine)
    write_masks(dataset, model.predict(dataset), tmp_path / "expected")
    assert tree_bytes(tmp_path / "out") == tree_bytes(tmp_path / "expected")
    wrong = {"backbone": lambda image: [image.transpose(2, 0, 1)[:2]]}
    with pytest.raises(ValueError, match="gives 19 features"):
        predict_masks(model, images, tmp_path / "x", **wrong)
    with pytest.raises(
        ValueError, match="features at ingest are of another backbone: name was Python"
    ):
        predict_masks(model, images, tmp_path / "x", backbone=find_backbone("colour"))


def test_backbones_are_made_again(tmp_path):
    onnx_file(tmp_path / "net.onnx")
    net = find_backbone(str(tmp_path / "net.onnx"), layers=["relu"], side=96, mean=(1.0, 2.0, 3.0))
    for made in (find_backbone("colour"), find_backbone("lite0"), Lite0(256), net):
        stored = json.loads(json.dumps(made.provenance()))
        assert restore_backbone(stored) == made
        assert restore_backbone(stored, made) == made
        assert restore_backbone(stored | {"onnxruntime": "0.1"}) == made
    with pytest.raises(ValueError, match="lite0 has other weights than at ingest"):
        restore_backbone(Lite0().provenance() | {"weights_sha256": "0" * 64})
    with pytest.raises(ValueError, match="another backbone: side was 256, not 512"):
        restore_backbone(Lite0(256).provenance(), Lite0())
    with pytest.raises(ValueError, match="has other weights"):
        restore_backbone(net.provenance(), lambda image: [image])
