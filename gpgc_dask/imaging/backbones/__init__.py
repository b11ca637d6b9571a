"""Where appearance features come from: a network that comes along, yours, or plain colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, InputTypeError, MissingFileError
from gpgc_dask.imaging.backbones.base import Backbone, file_digest
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Backbone", "BackboneLike", "backbone_of", "find_backbone"]

PYTHON = "Python: "
"""How the names of functions begin in a provenance."""

BackboneLike = str | Backbone | Callable[[Pixels], Sequence[Features]]


@dataclass(frozen=True)
class Custom(Backbone):
    """Somebody's own function: (h, w, 3) uint8 RGB in, a list of (channels, h', w') maps out."""

    function: Callable[[Pixels], Sequence[Features]]

    def __call__(self, image: Pixels) -> list[Features]:
        found = self.function(image)
        if not isinstance(found, (list, tuple)) or not found:
            raise InputTypeError(
                f"{self._name} must return a list of feature maps, got {found!r:.80}"
            )
        maps = [np.asarray(values) for values in found]
        for values in maps:
            if values.ndim != 3 or values.size == 0 or values.dtype.kind not in "fiub":
                raise InputTypeError(
                    f"{self._name} returned an array of shape {values.shape} and type "
                    f"{values.dtype}: a feature map is (channels, height, width) numbers"
                )
        return maps

    @property
    def _name(self) -> str:
        function = self.function
        return str(getattr(function, "__qualname__", type(function).__qualname__))

    def provenance(self) -> dict[str, Any]:
        return {"name": f"{PYTHON}{self._name}"}


def find_backbone(
    backbone: BackboneLike = "lite0", layers: Sequence[str] = (), **options: Any
) -> Backbone:
    """The backbone of a name (lite0, colour), an ONNX file or a Python callable.

    layers : of an ONNX file, the names of the tensors to pool
    options : of an ONNX file, ``side``, ``mean`` and ``std``
    """
    if isinstance(backbone, str) and backbone.lower().endswith(".onnx"):
        return _onnx_file(backbone, layers, options)
    if layers or options:
        given = ", ".join(["layers"] * bool(layers) + list(options))
        raise InputError(f"{given} belong to ONNX files: {backbone!r} takes none")
    if isinstance(backbone, Backbone):
        return backbone
    if backbone == "lite0":
        from gpgc_dask.imaging.backbones.onnx import Lite0

        return Lite0()
    if backbone == "colour":
        from gpgc_dask.imaging.backbones.colour import Colour

        return Colour()
    if callable(backbone):
        return Custom(backbone)
    raise InputError(
        f"backbone must be lite0, colour, a path that ends in .onnx or a callable, got {backbone!r}"
    )


def _onnx_file(path: str, layers: Sequence[str], options: dict[str, Any]) -> Backbone:
    from gpgc_dask.imaging.backbones.onnx import OnnxFile

    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise MissingFileError(f"backbone {file} does not exist")
    if isinstance(layers, str) or not layers:
        raise InputError(
            f"{path}: name the layers to pool, one or more (layers=[...], --layer NAME)"
        )
    found = OnnxFile(str(file), tuple(layers), **options)
    found(np.zeros((64, 64, 3), dtype=np.uint8))  # complains now, not in a worker
    return found


def backbone_of(provenance: Mapping[str, Any], backbone: BackboneLike | None = None) -> Backbone:
    """The backbone that a provenance tells of, to compute the same features again.

    backbone : where its ONNX file lies now, or the Python callable that it was

    The version of onnxruntime may be another; weights and settings may not.
    """
    name = str(provenance["name"])
    if backbone is not None and not isinstance(backbone, str):
        found = find_backbone(backbone)
    elif {"layers", "side", "mean", "std", "weights_sha256"} <= provenance.keys():
        return _file_of(provenance, backbone)
    elif name not in ("lite0", "colour"):
        raise InputError(
            f"the model's features come from {name}, which is not at hand: pass it as backbone= to "
            "predict_masks in Python; the command line cannot"
        )
    elif backbone not in (None, name):
        raise InputError(f"the model's features come from {name}, not {backbone}: leave it out")
    elif name == "lite0":
        from gpgc_dask.imaging.backbones.onnx import Lite0

        found = Lite0(int(provenance["side"]))
    else:
        found = find_backbone(name)
    _check_same(provenance, found.provenance())
    return found


def _file_of(provenance: Mapping[str, Any], path: str | None) -> Backbone:
    place = path or provenance.get("path")
    if place is None:
        raise InputError(
            f"the model does not say where its network {provenance['name']} lies: name it with "
            "backbone= (--backbone FILE.onnx)"
        )
    file = Path(place).expanduser().absolute()
    if not file.is_file():
        raise MissingFileError(
            f"the model's network is not at {file}: say where it is now with backbone= "
            "(--backbone FILE.onnx)"
        )
    _check_same(provenance, {**provenance, "weights_sha256": file_digest(file), "name": str(file)})
    given = {part: tuple(provenance[part]) for part in ("mean", "std")}
    return _onnx_file(str(file), provenance["layers"], {"side": provenance["side"], **given})


def _check_same(there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Complain where a backbone does not give the features that a provenance tells of.

    Equal weights may lie elsewhere under another name; of Python functions nothing else is known.
    """
    if there.get("weights_sha256") != here.get("weights_sha256"):
        raise InputError(
            f"{here['name']} has other weights than the model was fitted with, so the model's "
            "features cannot be computed: bring back the file or package of then, or fit anew"
        )
    free = {"onnxruntime", "path"}
    functions = all(str(one["name"]).startswith(PYTHON) for one in (there, here))
    if functions or "weights_sha256" in there:
        free.add("name")
    for part in sorted((there.keys() | here.keys()) - free):
        if there.get(part) != here.get(part):
            raise InputError(
                f"the model was fitted on features of another backbone: {part} was "
                f"{there.get(part)}, not {here.get(part)}; pass the one of then"
            )
