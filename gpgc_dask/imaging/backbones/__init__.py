"""Sources of appearance features: a network that is included, an ONNX file, or plain colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

from gpgc_dask.imaging.backbones.registry import BACKBONES, list_backbones

if TYPE_CHECKING:
    from gpgc_dask.imaging.backbones.base import Backbone
    from gpgc_dask.imaging.backbones.find import BackboneLike, find_backbone, restore_backbone

__all__ = [
    "BACKBONES",
    "Backbone",
    "BackboneLike",
    "find_backbone",
    "list_backbones",
    "restore_backbone",
]

# `gpgc ingest --help` lists the names and needs no NumPy for that.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "base": ["Backbone"],
        "find": ["BackboneLike", "find_backbone", "restore_backbone"],
    },
)
