"""From what a user names, or a dataset's provenance, to a backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.core.stored import reading_stored
from gpgc_dask.imaging.backbones.base import Backbone, checked_maps
from gpgc_dask.imaging.backbones.registry import BACKBONES, find_kind, list_backbones
from gpgc_dask.imaging.photos import Pixels

__all__ = ["BackboneLike", "find_backbone", "restore_backbone"]

PYTHON = "Python: "
"""The names of Python functions begin with this in a provenance."""

CONTENTS = {"weights_sha256": "weights", "source_sha256": "source code"}
"""{digest in a provenance: what it is of}."""

BackboneLike = str | Backbone | Callable[[Pixels], Sequence[Features]]


@dataclass(frozen=True)
class Custom(Backbone):
    """A Python function: (h, w, 3) uint8 RGB in, a list of (channels, h', w') maps out."""

    function: Callable[[Pixels], Sequence[Features]]

    def __call__(self, image: Pixels) -> list[Features]:
        return checked_maps(self._name, self.function(image))

    @property
    def _name(self) -> str:
        function = self.function
        return str(getattr(function, "__qualname__", type(function).__qualname__))

    def provenance(self) -> dict[str, Any]:
        return {"name": f"{PYTHON}{self._name}"}


def find_backbone(backbone: BackboneLike = "lite0", **options: Any) -> Backbone:
    """Find a backbone by name or file, or make one of a Python function.

    Parameters
    ----------
    backbone : str, Backbone or callable, default "lite0"
        A registered name (``BACKBONES.names()``), the path of an ONNX file,
        ``hf:ORG/MODEL[@REVISION]``, ``timm:NAME``, ``module:function``, ``maps:PATH``, or a
        function: (h, w, 3) uint8 RGB in, list of (channels, h', w') maps out.
    **options
        Options of the backbone. An ONNX file takes ``layers`` (names of the tensors to pool, by
        default its only feature map), ``side``, ``mean`` and ``std``; ``maps:PATH`` takes
        ``images``, the folder of the photos.

    Returns
    -------
    Backbone

    Examples
    --------
    >>> from gpgc_dask.imaging.backbones import find_backbone
    >>> find_backbone("colour").provenance()
    {'name': 'colour'}
    """
    if isinstance(backbone, str):
        kind = find_kind(backbone)
        if kind is None:
            raise InputError(
                f"backbone must be one of {list_backbones()}, or a callable, got {backbone!r}"
            )
        return BACKBONES[kind].from_options(backbone, options)
    if options:
        raise InputError(f"{', '.join(options)}: only a backbone given by its name has options")
    if isinstance(backbone, Backbone):
        return backbone
    if callable(backbone):
        return Custom(backbone)
    raise InputTypeError(f"backbone must be a name, a path or a callable, got {backbone!r}")


def restore_backbone(
    provenance: Mapping[str, Any], backbone: BackboneLike | None = None
) -> Backbone:
    """Make the backbone that a provenance describes, to compute the same features again.

    The version of onnxruntime may differ; weights and settings may not.

    Parameters
    ----------
    provenance : mapping
        The result of :meth:`Backbone.provenance` at ingest.
    backbone : str, Backbone or callable, optional
        The present path of its file, or the Python function that it was.

    Raises
    ------
    InputError
        If the backbone is not available, or is not the same.
    """
    with reading_stored("description of the network"):
        restored = _restore(provenance, backbone)
        _check_same(provenance, restored.provenance())
    return restored


def _restore(provenance: Mapping[str, Any], backbone: BackboneLike | None) -> Backbone:
    name = str(provenance["name"])
    kind = None if name.startswith(PYTHON) else find_kind(name)
    if backbone is not None and not isinstance(backbone, str):
        return find_backbone(backbone)
    if kind is None:
        raise InputError(
            f"the features come from {name}, which is not registered: the program cannot compute "
            "them; in Python pass it as backbone="
        )
    return BACKBONES[kind].from_provenance(provenance, backbone)


def _check_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an InputError if a backbone does not compute the features that a provenance describes.

    Equal weights may be elsewhere under another name; of Python functions nothing else is known.
    """
    for part, content in CONTENTS.items():
        if then.get(part) != now.get(part):
            raise InputError(
                f"{now.get('path', now['name'])} has other {content} than at ingest, so the same "
                "features cannot be computed: restore the earlier file or package, or ingest and "
                "fit again"
            )
    ignored = {"onnxruntime", "device", "path", "versions"}
    functions = all(str(one["name"]).startswith(PYTHON) for one in (then, now))
    if functions or "weights_sha256" in then:
        ignored |= {"name", "revision", "file"}
    for part in sorted((then.keys() | now.keys()) - ignored):
        if then.get(part) != now.get(part):
            raise InputError(
                f"the features at ingest are of another backbone: {part} was {then.get(part)}, not "
                f"{now.get(part)}; pass the same backbone"
            )
