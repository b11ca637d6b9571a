"""Names and paths that come out of a file, and not from whoever runs the program.

A dataset or a model says where its photos were and what they are called. Names become paths of
what is written, paths are read: neither may lead out of the folder it belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from gpgc_dask.core.errors import InputError

__all__ = ["check_sources", "inside"]


def inside(name: str) -> PurePosixPath:
    """The name of an image as a path within a folder, never outside it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise InputError(f"the name {str(name)!r} leads out of its folder: rename the image")
    return path


def check_sources(
    names: Iterable[str],
    images: Iterable[str],
    masks: Iterable[str],
    source: Mapping[str, Any],
) -> None:
    """Complain of photos and masks that are said to lie elsewhere than in the folders named.

    names, images, masks : of each image its name, the photo's path and the mask's
    source : of the dataset; where that is a COCO file there are no masks to read
    """
    folder = source["images"]
    for name, path in zip(names, images, strict=True):
        right = os.path.join(folder, str(inside(name)))
        if path != right and os.path.normpath(path) != os.path.normpath(right):
            raise InputError(f"{path} is not {str(name)!r} in the folder of images, {folder}")
    if "coco" in source:
        return
    folder = os.path.join(os.path.normpath(source["masks"]), "")
    for path in masks:
        if not os.path.normpath(path).startswith(folder):
            raise InputError(f"{path} is not in the folder of masks, {folder}")
