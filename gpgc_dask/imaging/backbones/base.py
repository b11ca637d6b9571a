"""The interface of a backbone."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Backbone", "checked_maps", "file_digest"]


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

    def photo_maps(self, photo: str | PathLike[str], image: Pixels) -> list[Features]:
        """Feature maps of a photo: by default those of its pixels, as it was read."""
        return self(image)

    def check_photos(self, photos: Sequence[str | PathLike[str]]) -> None:
        """Raise an InputError, before the work, if there are no features of some photos."""
        return

    def layer_names(self) -> tuple[str, ...]:
        """Names of the maps, in their order, if they have any."""
        return ()

    def other_layers(self) -> tuple[str, ...]:
        """Names of maps that a user could have chosen in their place, if there are any."""
        return ()

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Describe in JSON what is needed to compute the same features again.

        ``name`` is the name in the registry or the name of the file. ``weights_sha256`` identifies
        the weights of a network, ``source_sha256`` the source of a function.
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


def checked_maps(name: str, result: Any) -> list[Features]:
    """The feature maps that a user's function returned; an error if they are something else."""
    if not isinstance(result, (list, tuple)) or not result:
        raise InputTypeError(f"{name} must return a list of feature maps, got {result!r:.80}")
    maps = [np.asarray(values) for values in result]
    for values in maps:
        if values.ndim != 3 or values.size == 0 or values.dtype.kind not in "fiub":
            raise InputTypeError(
                f"{name} returned an array of shape {values.shape} and type "
                f"{values.dtype}: a feature map is (channels, height, width) numbers"
            )
    return maps
