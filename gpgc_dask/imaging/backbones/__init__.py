"""Where appearance features come from: a network that comes along, yours, or plain colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.arrays import Features
from gpgc_dask.imaging.backbones.base import Backbone
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Backbone", "find_backbone"]

BackboneLike = str | Backbone | Callable[[Pixels], Sequence[Features]]


@dataclass(frozen=True)
class Custom(Backbone):
    """Somebody's own function: (h, w, 3) uint8 RGB in, a list of (channels, h', w') maps out."""

    function: Callable[[Pixels], Sequence[Features]]

    def __call__(self, image: Pixels) -> list[Features]:
        found = self.function(image)
        if not isinstance(found, (list, tuple)) or not found:
            raise TypeError(f"{self._name} must return a list of feature maps, got {found!r:.80}")
        maps = [np.asarray(values) for values in found]
        for values in maps:
            if values.ndim != 3 or values.size == 0 or values.dtype.kind not in "fiub":
                raise TypeError(
                    f"{self._name} returned an array of shape {values.shape} and type "
                    f"{values.dtype}: a feature map is (channels, height, width) numbers"
                )
        return maps

    @property
    def _name(self) -> str:
        function = self.function
        return str(getattr(function, "__qualname__", type(function).__qualname__))

    def provenance(self) -> dict[str, Any]:
        return {"name": f"Python: {self._name}"}


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
        raise ValueError(f"{given} belong to ONNX files: {backbone!r} takes none")
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
    raise ValueError(
        f"backbone must be lite0, colour, a path that ends in .onnx or a callable, got {backbone!r}"
    )


def _onnx_file(path: str, layers: Sequence[str], options: dict[str, Any]) -> Backbone:
    from gpgc_dask.imaging.backbones.onnx import OnnxFile

    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise FileNotFoundError(f"backbone {file} does not exist")
    if isinstance(layers, str) or not layers:
        raise ValueError(
            f"{path}: name the layers to pool, one or more (layers=[...], --layer NAME)"
        )
    found = OnnxFile(str(file), tuple(layers), **options)
    found(np.zeros((64, 64, 3), dtype=np.uint8))  # complains now, not in a worker
    return found
