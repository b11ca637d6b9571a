"""What an ONNX file shows before it runs: its weights, the image input and the grid of patches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from pathlib import Path, PurePosixPath
from typing import Any

import onnx

from gpgc_dask.core.errors import InputError, MissingFileError
from gpgc_dask.imaging.backbones.base import file_digest

__all__ = [
    "MAX_SPECIAL",
    "STRIDE",
    "Stem",
    "external_files",
    "find_stem",
    "read_model",
    "weights_digest",
]

MAX_BYTES = 2**31 - 2**20
"""Size of a serialised model that protobuf allows."""

MAX_SPECIAL = 16
"""Maximum number of class and register tokens in front of the patches."""

STRIDE = 32
"""Input sides of convolutional networks are multiples of this: cells cover the image evenly."""

MIN_PATCH = 8
"""Patches of this side or larger are the cells of a transformer; smaller ones are merged later."""

CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "FusedConv")
CHANNELS_FIRST = [0, 3, 1, 2]
"""Permutation of the axes of an image whose channels are last."""


# -- weights -------------------------------------------------------------------------------------


def read_model(path: str | Path) -> Any:
    """Read an ONNX file and the files of weights that it names, which are in its folder."""
    model = _read_graph(path)
    total = 0
    for tensor in _external_tensors(model):
        file, offset, length = _external_place(path, tensor)
        total += length
        if total > MAX_BYTES:
            raise InputError(
                f"{path} has weights of more than 2 GB: use a smaller model, or one in float16"
            )
        with file.open("rb") as content:
            content.seek(offset)
            # onnx rejects symbolic links, and the cache of the Hugging Face hub consists of them.
            tensor.raw_data = content.read(length)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return model


def external_files(path: str | Path) -> list[str]:
    """Names of the files of weights that an ONNX file names, such as ``model.onnx_data``."""
    tensors = _external_tensors(_read_graph(path))
    places = [entry.value for t in tensors for entry in t.external_data if entry.key == "location"]
    return sorted(set(places))


def weights_digest(path: str | Path) -> str:
    """SHA-256 of an ONNX file, or of the digests of it and the files of weights that it names."""
    own = file_digest(path)
    others = [file_digest(_external_path(path, name)) for name in external_files(path)]
    return hashlib.sha256("".join([own, *others]).encode()).hexdigest() if others else own


def _read_graph(path: str | Path) -> Any:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own exceptions have no common base
        raise InputError(f"{path} is not a readable ONNX file: {error}") from None


def _external_tensors(model: Any) -> Iterator[Any]:
    constants = [
        each.t for node in model.graph.node for each in node.attribute if each.name == "value"
    ]
    for tensor in [*model.graph.initializer, *constants]:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _external_place(path: str | Path, tensor: Any) -> tuple[Path, int, int]:
    """(file, offset, length) of the weights of a tensor."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    file = _external_path(path, place.get("location", ""))
    size = file.stat().st_size
    try:
        offset = int(place.get("offset", 0))
        length = int(place.get("length", size - offset))
    except ValueError:
        offset = length = -1
    if min(offset, length) < 0 or offset + length > size:
        raise InputError(
            f"{path} takes weights from where {file.name} has none ({size:,} bytes): one of the "
            "files is corrupted, or of another model"
        )
    return file, offset, length


def _external_path(path: str | Path, name: str) -> Path:
    place = PurePosixPath(name.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts:
        raise InputError(
            f"{path} names weights outside its folder, {name}: it is not to be trusted"
        )
    file = Path(path).parent / place
    if not file.is_file():
        raise MissingFileError(f"{path} has its weights in {name}: put that file next to it")
    return file


# -- the image input -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stem:
    """How a network begins.

    Attributes
    ----------
    channels_last : bool
        Whether the image is (1, h, w, 3) and not (1, 3, h, w).
    size : (h, w) or None
        The size of its input, if that is fixed by the input or by position embeddings.
    patch : int or None
        Side in pixels of the patches that the first convolution makes into vectors.
    """

    channels_last: bool
    size: tuple[int, int] | None
    patch: int | None

    @property
    def multiple(self) -> int:
        """Number of pixels of which the sides of the input are multiples."""
        return STRIDE if self.patch is None or self.patch < MIN_PATCH else self.patch


def find_stem(model: Any, path: str | Path) -> Stem:
    """Find the image input of a model, its layout, and the patches."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    shape = _input_shape(inputs[0]) if len(inputs) == 1 else []
    transposed, convolution = _first_convolution(model, inputs[0].name) if inputs else (False, None)
    channels = [axis for axis in (1, 3) if len(shape) == 4 and shape[axis] == 3]
    if len(shape) == 4 and not channels and convolution is not None:
        channels = [axis for axis in (3 if transposed else 1,) if shape[axis] is None]
    if not channels:
        listed = ", ".join(f"{each.name} {_input_shape(each)}" for each in inputs)
        raise InputError(
            f"{path} must have one image input, (1, 3, h, w) or (1, h, w, 3); it has {listed}"
        )
    h, w = shape[1:3] if channels[0] == 3 else shape[2:4]
    patch, width = (None, None) if convolution is None else _patch(model, convolution)
    size = (h, w) if h is not None and w is not None else None
    if size is None and patch is not None:
        size = _fixed_size(model, patch, width)
    return Stem(channels[0] == 3, size, patch)


def _input_shape(value: Any) -> list[int | None]:
    """Sizes of an input, None where it may have any."""
    return [
        each.dim_value if each.HasField("dim_value") and each.dim_value > 0 else None
        for each in value.type.tensor_type.shape.dim
    ]


def _first_convolution(model: Any, image: str) -> tuple[bool, Any]:
    """(whether axes are permuted to channels first, first convolution of the image or None)."""
    names, transposed = {image}, False
    for node in model.graph.node:  # sorted: a node follows those that it needs
        if node.op_type == "Shape" or not names.intersection(node.input):
            continue
        if node.op_type in CONVOLUTIONS:
            return transposed, node
        transposed |= node.op_type == "Transpose" and _integers(node, "perm") == CHANNELS_FIRST
        names.update(node.output)
    return transposed, None


def _patch(model: Any, convolution: Any) -> tuple[int | None, int | None]:
    """(side of the patches if the convolution has patches, its channels if they are known)."""
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    weight = next(
        (shapes[name] for name in convolution.input if len(shapes.get(name, ())) == 4), None
    )
    kernel = _integers(convolution, "kernel_shape") or (weight or [])[2:]
    strides = _integers(convolution, "strides")
    width = None if weight is None else int(weight[0])
    if len(kernel) != 2 or kernel != strides or len(set(kernel)) != 1:
        return None, width
    padded = any(_integers(convolution, "pads"))
    return (None if padded else int(kernel[0])), width


def _fixed_size(model: Any, patch: int, width: int | None) -> tuple[int, int] | None:
    """Size of a square image whose patches fit position embeddings of a constant number."""
    shapes = _constant_shapes(model)
    for node in model.graph.node:
        if node.op_type != "Add":
            continue
        for name in node.input:
            shape = shapes.get(name, [])[-2:]
            if len(shape) == 2 and shape[0] > 1 and shape[1] == width and width is not None:
                side = _grid_side(shape[0])
                return None if side is None else (side * patch, side * patch)
    return None


def _constant_shapes(model: Any) -> dict[str, list[int]]:
    """Shapes of the weights, of constants, and of embeddings that constants select."""
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            values = [list(each.t.dims) for each in node.attribute if each.name == "value"]
            shapes |= dict(zip(node.output, values, strict=False))
        elif node.op_type in ("Identity", "Cast") and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
        elif node.op_type == "Gather" and shapes.keys() >= set(node.input):
            table, numbers = (shapes[name] for name in node.input)
            shapes[node.output[0]] = [*numbers, *table[1:]]
    return shapes


def _grid_side(tokens: int) -> int | None:
    """Side of the square grid in a number of tokens, the first of which may be others."""
    sides = (isqrt(tokens - special) for special in range(min(MAX_SPECIAL, tokens - 1) + 1))
    found = (side for special, side in enumerate(sides) if side * side == tokens - special)
    return next(found, None)


def _integers(node: Any, name: str) -> list[int]:
    return next((list(each.ints) for each in node.attribute if each.name == name), [])
