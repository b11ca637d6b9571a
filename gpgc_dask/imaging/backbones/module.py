"""Functions of the user's own modules, by name: workers and later commands import them too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from importlib import import_module, invalidate_caches, reload
from types import ModuleType
from typing import Any, Self

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.backbones.base import Backbone, checked_maps, file_digest
from gpgc_dask.imaging.photos import Pixels

__all__ = ["ModuleFunction"]

_digests: dict[str, str] = {}
"""{module: digest of its source when it was loaded here}."""


@dataclass(frozen=True)
class ModuleFunction(Backbone):
    """A function of a module: (h, w, 3) uint8 RGB in, a list of (channels, h', w') maps out.

    Parameters
    ----------
    name : str
        ``module:function``.
    digest : str
        SHA-256 of the source file of the module.
    folder : str
        Where the module is looked for if it is not installed.
    """

    name: str
    digest: str
    folder: str = field(compare=False)

    def __call__(self, image: Pixels) -> list[Features]:
        return checked_maps(self.name, _load(self.name, self.digest, self.folder)(image))

    def provenance(self) -> dict[str, Any]:
        path = _source(_import(self.name, self.folder))
        return {"name": self.name, "path": path, "source_sha256": self.digest}

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        if options:
            raise InputError(f"{name} has no options {', '.join(options)}: omit them")
        folder = os.getcwd()
        digest = file_digest(_source(_import(name, folder)))
        _load(name, digest, folder)
        return cls(name, digest, folder)

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        if name not in (None, provenance["name"]):
            raise InputError(
                f"the features come from {provenance['name']}, not {name}: omit the name"
            )
        return cls.from_options(provenance["name"], {})


@lru_cache
def _load(name: str, digest: str, folder: str) -> Callable[[Pixels], Any]:
    """Import the function, again if its source has changed since it was imported here."""
    module = _import(name, folder)
    if file_digest(_source(module)) != digest:
        raise InputError(
            f"{_source(module)} differs between this process and the one that started the work: "
            "install the same version of the module everywhere"
        )
    if _digests.setdefault(module.__name__, digest) != digest:
        module = _import(name, folder, again=True)
        _digests[module.__name__] = digest
    try:
        function = reduce(getattr, name.partition(":")[2].split("."), module)
    except AttributeError as error:
        raise InputError(f"backbone {name}: {error}") from None
    if not callable(function):
        raise InputError(f"backbone {name} is not a function")
    return function


def _import(name: str, folder: str, *, again: bool = False) -> ModuleType:
    module = name.partition(":")[0]
    if folder not in sys.path:
        sys.path.append(folder)
        invalidate_caches()
    try:
        imported = import_module(module)
        return reload(imported) if again else imported
    except Exception as error:  # whatever the user's module raises
        raise InputError(
            f"backbone {name}: {module} cannot be imported ({type(error).__name__}: {error}): "
            f"install it, or start the command in the folder where it is, now {folder}"
        ) from error


def _source(module: ModuleType) -> str:
    path = getattr(module, "__file__", None)
    if path is None:
        raise InputError(f"{module.__name__} has no source file: name a function of a module")
    return str(path)
