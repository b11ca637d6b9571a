"""Feature maps that were computed elsewhere, one per photo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import GpgcError, InputError, MissingFileError
from gpgc_dask.core.text import preview
from gpgc_dask.imaging.backbones.base import Backbone
from gpgc_dask.imaging.photos import Pixels
from gpgc_dask.storage.location import Location, is_url

__all__ = ["StoredMaps"]

PREFIX = "maps:"

MAX_MAP_BYTES = 1 << 32
"""Bytes of one feature map at most, whatever its metadata claims."""


@dataclass(frozen=True)
class StoredMaps(Backbone):
    """Maps of photos in a Zarr group or a folder of .npy files.

    The map of ``images/a/b.jpg`` is the array ``a/b.jpg`` of the group, or the file ``a/b.npy`` or
    ``a/b.jpg.npy`` of the folder: (channels, h', w') numbers that cover the whole photo.

    Parameters
    ----------
    path : str
        The group, a path or URL, or the folder.
    images : str
        The folder of the photos.
    """

    path: str
    images: str

    def __call__(self, image: Pixels) -> list[Features]:
        raise InputError(
            f"{self.path} has the features of the photos in {self.images} only, not of an array"
        )

    def photo_maps(self, photo: str | PathLike[str], image: Pixels) -> list[Features]:
        name = self._name(photo)
        values = self._read(name)
        if values is None:
            raise MissingFileError(f"{self.path} has no features of {name}")
        if values.ndim != 3 or values.size == 0 or values.dtype.kind not in "fiub":
            raise InputError(
                f"{name} in {self.path} has shape {values.shape} and type {values.dtype}: a "
                "feature map is (channels, height, width) numbers"
            )
        return [values]

    def check_photos(self, photos: Sequence[str | PathLike[str]]) -> None:
        names = list(dict.fromkeys(self._name(photo) for photo in photos))
        missing = [name for name in names if self._place(name) is None]
        if missing:
            raise MissingFileError(
                f"{self.path} has no features of {len(missing):,} of {len(names):,} photos "
                f"({preview(missing)}): compute them, or leave these photos out"
            )

    def _name(self, photo: str | PathLike[str]) -> str:
        """Path of a photo in its folder, with forward slashes."""
        return Path(photo).absolute().relative_to(self.images).as_posix()

    def _place(self, name: str) -> Any:
        """The array or file of a photo, None if there is none."""
        group = _open(self.path)
        if group is not None:
            try:
                found = group.get(name)
            except (GpgcError, OSError):  # of the store
                raise
            except Exception as error:  # readers of metadata have no common base
                raise _unreadable(name, self.path, error) from None
            return found if isinstance(found, zarr.Array) else None
        folder = Path(self.path)
        files = (folder / f"{name}.npy", (folder / name).with_suffix(".npy"))
        return next((file for file in files if file.is_file()), None)

    def _read(self, name: str) -> Features | None:
        place = self._place(name)
        if place is None:
            return None
        try:
            if isinstance(place, zarr.Array):
                if place.nbytes > MAX_MAP_BYTES:
                    raise ValueError(f"it has {place.nbytes:,} bytes")
                return np.asarray(place[...])
            # Mapped, so that the header cannot request more than there is in the file.
            return np.array(np.load(place, mmap_mode="r", allow_pickle=False))
        except (GpgcError, OSError):  # of the store
            raise
        except Exception as error:  # codecs and readers of headers have no common base
            raise _unreadable(name, self.path, error) from None

    def provenance(self) -> dict[str, Any]:
        return {"name": PREFIX, "path": self.path}

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        settings = dict(options)
        images = settings.pop("images", None)
        if settings or images is None:
            raise InputError(
                f"{name} needs the folder of the photos and no other option: use --features in "
                "place of --backbone, or in Python images="
            )
        path = name.removeprefix(PREFIX)
        if not is_url(path):
            path = str(Path(path).expanduser().absolute())
            if not Path(path).is_dir():
                raise MissingFileError(
                    f"{path} is neither a Zarr group nor a folder of .npy files of feature maps"
                )
        _open(path)
        folder = Path(images).expanduser().absolute()
        return cls(path, str(folder if folder.is_dir() else folder.parent))

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        raise InputError(
            f"the features were computed elsewhere ({provenance['path']}): name those of these "
            "photos with --features, or in Python backbone=find_backbone('maps:PATH', images=…)"
        )


@lru_cache(2)
def _open(path: str) -> zarr.Group | None:
    """The Zarr group, None if the path is a folder of files."""
    if not is_url(path) and not any(
        (Path(path) / name).exists() for name in ("zarr.json", ".zgroup")
    ):
        return None
    try:
        return Location.of(path).group()
    except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
        raise InputError(f"{path} is not a readable Zarr group: {error}") from None


def _unreadable(name: str, path: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(
        f"{name} in {path} cannot be read ({reason:.200}): compute its features again"
    )
