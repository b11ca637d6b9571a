"""Networks run by onnxruntime: the included EfficientNet-Lite0 and any ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnx
from PIL import Image

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import GpgcError, InputError, MissingFileError
from gpgc_dask.imaging.backbones.base import Backbone, file_digest
from gpgc_dask.imaging.backbones.devices import RUNTIME, choose_device, open_session
from gpgc_dask.imaging.backbones.graph import (
    MAX_SPECIAL,
    STRIDE,
    Stem,
    find_stem,
    read_model,
    weights_digest,
)
from gpgc_dask.imaging.backbones.lite0 import LAYERS, build_graph, weights_path
from gpgc_dask.imaging.photos import Pixels

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Lite0", "OnnxFile"]

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Of RGB values 0 … 255, as most networks trained with PyTorch expect."""

SIDE = 512

MERGES = (1, 2, 4, 8)
"""Factors by which a network may reduce the grid of its patches."""

DEFAULT_LAYER = "last_hidden_state"
"""Name of the tokens in exports of Hugging Face."""


def scale_image(image: Pixels, side: int, multiple: int = STRIDE) -> Pixels:
    """Scale up or down to the longest side ``side``; sides are rounded to a multiple."""
    h, w = image.shape[:2]
    scale = side / max(h, w)
    return resize_image(image, *(max(round(n * scale / multiple), 1) * multiple for n in (h, w)))


def resize_image(image: Pixels, h: int, w: int) -> Pixels:
    """Scale to exactly h×w pixels."""
    if image.shape[:2] == (h, w):
        return image
    return np.asarray(Image.fromarray(image).resize((w, h), Image.Resampling.BILINEAR))


@dataclass(frozen=True)
class Lite0(Backbone):
    """EfficientNet-Lite0 with ImageNet weights: 40 maps of stride 8, 112 of 16 and 320 of 32.

    Parameters
    ----------
    side : int, default 512
        Longest side in pixels of the image that the network sees.
    device : str, default "cpu"
        Where it runs, see :func:`~gpgc_dask.imaging.backbones.devices.choose_device`.
    """

    side: int = SIDE
    device: str = "cpu"

    def __call__(self, image: Pixels) -> list[Features]:
        image = scale_image(image, self.side)
        maps = _lite0_session(self.device).run(list(LAYERS), {"image": image})
        return [values[0] for values in maps]

    def layer_names(self) -> tuple[str, ...]:
        return LAYERS

    def provenance(self) -> dict[str, Any]:
        return {
            "name": "lite0",
            "layers": list(LAYERS),
            "side": self.side,
            "weights_sha256": file_digest(weights_path()),
            "onnxruntime": RUNTIME,
            "device": self.device,
        }

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        return replace(super().from_options(name, options), device=choose_device())

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        super().from_provenance(provenance, name)
        return cls(int(provenance["side"]), choose_device())


@lru_cache(1)
def _lite0_session(device: str) -> InferenceSession:
    return open_session(build_graph(), device)


@dataclass(frozen=True)
class OnnxFile(Backbone):
    """Named outputs, or inner tensors, of an ONNX file.

    The network has one image input: (1, 3, h, w) or (1, h, w, 3), float or uint8, of a fixed or of
    any size. Its input is (RGB − mean) / std. Layers are maps (1, channels, h', w') or tokens
    (1, T, channels) of a transformer: the patches row by row, after class and register tokens.

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
    device : str, default "cpu"
        Where it runs, see :func:`~gpgc_dask.imaging.backbones.devices.choose_device`.
    """

    path: str
    layers: tuple[str, ...]
    side: int = SIDE
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    device: str = "cpu"

    def __call__(self, image: Pixels) -> list[Features]:
        return [
            self._to_map(name, values, size)
            for name, (values, size) in self._run(image, self.layers).items()
        ]

    def _run(
        self, image: Pixels, layers: tuple[str, ...]
    ) -> dict[str, tuple[Features, tuple[int, int]]]:
        """{name: (tensor, size of the input)} of the layers, or of all outputs."""
        session, stem = _file_session(self.path, layers, self.device, _stamp(self.path))
        tensor = session.get_inputs()[0]
        image = self.prepare(image, stem)
        values: Any = image if tensor.type == "tensor(uint8)" else self._normalise(image)
        if tensor.type == "tensor(float16)":
            values = values.astype(np.float16)
        values = values if stem.channels_last else np.moveaxis(values, -1, 0)
        names = layers or tuple(output.name for output in session.get_outputs())
        try:
            arrays = session.run(list(names), {tensor.name: np.ascontiguousarray(values[None])})
        except Exception as error:  # onnxruntime's own exceptions have no common base
            h, w = image.shape[:2]
            raise InputError(
                f"{self.path} cannot process an input of {h}×{w} pixels, choose another with "
                f"side= (--input-side): {' '.join(str(error).split()):.300}"
            ) from None
        return {name: (each, image.shape[:2]) for name, each in zip(names, arrays, strict=True)}

    def prepare(self, image: Pixels, stem: Stem) -> Pixels:
        """Scale an image to the size that the network sees."""
        if stem.size is not None:
            return resize_image(image, *stem.size)
        return scale_image(image, self.side, stem.multiple)

    def _normalise(self, image: Pixels) -> Features:
        mean, std = np.array([self.mean, self.std], dtype=np.float32)
        return (image.astype(np.float32) - mean) / std

    def _to_map(self, name: str, array: Features, size: tuple[int, int]) -> Features:
        if array.ndim == 3 and array.shape[0] == 1:
            return self._fold(name, array[0], size).astype(np.float32, copy=False)
        if array.ndim != 4 or array.shape[0] != 1:
            raise InputError(
                f"layer {name} of {self.path} has shape {array.shape}: a feature map is "
                "(1, channels, height, width), or (1, tokens, channels) of a transformer; choose "
                "a layer before the global pooling"
            )
        return array[0].astype(np.float32, copy=False)

    def _fold(self, name: str, tokens: Features, size: tuple[int, int]) -> Features:
        """(channels, h', w') map of (T, channels) tokens; the patches are the last of them."""
        grid = self._grid(len(tokens), size)
        if grid is None:
            raise InputError(
                f"layer {name} of {self.path} has {len(tokens)} tokens, which are not the patches "
                f"of an input of {size[0]}×{size[1]} pixels: choose another layer"
            )
        patches = tokens[len(tokens) - grid[0] * grid[1] :]
        return np.moveaxis(patches.reshape(*grid, -1), -1, 0)

    def _grid(self, tokens: int, size: tuple[int, int]) -> tuple[int, int] | None:
        """Rows and columns of the patches among a number of tokens."""
        _, stem = _file_session(self.path, self.layers, self.device, _stamp(self.path))
        for merge in MERGES if stem.patch is not None else ():
            cell = (stem.patch or 0) * merge
            h, w = size[0] // cell, size[1] // cell
            special = tokens - h * w
            if h * w and (0 <= special <= MAX_SPECIAL if merge == 1 else special == 0):
                return h, w
        return None

    def layer_names(self) -> tuple[str, ...]:
        return self.layers

    def other_layers(self) -> tuple[str, ...]:
        model = read_model(self.path)
        names = [output.name for output in model.graph.output] + _last_maps(model)
        return tuple(name for name in dict.fromkeys(names) if name not in self.layers)

    def provenance(self) -> dict[str, Any]:
        return {
            "name": Path(self.path).name,
            "path": str(Path(self.path).absolute()),
            "layers": list(self.layers),
            "side": self.side,
            "mean": list(self.mean),
            "std": list(self.std),
            "weights_sha256": weights_digest(self.path),
            "onnxruntime": RUNTIME,
            "device": self.device,
        }

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        file = Path(name).expanduser().absolute()
        if not file.is_file():
            raise MissingFileError(f"backbone {file} does not exist")
        return cls.with_options(str(file), name, options)

    @classmethod
    def with_options(cls, path: str, name: str, options: Mapping[str, Any], **place: Any) -> Self:
        """Create the backbone of a file, and run it once: errors are raised now, not in a worker.

        Parameters
        ----------
        path : str
            The file.
        name : str
            What the user calls it.
        options : mapping
            The user's options.
        **place
            Other parameters of the class.
        """
        settings = dict(options)
        layers = settings.pop("layers", ())
        if isinstance(layers, str):
            raise InputError(f"{name}: name the layers to pool in a list (layers=[...])")
        unknown = settings.keys() - {"side", "mean", "std"}
        if unknown:
            raise InputError(f"an ONNX backbone has no option {', '.join(sorted(unknown))}")
        if not isinstance(settings.get("side", SIDE), int) or settings.get("side", SIDE) < 1:
            raise InputError(
                f"side (--input-side) must be 1 or more pixels, got {settings['side']}"
            )
        network = cls(path, tuple(layers), **settings, device=choose_device(), **place)
        blank = np.zeros((64, 64, 3), dtype=np.uint8)
        if not layers:
            network = replace(network, layers=(network._default_layer(blank),))
        network(blank)
        return network

    def _default_layer(self, image: Pixels) -> str:
        """The output that is a map or the tokens of patches, if there is only one such."""
        usable = []
        for name, (values, size) in self._run(image, ()).items():
            is_map = np.ndim(values) == 4 and min(values.shape[2:]) > 1
            if is_map or (np.ndim(values) == 3 and self._grid(values.shape[1], size)):
                usable.append(name)
        if DEFAULT_LAYER in usable:
            return DEFAULT_LAYER
        if len(usable) == 1:
            return usable[0]
        found = (
            f"its outputs {', '.join(usable)} are feature maps"
            if usable
            else (
                "none of its outputs is a feature map; its last inner tensors are "
                + ", ".join(_last_maps(read_model(self.path)))
            )
        )
        raise InputError(
            f"{self.path}: name the layers to pool (layers=[...], --layer NAME): {found}"
        )

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
        return cls(str(file), **stored_settings(provenance), device=choose_device())


def stored_settings(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an ONNX file in its provenance."""
    settings = {part: tuple(provenance[part]) for part in ("layers", "mean", "std")}
    return settings | {"side": provenance["side"]}


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does, so that a session is not used for a newer file."""
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(2)
def _file_session(
    path: str, layers: tuple[str, ...], device: str, stamp: tuple[int, int]
) -> tuple[InferenceSession, Stem]:
    """(session with the layers among its outputs, its input)."""
    model = read_model(path)
    stem = find_stem(model, path)
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
    try:
        return open_session(model.SerializeToString(), device), stem
    except GpgcError:
        raise
    except Exception as error:  # onnxruntime's own exceptions have no common base
        raise InputError(
            f"{path} cannot be run by onnxruntime {RUNTIME}, export it again: "
            f"{' '.join(str(error).split()):.300}"
        ) from None


def _last_maps(network: Any, limit: int = 8) -> list[str]:
    kinds = {"Relu", "Conv", "Clip", "Add", "MaxPool", "LeakyRelu", "HardSwish", "Gelu"}
    kinds |= {"LayerNormalization"}
    return [node.output[0] for node in network.graph.node if node.op_type in kinds][-limit:]
