"""Where onnxruntime runs networks: on a GPU if there is one that it can use, else on the CPU."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from onnx import TensorProto, helper

# Newer versions send telemetry from the moment they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from gpgc_dask.core.errors import InputError

__all__ = ["DEVICES", "RUNTIME", "VARIABLE", "choose_device", "open_session"]

RUNTIME = str(onnxruntime.__version__)
"""Version of onnxruntime."""

DEVICES = {
    "cuda": "CUDAExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
"""{device: execution provider of onnxruntime}, the first that works is chosen."""

VARIABLE = "GPGC_DEVICE"
"""Environment variable that chooses the device."""


def choose_device() -> str:
    """Choose the device for this process and the workers that it sends work to.

    Returns
    -------
    str
        A key of :data:`DEVICES`: that of the environment variable ``GPGC_DEVICE``, or the first on
        which onnxruntime can run a network here.
    """
    device = os.environ.get(VARIABLE, "auto").lower()
    if device == "auto":
        return next(name for name in DEVICES if _works(name))
    if device not in DEVICES:
        raise InputError(f"{VARIABLE} must be auto, {', '.join(DEVICES)}, got {device!r}")
    if not _works(device):
        raise InputError(
            f"{VARIABLE}={device}, and the installed onnxruntime cannot run networks there: "
            f"install a build of onnxruntime that can, or use {VARIABLE}=cpu"
        )
    return device


@lru_cache
def _works(device: str) -> bool:
    """Whether a network runs there; onnxruntime lists what it was built for, not what exists."""
    if device == "cpu":
        return True
    if DEVICES[device] not in onnxruntime.get_available_providers():
        return False
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return DEVICES[device] in _session(model.SerializeToString(), device).get_providers()


def open_session(model: bytes, device: str = "cpu") -> onnxruntime.InferenceSession:
    """Open a session on one thread: workers run in parallel, and results are reproducible."""
    session = _session(model, device)
    if DEVICES[device] not in session.get_providers():
        raise InputError(
            f"a worker cannot run networks on {device}, which was chosen where the command was "
            f"started: set {VARIABLE}=cpu there"
        )
    return session


def _session(model: bytes, device: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    usable = set(onnxruntime.get_available_providers())
    wanted = dict.fromkeys([DEVICES[device], DEVICES["cpu"]])
    providers = [provider for provider in wanted if provider in usable]
    return onnxruntime.InferenceSession(model, options, providers=providers)
