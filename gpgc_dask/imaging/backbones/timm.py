"""Networks of timm, run by PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Self

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, MissingDependencyError
from gpgc_dask.imaging.backbones.base import Backbone
from gpgc_dask.imaging.backbones.onnx import SIDE, scale_image
from gpgc_dask.imaging.photos import Pixels

__all__ = ["TimmModel"]

PREFIX = "timm:"
LAST = 3
"""Number of the last stages, or blocks of a transformer, whose maps are taken."""


@dataclass(frozen=True)
class TimmModel(Backbone):
    """The last three feature maps of a network of timm.

    Parameters
    ----------
    model : str
        Its name in timm, such as ``resnet50`` or ``vit_small_patch14_dinov2``.
    side : int, default 512
        Longest side in pixels of the image that the network sees.
    pretrained : bool, default True
        Whether it has the weights that timm downloads, or random ones.
    """

    model: str
    side: int = SIDE
    pretrained: bool = True

    def __call__(self, image: Pixels) -> list[Features]:
        import torch

        network, multiple, mean, std = _load(self.model, self.pretrained)
        pixels = scale_image(image, self.side, multiple) / np.float32(255)
        values = torch.from_numpy((pixels - mean) / std).permute(2, 0, 1)[None]
        with torch.inference_mode():
            return [maps[0].numpy() for maps in network(values)[-LAST:]]

    def provenance(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, tensor in sorted(_load(self.model, self.pretrained)[0].state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return {
            "name": PREFIX + self.model,
            "side": self.side,
            "pretrained": self.pretrained,
            "weights_sha256": digest.hexdigest(),
            "versions": {name: version(name) for name in ("timm", "torch")},
        }

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        unknown = options.keys() - {"side", "pretrained"}
        if unknown:
            raise InputError(f"{name} has no option {', '.join(sorted(unknown))}: omit it")
        model = cls(name.removeprefix(PREFIX), **options)
        _load(model.model, model.pretrained)
        return model

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        if name not in (None, provenance["name"]):
            raise InputError(
                f"the features come from {provenance['name']}, not {name}: omit the name"
            )
        settings = {part: provenance[part] for part in ("side", "pretrained")}
        return cls.from_options(provenance["name"], settings)


@lru_cache(1)
def _load(model: str, pretrained: bool) -> tuple[Any, int, Features, Features]:
    """(network, multiple of its input's sides, mean, std of values 0 … 1)."""
    try:
        import timm
        import torch
    except ImportError:
        raise MissingDependencyError(
            f'{PREFIX}{model} needs PyTorch and timm: pip install "gpgc_dask[timm]"'
        ) from None
    torch.set_num_threads(1)  # workers run in parallel
    torch.manual_seed(0)  # random weights are the same on every worker
    create = partial(timm.create_model, model, pretrained=pretrained, features_only=True)
    try:
        try:
            network = create(dynamic_img_size=True)  # of transformers
        except TypeError:
            network = create()
    except Exception as error:  # of timm, the hub and PyTorch
        raise InputError(
            f"timm cannot make {model} ({type(error).__name__}: "
            f"{' '.join(str(error).split()):.200}); in Python timm.list_models() lists the names"
        ) from None
    mean, std = (np.array(network.pretrained_cfg[name], np.float32) for name in ("mean", "std"))
    return network.eval(), max(network.feature_info.reduction()), mean, std
