"""Reading tensors from a PyTorch file without PyTorch and without trusting the file.

A pickle is a program. The unpickler here accepts three things only: an ordered dict, storages of
plain numbers, and tensors that are views of them. A file that names anything else is rejected
before the name is looked up.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import UnsafeWeightsError

__all__ = ["read_tensors"]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001

STORAGES = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ByteStorage": np.dtype("u1"),
}

MALFORMED = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    MemoryError,
    RecursionError,
    OverflowError,
)
"""Errors that a malformed pickle may raise in the unpickler."""


def read_tensors(path: str | PathLike[str]) -> dict[str, Features]:
    """Read the named tensors of a file that ``torch.save(state_dict)`` wrote in its older format.

    The file holds four pickles (magic number, version, machine, the dict) and a list of storage
    keys, then for each storage its length and its raw numbers.
    """
    content = Path(path).read_bytes()
    try:
        tensors = _read(io.BytesIO(content), len(content))
    except UnsafeWeightsError as error:
        raise UnsafeWeightsError(f"{path} is rejected: {error}") from None
    except MALFORMED as error:
        raise UnsafeWeightsError(
            f"{path} is not a file of tensors as torch.save writes a state dict "
            f"({type(error).__name__}: {error})"
        ) from None
    return tensors


def _read(file: io.BytesIO, size: int) -> dict[str, Features]:
    if _Unpickler(file).load() != MAGIC or _Unpickler(file).load() != PROTOCOL:
        raise UnsafeWeightsError("it does not begin like such a file")
    machine = _Unpickler(file).load()
    if machine.get("little_endian") is not True:
        raise UnsafeWeightsError("its numbers are not little-endian")
    tensors = _Tensors(file, size)
    named = tensors.load()
    tensors.fill(_Unpickler(file).load())
    if not isinstance(named, dict):
        raise UnsafeWeightsError("it contains no dict of tensors")
    for name, value in named.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise UnsafeWeightsError(f"its entry {name!r} is not a tensor")
    return dict(named)


class _Unpickler(pickle.Unpickler):
    """Reads plain values; no name in the file is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise UnsafeWeightsError(f"it names {module}.{name}, and only tensors are read")

    def persistent_load(self, saved: Any) -> Any:
        raise UnsafeWeightsError(f"it refers to {saved!r}, and only tensors are read")


class _Tensors(_Unpickler):
    """Reads a dict of tensors, whose numbers follow it in the file and are filled in later."""

    def __init__(self, file: io.BytesIO, size: int) -> None:
        super().__init__(file)
        self._file = file
        self._bytes_left = size
        self._storages: dict[str, Features] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        return super().find_class(module, name)

    def persistent_load(self, saved: Any) -> Features:
        kind, dtype, key, _, length, _ = saved
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise UnsafeWeightsError(f"it refers to {saved!r}, and only tensors are read")
        if key not in self._storages:
            self._bytes_left -= length * dtype.itemsize
            if length < 0 or self._bytes_left < 0:
                raise UnsafeWeightsError("its storages are larger than the file")
            self._storages[key] = np.zeros(length, dtype)
        return self._storages[key]

    def fill(self, keys: Any) -> None:
        """Read the numbers of each storage, in the order of ``keys``."""
        if sorted(keys) != sorted(self._storages):
            raise UnsafeWeightsError("its storages are not those its tensors name")
        for key in keys:
            storage = self._storages[key]
            length = int(np.frombuffer(self._file.read(8), "<i8")[0])
            if length != storage.size:
                raise UnsafeWeightsError(f"storage {key} does not have the recorded length")
            storage[:] = np.frombuffer(self._file.read(storage.nbytes), storage.dtype)


def _view(
    storage: Any,
    offset: Any,
    shape: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
) -> Features:
    """A tensor: a strided view of a storage, within its bounds."""
    if not isinstance(storage, np.ndarray) or len(shape) != len(stride):
        raise UnsafeWeightsError("a tensor in it is not a view of a storage")
    if offset < 0 or any(n < 0 for n in shape) or any(n < 0 for n in stride):
        raise UnsafeWeightsError("a tensor in it has a negative size")
    last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    if 0 not in shape and last >= storage.size:
        raise UnsafeWeightsError("a tensor in it reaches beyond its storage")
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)
