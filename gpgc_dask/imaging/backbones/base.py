"""The interface of a backbone."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Backbone", "file_digest"]


class Backbone(ABC):
    """Computes feature maps of an image. Small, hashable and cheap to send to workers."""

    @abstractmethod
    def __call__(self, image: Pixels) -> list[Features]:
        """Compute feature maps.

        Parameters
        ----------
        image : (h, w, 3) uint8 array
            The image in RGB.

        Returns
        -------
        list of (channels, h', w') arrays
            Each map covers the whole image; maps may have different resolutions.
        """

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Describe in JSON what is needed to compute the same features again.

        ``name`` is the name in the registry or the name of the file. ``weights_sha256`` identifies
        the weights of a network.
        """

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        """Create the backbone that a user chose; by default one without options.

        Parameters
        ----------
        name : str
            The name in the registry, or the path of the file.
        options : mapping
            The user's options, such as ``layers``.
        """
        if options:
            raise InputError(f"the backbone {name} has no options {', '.join(options)}: omit them")
        return cls()

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        """Create the backbone that a provenance describes.

        Parameters
        ----------
        provenance : mapping
            The result of :meth:`provenance` at ingest.
        name : str, optional
            The name, or the file's present path, if the user gives one.
        """
        if name not in (None, provenance["name"]):
            raise InputError(
                f"the features come from {provenance['name']}, not {name}: omit the name"
            )
        return cls()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
