"""The registered backbones.

To add one, write a :class:`~gpgc_dask.imaging.backbones.base.Backbone` in a module of its own and
add a line to the table here, or an entry point in the group ``gpgc_dask.backbones``. A name that
begins with a dot is the ending of the files that the backbone is read from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.imaging.backbones.base import Backbone

__all__ = ["BACKBONES", "list_backbones"]

BACKBONES: Registry[type[Backbone]] = Registry(
    "backbone",
    {
        "lite0": "gpgc_dask.imaging.backbones.onnx:Lite0",
        "colour": "gpgc_dask.imaging.backbones.colour:Colour",
        ".onnx": "gpgc_dask.imaging.backbones.onnx:OnnxFile",
    },
    "gpgc_dask.backbones",
)
"""{name or file ending: backbone class}."""


def list_backbones() -> str:
    """All backbones as help and messages list them: "lite0, colour, FILE.onnx"."""
    return ", ".join(f"FILE{name}" if name.startswith(".") else name for name in BACKBONES.names())
