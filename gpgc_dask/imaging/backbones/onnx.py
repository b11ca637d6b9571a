"""Networks run by onnxruntime: the included EfficientNet-Lite0 and any ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
from PIL import Image

# Newer versions send telemetry from the moment they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, MissingFileError
from gpgc_dask.imaging.backbones.base import Backbone, file_digest
from gpgc_dask.imaging.backbones.lite0 import LAYERS, build_graph, weights_path
from gpgc_dask.imaging.photos import Pixels

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Lite0", "OnnxFile"]

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Of RGB values 0 … 255, as most networks trained with PyTorch expect."""

STRIDE = 32
"""Input sides are multiples of this, so that every map's cells cover the image evenly."""

SIDE = 512


def scale_image(image: Pixels, side: int) -> Pixels:
    """Scale up or down to the longest side ``side``; sides are rounded to STRIDE."""
    h, w = image.shape[:2]
    scale = side / max(h, w)
    return resize_image(image, *(max(round(n * scale / STRIDE), 1) * STRIDE for n in (h, w)))


def resize_image(image: Pixels, h: int, w: int) -> Pixels:
    """Scale to exactly h×w pixels."""
    if image.shape[:2] == (h, w):
        return image
    return np.asarray(Image.fromarray(image).resize((w, h), Image.Resampling.BILINEAR))


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """Open a session on one thread: workers run in parallel, and results are reproducible."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Lite0(Backbone):
    """EfficientNet-Lite0 with ImageNet weights: 40 maps of stride 8, 112 of 16 and 320 of 32.

    Parameters
    ----------
    side : int, default 512
        Longest side in pixels of the image that the network sees.
    """

    side: int = SIDE

    def __call__(self, image: Pixels) -> list[Features]:
        maps = _lite0_session().run(list(LAYERS), {"image": scale_image(image, self.side)})
        return [values[0] for values in maps]

    def provenance(self) -> dict[str, Any]:
        return {
            "name": "lite0",
            "layers": list(LAYERS),
            "side": self.side,
            "weights_sha256": file_digest(weights_path()),
            "onnxruntime": onnxruntime.__version__,
        }

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        super().from_provenance(provenance, name)
        return cls(int(provenance["side"]))


@lru_cache(1)
def _lite0_session() -> onnxruntime.InferenceSession:
    return open_session(build_graph())


@dataclass(frozen=True)
class OnnxFile(Backbone):
    """Named outputs, or inner tensors, of an ONNX file.

    The network has one image input: (1, 3, h, w) or (1, h, w, 3), float or uint8, of a fixed or of
    any size. Its input is (RGB − mean) / std.

    Parameters
    ----------
    path : str
        The file, which the workers must be able to read.
    layers : tuple of str
        Names of the tensors to pool.
    side : int, default 512
        Longest side in pixels of the image that the network sees, unless its input size is fixed.
    mean, std : tuple of 3 floats
        Mean and standard deviation of RGB values 0 … 255; ImageNet's by default.
    """

    path: str
    layers: tuple[str, ...]
    side: int = SIDE
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __call__(self, image: Pixels) -> list[Features]:
        session, last, size = _file_session(self.path, self.layers, _stamp(self.path))
        tensor = session.get_inputs()[0]
        image = resize_image(image, *size) if size else scale_image(image, self.side)
        values: Any = image if tensor.type == "tensor(uint8)" else self._normalise(image)
        if tensor.type == "tensor(float16)":
            values = values.astype(np.float16)
        values = values if last else np.moveaxis(values, -1, 0)
        maps = session.run(list(self.layers), {tensor.name: np.ascontiguousarray(values[None])})
        return [self._to_map(name, array) for name, array in zip(self.layers, maps, strict=True)]

    def _normalise(self, image: Pixels) -> Features:
        mean, std = np.array([self.mean, self.std], dtype=np.float32)
        return (image.astype(np.float32) - mean) / std

    def _to_map(self, name: str, array: Features) -> Features:
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

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        settings = dict(options)
        layers = settings.pop("layers", ())
        file = Path(name).expanduser().absolute()
        if not file.is_file():
            raise MissingFileError(f"backbone {file} does not exist")
        if isinstance(layers, str) or not layers:
            raise InputError(
                f"{name}: name the layers to pool, one or more (layers=[...], --layer NAME)"
            )
        unknown = settings.keys() - {"side", "mean", "std"}
        if unknown:
            raise InputError(f"an ONNX backbone has no option {', '.join(sorted(unknown))}")
        network = cls(str(file), tuple(layers), **settings)
        network(np.zeros((64, 64, 3), dtype=np.uint8))  # raises now, not in a worker
        return network

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        path = name or provenance.get("path")
        if path is None:
            raise InputError(
                f"it is not recorded where the network {provenance['name']} is: name it "
                "with backbone= (--backbone FILE.onnx)"
            )
        file = Path(path).expanduser().absolute()
        if not file.is_file():
            raise MissingFileError(
                f"the network is not at {file}: name its present path with backbone= "
                "(--backbone FILE.onnx)"
            )
        settings = {part: tuple(provenance[part]) for part in ("layers", "mean", "std")}
        return cls(str(file), side=provenance["side"], **settings)


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does, so that a session is not used for a newer file."""
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


def _last_maps(network: Any, limit: int = 8) -> list[str]:
    kinds = ("Relu", "Conv", "Clip", "Add", "MaxPool", "LeakyRelu", "HardSwish", "Gelu")
    return [node.output[0] for node in network.graph.node if node.op_type in kinds][-limit:]
