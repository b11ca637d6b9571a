"""Networks and the weights they come with."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gpgc_dask import GP, ingest, load, open_dataset, predict_masks, write_masks
from gpgc_dask.core.errors import UnsafeWeightsError
from gpgc_dask.imaging.backbones import BACKBONES, find_backbone, list_backbones
from gpgc_dask.imaging.backbones.lite0 import CLASSIFIER, LAYERS, build_graph, weights_path
from gpgc_dask.imaging.backbones.onnx import open_session
from gpgc_dask.imaging.backbones.weights import MAGIC, PROTOCOL, read_tensors
from gpgc_dask.imaging.features import Recipe, describe
from tests.support.images import draw, save_pair, save_pairs, tree_bytes
from tests.support.networks import tensor_pickle, torch_file

PHOTO, _ = draw(0, 60, 80)


# -- the unpickler -----------------------------------------------------------------------------


class Shell:
    """What a hostile file would do: run a command as it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


VALUES = np.arange(6, dtype="<f4")


def test_tensors_are_read(tmp_path):
    path = torch_file(tmp_path / "w.pth", tensor_pickle(), [("0", VALUES)])
    np.testing.assert_array_equal(read_tensors(path)["a"], VALUES.reshape(2, 3))
    turned = torch_file(tmp_path / "t.pth", tensor_pickle((3, 2), (1, 3)), [("0", VALUES)])
    np.testing.assert_array_equal(read_tensors(turned)["a"], VALUES.reshape(2, 3).T)


@pytest.mark.parametrize("place", ["dict", "first", "keys"])
def test_a_hostile_pickle_is_rejected_and_nothing_runs(tmp_path, place):
    mark = tmp_path / "it ran"
    evil = Shell(mark)
    path = tmp_path / "w.pth"
    if place == "dict":
        torch_file(path, pickle.dumps(collections.OrderedDict(a=evil), 2))
    elif place == "first":
        torch_file(path, b"", head=(evil, PROTOCOL))
    else:
        torch_file(path, tensor_pickle(), [("0", VALUES)], keys=evil)
    with pytest.raises(UnsafeWeightsError, match=r"w.pth is rejected: it names posix.system"):
        read_tensors(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins eval", "os system", "torch load", "torch._utils _rebuild_parameter", "numpy.f x"],
)
def test_every_other_name_is_rejected(tmp_path, name):
    module, attribute = name.split()
    content = f"\x80\x02c{module}\n{attribute}\n.".encode("latin1")
    with pytest.raises(UnsafeWeightsError, match=f"names {module}.{attribute}"):
        read_tensors(torch_file(tmp_path / "w.pth", content))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 10**9}, "larger than the file"),
        ({"shape": (3, 3)}, "beyond its storage"),
        ({"offset": 1}, "beyond its storage"),
        ({"offset": -1}, "negative"),
        ({"stride": (-3, 1)}, "negative"),
        ({"stride": (3,)}, "not a view"),
        ({"storage": "Tensor"}, "names torch.Tensor"),
        ({"length": 5, "shape": (5,), "stride": (1,)}, "the recorded length"),
    ],
)
def test_tensors_cannot_reach_out_of_the_file(tmp_path, options, message):
    path = torch_file(tmp_path / "w.pth", tensor_pickle(**options), [("0", VALUES)])
    with pytest.raises(UnsafeWeightsError, match=message):
        read_tensors(path)


@pytest.mark.parametrize(
    "content", [b"", b"not a pickle", pickle.dumps(MAGIC, 2), pickle.dumps("x" * 40, 2)]
)
def test_files_that_hold_no_tensors(tmp_path, content):
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(UnsafeWeightsError, match=r"w\.pth"):
        read_tensors(path)


def test_a_dict_of_something_else_is_rejected(tmp_path):
    path = torch_file(tmp_path / "w.pth", pickle.dumps({"a": "text"}, 2))
    with pytest.raises(UnsafeWeightsError, match="entry 'a' is not a tensor"):
        read_tensors(path)


# -- EfficientNet-Lite0 ------------------------------------------------------------------------


def test_the_weights_are_whole():
    tensors = read_tensors(weights_path())
    assert tensors["_conv_stem.weight"].shape == (32, 3, 3, 3)
    assert tensors["_fc.weight"].shape == (1000, 1280)
    assert sum(value.size for value in tensors.values()) > 4_000_000
    assert all(np.all(np.isfinite(value)) for value in tensors.values())


def test_lite0_maps():
    maps = find_backbone("lite0")(PHOTO)
    assert [values.shape for values in maps] == [(40, 48, 64), (112, 24, 32), (320, 12, 16)]


def naive_conv(x, weight, stride, groups):
    """SAME convolution by loops over the kernel, in float64."""
    out, _, k, _ = weight.shape
    h, w = (-(-n // stride) for n in x.shape[1:])
    pads = [max((n - 1) * stride + k - m, 0) for n, m in zip((h, w), x.shape[1:], strict=True)]
    x = np.pad(x, [(0, 0), *((p // 2, p - p // 2) for p in pads)])
    total = np.zeros((out, h, w))
    for i in range(k):
        for j in range(k):
            patch = x[:, i : i + h * stride : stride, j : j + w * stride : stride][:, :h, :w]
            if groups == 1:
                total += np.einsum("oc,chw->ohw", weight[:, :, i, j], patch)
            else:
                total += weight[:, 0, i, j][:, None, None] * patch
    return total


def test_lite0_graph_is_the_network():
    """Against convolutions and batch norms written out, to the first map (stride 8)."""
    t = {name: value.astype(np.float64) for name, value in read_tensors(weights_path()).items()}

    def layer(x, conv, norm, stride=1, groups=1, *, relu=True):
        x = naive_conv(x, t[f"{conv}.weight"], stride, groups)
        shape = (-1, 1, 1)
        x = (x - t[f"{norm}.running_mean"].reshape(shape)) / np.sqrt(
            t[f"{norm}.running_var"].reshape(shape) + 1e-3
        )
        x = x * t[f"{norm}.weight"].reshape(shape) + t[f"{norm}.bias"].reshape(shape)
        return np.clip(x, 0, 6) if relu else x

    def block(x, number, stride):
        name, before = f"_blocks.{number}", x
        if f"{name}._expand_conv.weight" in t:
            x = layer(x, f"{name}._expand_conv", f"{name}._bn0")
        x = layer(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, len(x))
        x = layer(x, f"{name}._project_conv", f"{name}._bn2", relu=False)
        return x + before if x.shape == before.shape else x

    image = PHOTO[:32, :64]
    x = (np.moveaxis(image.astype(np.float64), -1, 0) - 127) / 128
    x = layer(x, "_conv_stem", "_bn0", 2)
    for number, stride in enumerate([1, 2, 1, 2, 1]):
        x = block(x, number, stride)
    (found,) = open_session(build_graph()).run(["stride8"], {"image": image})
    np.testing.assert_allclose(found[0], x, atol=1e-4)


def test_the_whole_network_classifies():
    session = open_session(build_graph((CLASSIFIER, *LAYERS)))
    logits = session.run([CLASSIFIER], {"image": np.zeros((64, 64, 3), dtype=np.uint8)})[0]
    assert logits.shape == (1, 1000)


# -- other sources -----------------------------------------------------------------------------


def onnx_file(path, channels=8, *, shape=(1, 3, "h", "w"), kind=TensorProto.FLOAT):
    """A strided convolution, its ReLU and a global mean."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((channels, 3, 4, 4)).astype(np.float32)
    nodes, given = [], "image"
    if kind != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", ["image"], ["cast"], to=TensorProto.FLOAT))
        given = "cast"
    if shape[1] != 3:
        nodes.append(helper.make_node("Transpose", [given], ["first"], perm=[0, 3, 1, 2]))
        given = "first"
    nodes += [
        helper.make_node("Conv", [given, "weight"], ["conv"], strides=[4, 4]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["mean"]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("image", kind, list(shape))],
        [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, channels, 1, 1])],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return weight


def test_an_onnx_files_inner_layers(tmp_path):
    path = tmp_path / "net.onnx"
    weight = onnx_file(path)
    image = draw(0, 64, 64)[0]
    net = find_backbone(
        str(path), layers=["relu", "mean"], side=64, mean=(10, 20, 30), std=(2, 3, 4)
    )
    relu, mean = net(image)
    given = np.moveaxis((image.astype(float) - (10, 20, 30)) / (2, 3, 4), -1, 0)
    expected = np.einsum("ocij,cyixj->oyx", weight, given.reshape(3, 16, 4, 16, 4))
    np.testing.assert_allclose(relu, np.maximum(expected, 0), rtol=1e-4, atol=1e-3)
    assert mean.shape == (8, 1, 1)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 32, 48, 3), TensorProto.FLOAT),
        ((1, "h", "w", 3), TensorProto.UINT8),
        ((1, 3, 32, 48), TensorProto.FLOAT),
    ],
)
def test_inputs_of_other_layouts(tmp_path, shape, kind):
    path = tmp_path / "net.onnx"
    onnx_file(path, shape=shape, kind=kind)
    (found,) = find_backbone(str(path), layers=["relu"], side=48)(PHOTO[:32, :48])
    assert found.shape == (8, 8, 12) if 32 in shape else found.shape[0] == 8


def test_the_papers_width(tmp_path):
    """One layer of 4,096 channels: k = 4096 + 16 + 1."""
    path = tmp_path / "wide.onnx"
    onnx_file(path, 4096)
    save_pair(tmp_path, "a", 0)
    recipe = Recipe(find_backbone(str(path), layers=["relu"], side=64), superpixels=20)
    found = describe(tmp_path / "images/a.jpg", recipe)
    assert found.features.shape[1] == 4113
    assert found.layers == {"appearance": 4096, "position": 16, "constant": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ["nothing"]}, r"no layer nothing; its outputs are mean, .*relu"),
        ({"layers": []}, "name the layers to pool .* none of its outputs is a feature map"),
        ({"layers": "relu"}, "name the layers to pool"),
    ],
)
def test_layers_that_are_not_there(tmp_path, options, message):
    path = tmp_path / "net.onnx"
    onnx_file(path)
    with pytest.raises(ValueError, match=message):
        find_backbone(str(path), **options)


def test_files_that_are_no_networks(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(FileNotFoundError, match=r"net\.onnx does not exist"):
        find_backbone(str(path), layers=["relu"])
    path.write_bytes(b"no protobuf")
    with pytest.raises(ValueError, match="not a readable ONNX file"):
        find_backbone(str(path), layers=["relu"])
    onnx_file(path, shape=(1, 3, "h", "w"))
    with pytest.raises(ValueError, match="lite0 has no options layers"):
        find_backbone("lite0", layers=["relu"])
    with pytest.raises(ValueError, match="backbone must be"):
        find_backbone("resnet")


def test_a_callable(tmp_path):
    save_pair(tmp_path, "a", 0)
    recipe = Recipe(find_backbone(lambda image: [image.transpose(2, 0, 1)]), superpixels=20)
    found = describe(tmp_path / "images/a.jpg", recipe)
    assert found.features.shape[1] == 3 + 17
    assert "lambda" in recipe.backbone.provenance()["name"]
    wrong = Recipe(find_backbone(lambda image: [image[..., 0]]), superpixels=20)
    with pytest.raises(TypeError, match=r"a feature map is \(channels, height, width\)"):
        describe(tmp_path / "images/a.jpg", wrong)
    for found in ([], None, [np.ones((3, 0, 5))]):
        with pytest.raises(TypeError, match="feature map"):
            describe(tmp_path / "images/a.jpg", Recipe(find_backbone(lambda image, f=found: f)))
    infinite = Recipe(find_backbone(lambda image: [np.full((1, 2, 2), 1e6)]), dtype="float16")
    with pytest.raises(ValueError, match="float16: store them as float32"):
        describe(tmp_path / "images/a.jpg", infinite)


def test_colour_maps_are_of_order_one():
    (maps,) = find_backbone("colour")(PHOTO)
    assert maps.shape == (14, *PHOTO.shape[:2])
    assert np.abs(maps).max() < 10
    assert np.abs(maps).mean() > 0.01


def test_onnxruntime_sends_no_reports(tmp_path):
    """Where it did, it would keep a session's number among the temporary files."""
    code = "import gpgc_dask.imaging.backbones.onnx as module; module.open_session"
    given = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], env=given | {"TMPDIR": str(tmp_path)}, check=True)
    assert not list(tmp_path.iterdir())


# -- the registry ------------------------------------------------------------------------------

GRADIENTS = """
from dataclasses import dataclass

import numpy as np

from gpgc_dask.imaging.backbones import Backbone


@dataclass(frozen=True)
class Gradients(Backbone):
    def __call__(self, image):
        grey = image.mean(2) / 255
        return [np.stack([grey, *np.gradient(grey)])]

    def provenance(self):
        return {"name": "gradients"}
"""


@pytest.fixture
def gradients(tmp_path, monkeypatch):
    """A backbone in a module of its own and a line in the table of places."""
    (tmp_path / "toy_gradients.py").write_text(GRADIENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(BACKBONES._places, "gradients", "toy_gradients:Gradients")
    yield
    BACKBONES._loaded.pop("gradients", None)
    sys.modules.pop("toy_gradients", None)


def test_a_backbone_is_one_file_and_one_line(gradients, tmp_path):
    """Ingest, fit and prediction know it by its name."""
    images, masks = save_pairs(tmp_path, 12)
    recipe = Recipe(backbone="gradients", superpixels=20)
    assert ingest(images, masks, tmp_path / "data.zarr", recipe=recipe).features == 3 + 17
    dataset = open_dataset(tmp_path / "data.zarr")
    assert dataset.attrs["backbone"] == {"name": "gradients"}
    GP().fit(dataset).save(tmp_path / "model.zarr")
    model = load(tmp_path / "model.zarr")
    assert predict_masks(model, images, tmp_path / "predicted").images == 12
    write_masks(dataset, model.predict(dataset), tmp_path / "expected")
    assert tree_bytes(tmp_path / "predicted") == tree_bytes(tmp_path / "expected")
    assert list_backbones().startswith("lite0, colour, FILE.onnx, hf:ORG/MODEL, ")
    with pytest.raises(ValueError, match=r"one of lite0, colour, .*, gradients, or a call"):
        Recipe(backbone="resnet")
