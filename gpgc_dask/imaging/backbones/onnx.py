"""Networks run by onnxruntime: the built-in EfficientNet-Lite0 and any ONNX file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image

# Else its newer versions report to their maker, from when they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.backbones.base import Backbone, file_digest
from gpgc_dask.imaging.backbones.lite0 import LAYERS, build_graph, weights_path
from gpgc_dask.imaging.photos import Pixels

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Lite0", "OnnxFile"]

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Of RGB values 0 … 255: what networks trained with PyTorch mostly expect."""

STRIDE = 32
"""Input sides are multiples of this, so that every map's cells cover the image evenly."""

SIDE = 512


def scaled(image: Pixels, side: int) -> Pixels:
    """The image with its longest side ``side``, also enlarged, sides rounded to STRIDE."""
    h, w = image.shape[:2]
    scale = side / max(h, w)
    return resized(image, *(max(round(n * scale / STRIDE), 1) * STRIDE for n in (h, w)))


def resized(image: Pixels, h: int, w: int) -> Pixels:
    """The image at exactly h×w pixels."""
    if image.shape[:2] == (h, w):
        return image
    return np.asarray(Image.fromarray(image).resize((w, h), Image.Resampling.BILINEAR))


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """A session on one thread: workers run side by side, and results do not depend on cores."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Lite0(Backbone):
    """EfficientNet-Lite0 with ImageNet weights: 40 maps of stride 8, 112 of 16 and 320 of 32."""

    side: int = SIDE

    def __call__(self, image: Pixels) -> list[Features]:
        maps = _lite0_session().run(list(LAYERS), {"image": scaled(image, self.side)})
        return [values[0] for values in maps]

    def provenance(self) -> dict[str, Any]:
        return {
            "name": "lite0",
            "layers": list(LAYERS),
            "side": self.side,
            "weights_sha256": file_digest(weights_path()),
            "onnxruntime": onnxruntime.__version__,
        }


@lru_cache(1)
def _lite0_session() -> onnxruntime.InferenceSession:
    return open_session(build_graph())


@dataclass(frozen=True)
class OnnxFile(Backbone):
    """Named outputs, or inner tensors, of an ONNX file.

    The file has one image input: (1, 3, h, w) or (1, h, w, 3), float or uint8, of a fixed size or
    of any. It is given (RGB − mean) / std. The file must be where the workers can read it.
    """

    path: str
    layers: tuple[str, ...]
    side: int = SIDE
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __call__(self, image: Pixels) -> list[Features]:
        session, last, size = _file_session(self.path, self.layers, _stamp(self.path))
        given = session.get_inputs()[0]
        image = resized(image, *size) if size else scaled(image, self.side)
        values: Any = image if given.type == "tensor(uint8)" else self._normalised(image)
        if given.type == "tensor(float16)":
            values = values.astype(np.float16)
        values = values if last else np.moveaxis(values, -1, 0)
        found = session.run(list(self.layers), {given.name: np.ascontiguousarray(values[None])})
        return [self._map(name, array) for name, array in zip(self.layers, found, strict=True)]

    def _normalised(self, image: Pixels) -> Features:
        mean, std = np.array([self.mean, self.std], dtype=np.float32)
        return (image.astype(np.float32) - mean) / std

    def _map(self, name: str, array: Features) -> Features:
        if array.ndim != 4 or array.shape[0] != 1:
            raise InputError(
                f"layer {name} of {self.path} has shape {array.shape}: a feature map is "
                "(1, channels, height, width); choose a layer before the global pooling"
            )
        return array[0].astype(np.float32, copy=False)

    def provenance(self) -> dict[str, Any]:
        return {
            "name": Path(self.path).name,
            "path": str(Path(self.path).absolute()),
            "layers": list(self.layers),
            "side": self.side,
            "mean": list(self.mean),
            "std": list(self.std),
            "weights_sha256": file_digest(self.path),
            "onnxruntime": onnxruntime.__version__,
        }


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does, so that a session is not kept for another file of its name."""
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(2)
def _file_session(
    path: str, layers: tuple[str, ...], stamp: tuple[int, int]
) -> tuple[onnxruntime.InferenceSession, bool, tuple[int, int] | None]:
    """(session with the layers among its outputs, channels last?, size of its input if fixed)."""
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's own exceptions have no common base
        raise InputError(f"{path} is not a readable ONNX file: {error}") from None
    inner = {name for node in model.graph.node for name in node.output if name}
    unknown = [name for name in layers if name not in inner]
    if unknown:
        outputs = [output.name for output in model.graph.output]
        raise InputError(
            f"{path} has no layer {', '.join(unknown)}; its outputs are {', '.join(outputs)}, "
            f"its last inner tensors {', '.join(_last_maps(model))}"
        )
    present = {output.name for output in model.graph.output}
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in layers if name not in present
    )
    session = open_session(model.SerializeToString())
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    if len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise InputError(
            f"{path} must have one image input, (1, 3, h, w) or (1, h, w, 3); "
            f"it has {', '.join(f'{i.name} {i.shape}' for i in inputs)}"
        )
    last = shape[1] != 3
    h, w = shape[1:3] if last else shape[2:4]
    return session, last, (h, w) if isinstance(h, int) and isinstance(w, int) else None


def _last_maps(model: Any, most: int = 8) -> list[str]:
    kinds = ("Relu", "Conv", "Clip", "Add", "MaxPool", "LeakyRelu", "HardSwish", "Gelu")
    return [node.output[0] for node in model.graph.node if node.op_type in kinds][-most:]
