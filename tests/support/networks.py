"""A small vision transformer as an ONNX graph, and the same computed with NumPy."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from gpgc_dask.imaging.backbones.weights import MAGIC, PROTOCOL

PATCH, WIDTH, SPECIAL = 14, 12, 5
"""Side of the patches, channels, and tokens in front of them: one class token, four registers."""

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

FLOAT = TensorProto.FLOAT


def weights(seed=0):
    """Weights of the patches, the special tokens, and one layer of attention."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    names = {"patch": (WIDTH, 3, PATCH, PATCH), "special": (1, SPECIAL, WIDTH)}
    names |= dict.fromkeys(("query", "key", "value"), (WIDTH, WIDTH))
    return {name: normal(*shape) for name, shape in names.items()}


def save_vit(
    path, *, seed=0, size=("h", "w"), last=False, kind=TensorProto.FLOAT, grid=None, **save
):
    """Save the network; ``size`` of the input, ``grid``: patches per side of fixed positions.

    Its outputs are ``last_hidden_state`` (1, T, WIDTH) and ``pooled`` (1, WIDTH).
    """
    tensors = weights(seed)
    nodes = [helper.make_node("Cast", ["pixel_values"], ["float"], to=FLOAT)]
    if last:
        nodes.append(helper.make_node("Transpose", ["float"], ["image"], perm=[0, 3, 1, 2]))
    strides = {"kernel_shape": [PATCH, PATCH], "strides": [PATCH, PATCH]}
    nodes += [
        helper.make_node("Conv", ["image" if last else "float", "patch"], ["maps"], **strides),
        helper.make_node("Reshape", ["maps", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["special", "patches"], ["bare"], axis=1),
    ]
    tensors["flat"] = np.array([1, WIDTH, -1])
    if grid is None:
        nodes.append(helper.make_node("Identity", ["bare"], ["tokens"]))
    else:
        tensors["positions"] = np.ones((1, SPECIAL + grid**2, WIDTH), dtype=np.float32)
        nodes.append(helper.make_node("Add", ["bare", "positions"], ["tokens"]))
    nodes += [
        helper.make_node("MatMul", ["tokens", "query"], ["q"]),
        helper.make_node("MatMul", ["tokens", "key"], ["k"]),
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["attention"], axis=-1),
        helper.make_node("MatMul", ["tokens", "value"], ["v"]),
        helper.make_node("MatMul", ["attention", "v"], ["mixed"]),
        helper.make_node("Add", ["tokens", "mixed"], ["last_hidden_state"]),
        helper.make_node("ReduceMean", ["last_hidden_state"], ["pooled"], axes=[1], keepdims=0),
    ]
    channels = 3 if isinstance(size[0], int) else "channels"
    shape = ["batch", *size, channels] if last else ["batch", channels, *size]
    image = helper.make_tensor_value_info("pixel_values", kind, shape)
    outputs = [
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [1, "t", WIDTH]),
        helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [1, WIDTH]),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "vit", [image], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path, **save)
    return path


def vit_map(image, side, *, seed=0, mean=MEAN, std=STD, size=None, positions=0.0, dtype=np.float64):
    """The (WIDTH, h', w') map of an image, in float64: a second implementation of the network."""
    h, w = image.shape[:2]
    scale = side / max(h, w) / PATCH
    h, w = size or (max(round(h * scale), 1) * PATCH, max(round(w * scale), 1) * PATCH)
    small = np.asarray(Image.fromarray(image).resize((w, h), Image.Resampling.BILINEAR))
    values = ((small.astype(np.float64) - mean) / std).astype(dtype).astype(np.float64)
    t = {name: array.astype(np.float64) for name, array in weights(seed).items()}
    cells = values.reshape(h // PATCH, PATCH, w // PATCH, PATCH, 3)
    patches = np.einsum("yixjc,ocij->yxo", cells, t["patch"])
    tokens = np.concatenate([t["special"][0], patches.reshape(-1, WIDTH)]) + positions
    scores = tokens @ t["query"] @ (tokens @ t["key"]).T
    attention = np.exp(scores - scores.max(1, keepdims=True))
    attention /= attention.sum(1, keepdims=True)
    mixed = tokens + attention @ (tokens @ t["value"])
    return np.moveaxis(mixed[SPECIAL:].reshape(patches.shape), -1, 0)


# -- files of torch.save ---------------------------------------------------------------------------


def torch_file(path, content, storages=(), keys=None, *, head=(MAGIC, PROTOCOL)):
    """A file as torch.save wrote it: four pickles, storage keys, storages."""
    machine = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {}}
    body = b"".join(pickle.dumps(part, 2) for part in (*head, machine)) + content
    body += pickle.dumps([key for key, _ in storages] if keys is None else keys, 2)
    for _, values in storages:
        body += struct.pack("<q", values.size) + values.tobytes()
    path.write_bytes(body)
    return path


def tensor_pickle(shape=(2, 3), stride=(3, 1), offset=0, length=6, storage="FloatStorage"):
    """A pickle of {"a": tensor}, opcode by opcode."""

    def integer(n):
        return b"J" + struct.pack("<i", n)

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def numbers(values):
        return b"(" + b"".join(map(integer, values)) + b"t"

    reference = b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text("0") + text("cpu")
    reference += integer(length) + b"NtQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + reference + integer(offset)
    tensor += numbers(shape) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + text("a") + tensor + b"u."
