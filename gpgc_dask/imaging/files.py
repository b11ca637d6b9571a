"""Finding photos and masks, and pairing them."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import InputError, NotAFolderError, Problem
from gpgc_dask.core.slices import is_medical, replace_ending, split_slice, stem
from gpgc_dask.imaging.medical import list_slices

__all__ = [
    "IMAGE_SUFFIXES",
    "Pair",
    "Pairing",
    "by_stem",
    "find_images",
    "has_suffix",
    "images_in",
    "pair_masks",
    "printable",
    "rename_stem",
]

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
)


@dataclass(frozen=True)
class Pair:
    """A photo and its mask.

    Attributes
    ----------
    name : str
        Path of the photo within its folder, with forward slashes.
    image : str
        Absolute path of the photo.
    mask : str
        Absolute path of the mask, or of the file that contains it.
    """

    name: str
    image: str
    mask: str


@dataclass(frozen=True)
class Pairing:
    """Pairs in the order of their names, and files that could not be paired."""

    pairs: list[Pair]
    problems: list[Problem]


def find_images(
    folder: str | PathLike[str], leave_out: str | PathLike[str] | None = None
) -> list[str]:
    """Find the image files in a folder and its subfolders.

    Links are followed, except links to a folder above. Hidden files and other types are ignored.
    Of NIfTI files and DICOM files of several frames, each slice is an image.

    Parameters
    ----------
    folder : path
        The folder.
    leave_out : path, optional
        A subfolder to ignore.

    Returns
    -------
    list of str
        Paths within the folder, sorted, with forward slashes.
    """
    root = _existing_folder(folder)
    ignored = frozenset() if leave_out is None else frozenset([_file_id(Path(leave_out))])
    files = _walk(root, ignored)
    return sorted(one.relative_to(root).as_posix() for path in files for one in images_in(path))


def _existing_folder(folder: str | PathLike[str]) -> Path:
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise NotAFolderError(f"{root} is not a folder: name the folder that holds the images")
    return root


def _file_id(path: Path) -> tuple[int, int]:
    """Identifier of a file, equal for all paths to it."""
    status = path.expanduser().stat()
    return status.st_dev, status.st_ino


def images_in(path: Path) -> list[Path]:
    """The images in a file: it, or the slices of a volume."""
    return [Path(one) for one in list_slices(str(path))] if is_medical(path) else [path]


def _walk(folder: Path, ignored: frozenset[tuple[int, int]]) -> Iterator[Path]:
    here = _file_id(folder)
    if here in ignored:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if path.is_dir():
                yield from _walk(path, ignored | {here})
            # A broken link is reported later, as a file that cannot be opened.
            elif (path.suffix.lower() in IMAGE_SUFFIXES or is_medical(path)) and (
                path.is_file() or path.is_symlink()
            ):
                yield path


def pair_masks(
    images: str | PathLike[str],
    masks: str | PathLike[str],
    suffix: str = "",
    photo_suffix: str = "",
) -> Pairing:
    """Pair photos with the masks of the same name, with any ending, in the same subfolder.

    Parameters
    ----------
    images, masks : path
        Folders of photos and masks; the same folder is possible with a ``suffix``.
    suffix : str, default ""
        What follows the photo's name in the mask's: "_mask" pairs a.jpg with a_mask.png. Masks of
        other names are ignored.
    photo_suffix : str, default ""
        What the photo's name ends with that the mask's has not: "_image" and "_mask" pair
        a_image.jpg with a_mask.png.

    Returns
    -------
    Pairing
    """
    together = _existing_folder(images).samefile(_existing_folder(masks))
    photos = by_stem(find_images(images, leave_out=None if together else masks))
    mask_names = by_stem(find_images(masks))
    if together:
        if not suffix:
            raise InputError(
                f"images and masks are the same folder, {images}: name two, or the suffix of the "
                "masks' names (suffix, --mask-suffix _mask)"
            )
        photos = {
            own: names for own, names in photos.items() if not has_suffix(own, names[0], suffix)
        }
    mask_names = {
        own: names for own, names in mask_names.items() if has_suffix(own, names[0], suffix)
    }
    pairs, problems = [], []
    for own_stem, names in photos.items():
        expected = rename_stem(own_stem, names[0], photo_suffix, suffix)
        own = mask_names.pop(expected, [])
        reason = _unpaired_reason(expected, names, own, masks)
        if reason:
            problems += [Problem(name, reason) for name in names]
        else:
            image, mask = _absolute(images) / names[0], _absolute(masks) / own[0]
            pairs.append(Pair(names[0], str(image), str(mask)))
    for own_stem, names in mask_names.items():
        photo = rename_stem(own_stem, names[0], suffix, photo_suffix)
        reason = f"mask without a photo: there is no {photo}.* in {images}"
        problems += [Problem(name, reason) for name in names]
    return Pairing(sorted(pairs, key=lambda pair: pair.name), problems)


def has_suffix(own_stem: str, name: str, suffix: str) -> bool:
    """Whether the name of a file, or of the volume of a slice, ends with a suffix."""
    return not suffix or rename_stem(own_stem, name, suffix, "") != own_stem


def rename_stem(own_stem: str, name: str, old: str, new: str) -> str:
    """The stem of a name with another suffix; of a slice it is that of its volume."""
    return replace_ending(own_stem, old, new, of_slice=split_slice(name)[1] is not None)


def _unpaired_reason(
    own_stem: str, names: list[str], own: list[str], masks: str | PathLike[str]
) -> str | None:
    """The reason why photos of one stem have no unique mask, or None."""
    if len(names) > 1:
        return f"{' and '.join(names)} share one mask name, {own_stem}.*: rename or remove one"
    if not own:
        return f"mask missing: there is no {own_stem}.* in {masks}"
    if len(own) > 1:
        return f"several masks, {' and '.join(own)}: rename or remove one"
    return None


def _absolute(folder: str | PathLike[str]) -> Path:
    return Path(folder).expanduser().absolute()


def by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    """{name without its ending: names}."""
    stems: dict[str, list[str]] = defaultdict(list)
    for name in names:
        # A letter may have two Unicode forms; file systems differ in which they store.
        stems[unicodedata.normalize("NFC", stem(name))].append(name)
    return dict(stems)


def printable(name: object) -> str:
    """The name with invalid Unicode replaced: names of files may contain any bytes."""
    return str(name).encode(errors="replace").decode()
