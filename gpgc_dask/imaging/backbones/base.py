"""The one small interface behind which every source of appearance features stands."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from gpgc_dask.core.arrays import Features
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Backbone", "file_digest"]


class Backbone(ABC):
    """Image in, feature maps out. Small, hashable and cheap to send to workers."""

    @abstractmethod
    def __call__(self, image: Pixels) -> list[Features]:
        """Maps (channels, h', w') of an image (h, w, 3), in RGB; each covers the whole image."""

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """What a reader of the dataset must know to compute the same features again, as JSON."""


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
