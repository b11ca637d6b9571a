"""Checks of names and paths that come from a file and not from the user.

Datasets and models contain names and paths of photos. Files are written under these names and read
from these paths: neither may lead out of the folder it belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.tiles import scene_name, split_address

__all__ = ["check_names", "check_sources", "relative_path"]


def relative_path(name: str) -> PurePosixPath:
    """Convert the name of an image to a path within a folder; raise an InputError if it is not."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise InputError(f"the name {str(name)!r} leads out of its folder: rename the image")
    return path


def check_names(names: Iterable[str], photos: Iterable[str]) -> None:
    """Raise an InputError if an image has another name than its photo, or a name below it."""
    for name, photo in zip(names, photos, strict=True):
        relative_path(name)
        if name != photo and not name.startswith(f"{photo}/"):
            raise InputError(f"the image {name!r} is not of the photo {photo!r}")


def check_sources(
    names: Iterable[str],
    images: Iterable[str],
    masks: Iterable[str],
    source: Mapping[str, Any],
) -> None:
    """Raise an InputError if a photo or mask is not in the folder that the dataset names.

    Parameters
    ----------
    names, images, masks : iterable of str
        Name of each photo, path of its file and path of its mask.
    source : mapping
        Provenance of the masks: ``images`` is the folder of photos, ``masks`` the folder of masks,
        or the one file that has them all.
    """
    folder = source["images"]
    for name, path in zip(names, images, strict=True):
        file, tile = split_address(path)
        whole = name if tile is None else scene_name(str(name))
        expected = os.path.join(folder, str(relative_path(whole)))
        if os.path.normpath(file) != os.path.normpath(expected):
            raise InputError(f"{path} is not {str(name)!r} in the folder of images, {folder}")
    root = os.path.normpath(source["masks"])
    folder = os.path.join(root, "")
    for path in masks:
        normal = os.path.normpath(split_address(path)[0])
        if normal != root and not normal.startswith(folder):
            raise InputError(f"{path} is not in the folder of masks, {folder}")
