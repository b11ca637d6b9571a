"""Slices of volumes: how they are named, and which file they are in.

A volume is a NIfTI file or a DICOM file of several frames. Its slices are images named
``case.nii.gz/0001``, as if it were a folder; numbers begin at 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import PurePath

from gpgc_dask.core.tiles import split_address

__all__ = [
    "is_medical",
    "replace_ending",
    "slice_name",
    "split_slice",
    "stem",
    "stored_file",
    "volume_groups",
]

ENDINGS = (".nii", ".nii.gz", ".dcm")

SLICE = re.compile(r"^(.+\.(?:nii|nii\.gz|dcm))[/\\](\d{4,})$", re.IGNORECASE | re.DOTALL)


def slice_name(volume: str, number: int) -> str:
    """Name or path of a slice of a volume; numbers are from 1."""
    return f"{volume}/{number:04d}"


def split_slice(path: str | PathLike[str]) -> tuple[str, int | None]:
    """File and number of a slice; a number of None is the whole file."""
    text = fspath(path)
    match = SLICE.match(text)
    return (text, None) if match is None else (match[1], int(match[2]))


def is_medical(path: str | PathLike[str]) -> bool:
    """Whether a path is that of a NIfTI or DICOM file, or of a slice in it."""
    return split_slice(path)[0].lower().endswith(ENDINGS)


def stored_file(address: str | PathLike[str]) -> str:
    """The file that holds an image: a photo, a tile of a scene or a slice of a volume."""
    return split_slice(split_address(address)[0])[0]


def stem(name: str) -> str:
    """Name of an image without its ending; that of a slice is ``case/0001``."""
    volume, number = split_slice(name)
    if number is not None:
        return f"{_without_ending(volume)}/{number:04d}"
    if is_medical(name):
        return _without_ending(name)
    bare = name.removesuffix(PurePath(name).suffix)
    return bare if bare == name or split_slice(bare)[1] is None else stem(bare)


def _without_ending(name: str) -> str:
    ending = next(one for one in reversed(ENDINGS) if name.lower().endswith(one))
    return name[: -len(ending)]


def replace_ending(name_stem: str, old: str, new: str, *, of_slice: bool) -> str:
    """The stem with another text at its end; of a slice, at the end of the volume's."""
    volume, slash, number = name_stem.rpartition("/") if of_slice else (name_stem, "", "")
    return f"{volume.removesuffix(old)}{new}{slash}{number}"


def volume_groups(names: Sequence[str]) -> Mapping[str, str]:
    """{slice: volume}, as slices of one volume support each other's errors.

    Slices of the only volume are on their own, as nothing else could judge them.
    """
    groups = {name: split_slice(name)[0] for name in names}
    if len({*groups.values()}) < 2:
        return {}
    return {name: volume for name, volume in groups.items() if volume != name}
