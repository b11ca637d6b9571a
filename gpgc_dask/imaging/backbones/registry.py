"""The registered backbones.

To add one, write a :class:`~gpgc_dask.imaging.backbones.base.Backbone` in a module of its own and
add a line to the table here, or an entry point in the group ``gpgc_dask.backbones``. A name that
begins with a dot is the ending of the files that the backbone is read from. A name with a colon is
a pattern: ``hf:ORG/MODEL`` stands for all names that begin with ``hf:``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.imaging.backbones.base import Backbone

__all__ = ["BACKBONES", "find_kind", "list_backbones"]

MODULE = "MODULE:FUNCTION"
"""Stands for all names of this form that no other pattern stands for."""

BACKBONES: Registry[type[Backbone]] = Registry(
    "backbone",
    {
        "lite0": "gpgc_dask.imaging.backbones.onnx:Lite0",
        "colour": "gpgc_dask.imaging.backbones.colour:Colour",
        ".onnx": "gpgc_dask.imaging.backbones.onnx:OnnxFile",
        "hf:ORG/MODEL": "gpgc_dask.imaging.backbones.hub:HubModel",
        "timm:NAME": "gpgc_dask.imaging.backbones.timm:TimmModel",
        "maps:PATH": "gpgc_dask.imaging.backbones.maps:StoredMaps",
        MODULE: "gpgc_dask.imaging.backbones.module:ModuleFunction",
    },
    "gpgc_dask.backbones",
)
"""{name or file ending: backbone class}."""


def list_backbones() -> str:
    """All backbones as help and messages list them: "lite0, colour, FILE.onnx"."""
    return ", ".join(f"FILE{name}" if name.startswith(".") else name for name in BACKBONES.names())


def find_kind(backbone: str) -> str | None:
    """The key of a name, a file or a pattern in the registry, None if there is none."""
    names = BACKBONES.names()
    prefix, colon, _ = backbone.partition(":")
    patterns = {name.partition(":")[0]: name for name in names if ":" in name}
    keys = [backbone, patterns.get(prefix) if colon else None, Path(backbone).suffix.lower()]
    found = next((key for key in keys if key in names), None)
    if found is None and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", backbone):
        return MODULE
    return found
