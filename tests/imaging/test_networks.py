"""Networks of users: transformers, the Hugging Face hub, timm, modules and maps of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto

from gpgc_dask.imaging.backbones import find_backbone, restore_backbone
from gpgc_dask.imaging.backbones.devices import DEVICES, _works
from gpgc_dask.imaging.backbones.onnx import OnnxFile
from tests.support.images import draw
from tests.support.networks import PATCH, WIDTH, save_vit, vit_map

PHOTO, _ = draw(0, 60, 80)
EXACT = {"rtol": 0, "atol": 1e-5}


# -- transformers as ONNX files ----------------------------------------------------------------


def test_tokens_are_folded_to_maps(tmp_path):
    """Class and register tokens are dropped, and input sides are multiples of the patch."""
    path = save_vit(tmp_path / "vit.onnx")
    backbone = find_backbone(str(path), side=100)
    assert backbone.layers == ("last_hidden_state",)
    (values,) = backbone(PHOTO)
    assert values.shape == (WIDTH, 5, 7)
    np.testing.assert_allclose(values, vit_map(PHOTO, 100), **EXACT)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("size", [("h", "w"), (42, 70)])
def test_inputs_of_transformers(tmp_path, last, kind, size):
    path = save_vit(tmp_path / "vit.onnx", last=last, kind=kind, size=size)
    (values,) = find_backbone(str(path), side=100)(PHOTO)
    dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32
    fixed = size if isinstance(size[0], int) else None
    np.testing.assert_allclose(values, vit_map(PHOTO, 100, size=fixed, dtype=dtype), **EXACT)


def test_fixed_positions_fix_the_size(tmp_path):
    path = save_vit(tmp_path / "vit.onnx", grid=4)
    (values,) = find_backbone(str(path), side=100)(PHOTO)
    expected = vit_map(PHOTO, 100, size=(4 * PATCH, 4 * PATCH), positions=1.0)
    np.testing.assert_allclose(values, expected, **EXACT)


def test_layers_of_transformers(tmp_path):
    path = save_vit(tmp_path / "vit.onnx")
    maps, tokens = find_backbone(str(path), side=100, layers=["maps", "tokens"])(PHOTO)
    np.testing.assert_allclose(maps, tokens, **EXACT)
    assert "pooled" in find_backbone(str(path), side=100).other_layers()
    with pytest.raises(ValueError, match=r"pooled .* has shape \(1, 12\).*before the global pool"):
        find_backbone(str(path), layers=["pooled"])
    with pytest.raises(ValueError, match=r"columns .* has 12 tokens, which are not the patches"):
        find_backbone(str(path), layers=["columns"])


def test_weights_in_a_file_of_their_own(tmp_path):
    """They count in the digest, and must be in the folder of the network."""
    data = {"save_as_external_data": True, "location": "vit.onnx_data", "size_threshold": 0}
    path = save_vit(tmp_path / "vit.onnx", **data)
    backbone = find_backbone(str(path), side=100)
    np.testing.assert_allclose(backbone(PHOTO)[0], vit_map(PHOTO, 100), **EXACT)
    before = backbone.provenance()["weights_sha256"]
    graph = path.read_bytes()
    (tmp_path / "vit.onnx_data").unlink()  # onnx appends to it
    save_vit(path, seed=1, **data)
    assert path.read_bytes() == graph
    assert backbone.provenance()["weights_sha256"] != before
    (tmp_path / "vit.onnx_data").unlink()
    with pytest.raises(FileNotFoundError, match=r"its weights in vit\.onnx_data: put that file"):
        find_backbone(str(path))
    path.write_bytes(graph.replace(b"vit.onnx_data", b"../../e/assed"))
    with pytest.raises(ValueError, match="outside its folder"):
        find_backbone(str(path))


# -- timm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("test_resnet", [(48, 12, 16), (192, 6, 8), (96, 3, 4)]),
        ("test_vit", [(64, 6, 8)]),
    ],
)
def test_models_of_timm(name, shapes):
    """With random weights, which do not have to be downloaded."""
    pytest.importorskip("timm")
    backbone = find_backbone(f"timm:{name}", pretrained=False, side=128)
    maps = backbone(PHOTO)
    assert [values.shape for values in maps][-len(shapes) :] == shapes
    assert len(maps) <= 3
    stored = json.loads(json.dumps(backbone.provenance()))
    assert restore_backbone(stored) == backbone
    with pytest.raises(ValueError, match="other weights than at ingest"):
        restore_backbone(stored | {"weights_sha256": "0"})
    with pytest.raises(ValueError, match="timm cannot make nothing"):
        find_backbone("timm:nothing", pretrained=False)


# -- devices -------------------------------------------------------------------------------------


def test_the_device_is_chosen_by_a_variable(tmp_path, monkeypatch):
    path = str(save_vit(tmp_path / "vit.onnx"))
    monkeypatch.setenv("GPGC_DEVICE", "cpu")
    assert find_backbone(path, side=28).provenance()["device"] == "cpu"
    assert find_backbone("lite0").provenance()["device"] == "cpu"
    monkeypatch.setenv("GPGC_DEVICE", "tpu")
    with pytest.raises(ValueError, match="GPGC_DEVICE must be auto, cuda, coreml, directml, cpu"):
        find_backbone(path, side=28)
    absent = [name for name in DEVICES if not _works(name)]
    assert absent
    monkeypatch.setenv("GPGC_DEVICE", absent[0])
    with pytest.raises(ValueError, match=f"GPGC_DEVICE={absent[0]}, .* or use GPGC_DEVICE=cpu"):
        find_backbone("lite0")
    stored = OnnxFile(path, ("last_hidden_state",), 28, device="cuda").provenance()
    monkeypatch.delenv("GPGC_DEVICE")
    assert restore_backbone(stored).side == 28


# -- descriptions --------------------------------------------------------------------------------


def test_info_describes_networks(run, tmp_path):
    path = save_vit(tmp_path / "vit.onnx")
    code, out, err = run("info", "--backbone", path, "--side", 112, "--input-side", 56)
    assert code == 0, err
    assert "last_hidden_state" in out
    assert "4 × 4" in out
    assert "28" in out
    assert "other layers" in out
    code, out, _ = run("info", "--backbone", "lite0", "--side", 64, "--json")
    rows = json.loads(out)["layers"]
    assert [row["channels"] for row in rows] == [40, 112, 320]
    for arguments in ([], ["data.zarr", "--backbone", "lite0"]):
        code, _, err = run("info", *arguments)
        assert (code, "name a dataset, or a network" in " ".join(err.split())) == (2, True)
