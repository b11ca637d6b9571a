"""Which photos and masks there are, and which belong together."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import InputError, NotAFolderError, Problem

__all__ = ["IMAGE_SUFFIXES", "Found", "Pair", "by_stem", "find_images", "pair_masks", "printable"]

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
)


@dataclass(frozen=True)
class Pair:
    """A photo and its mask. ``name``: path of the photo within its folder, with forward slashes."""

    name: str
    image: str
    mask: str


@dataclass(frozen=True)
class Found:
    """Pairs in the order of their names, and what could not be paired."""

    pairs: list[Pair]
    problems: list[Problem]


def find_images(
    folder: str | PathLike[str], leave_out: str | PathLike[str] | None = None
) -> list[str]:
    """Names of the image files in a folder and its subfolders, sorted, with forward slashes.

    Links are followed, except a link to a folder that one is already in. Hidden files and other
    types are passed over, and so is the folder ``leave_out``.
    """
    root = _checked(folder)
    passed = frozenset() if leave_out is None else frozenset([_file_id(Path(leave_out))])
    return sorted(path.relative_to(root).as_posix() for path in _walk(root, passed))


def _checked(folder: str | PathLike[str]) -> Path:
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise NotAFolderError(f"{root} is not a folder: name the folder that holds the images")
    return root


def _file_id(path: Path) -> tuple[int, int]:
    """The same for all ways to the same file."""
    status = path.expanduser().stat()
    return status.st_dev, status.st_ino


def _walk(folder: Path, inside: frozenset[tuple[int, int]]) -> Iterator[Path]:
    here = _file_id(folder)
    if here in inside:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if path.is_dir():
                yield from _walk(path, inside | {here})
            # A link that leads nowhere is named later, as a file that cannot be opened.
            elif path.suffix.lower() in IMAGE_SUFFIXES and (path.is_file() or path.is_symlink()):
                yield path


def pair_masks(images: str | PathLike[str], masks: str | PathLike[str], suffix: str = "") -> Found:
    """Photos with the masks of the same name, whatever the ending, in the same subfolder.

    ``suffix`` follows the photo's name in the mask's: "_mask" pairs a.jpg with a_mask.png, and
    lets both lie in one folder.
    """
    together = _checked(images).samefile(_checked(masks))
    photos = by_stem(find_images(images, leave_out=None if together else masks))
    drawn = by_stem(find_images(masks))
    if together:
        if not suffix:
            raise InputError(
                f"images and masks are the same folder, {images}: name two, or say how the masks' "
                "names end (mask_suffix, --mask-suffix _mask)"
            )
        photos = {stem: names for stem, names in photos.items() if not stem.endswith(suffix)}
        drawn = {stem: names for stem, names in drawn.items() if stem.endswith(suffix)}
    pairs, problems = [], []
    for stem, names in photos.items():
        found = drawn.pop(stem + suffix, [])
        reason = _unpaired(stem + suffix, names, found, masks)
        if reason:
            problems += [Problem(name, reason) for name in names]
        else:
            image, mask = _absolute(images) / names[0], _absolute(masks) / found[0]
            pairs.append(Pair(names[0], str(image), str(mask)))
    for stem, names in drawn.items():
        reason = f"mask without a photo: there is no {stem.removesuffix(suffix)}.* in {images}"
        problems += [Problem(name, reason) for name in names]
    return Found(sorted(pairs, key=lambda pair: pair.name), problems)


def _unpaired(
    stem: str, names: list[str], found: list[str], masks: str | PathLike[str]
) -> str | None:
    """Why photos of one stem have no mask that is certainly theirs."""
    if len(names) > 1:
        return f"{' and '.join(names)} share one mask name, {stem}.*: rename or remove one"
    if not found:
        return f"mask missing: there is no {stem}.* in {masks}"
    if len(found) > 1:
        return f"several masks, {' and '.join(found)}: rename or remove one"
    return None


def _absolute(folder: str | PathLike[str]) -> Path:
    return Path(folder).expanduser().absolute()


def by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    """{name without its ending: names}."""
    stems: dict[str, list[str]] = defaultdict(list)
    for name in names:
        # One letter may be written in two ways; file systems differ in which they keep.
        stem = unicodedata.normalize("NFC", name[: -len(Path(name).suffix)])
        stems[stem].append(name)
    return dict(stems)


def printable(name: object) -> str:
    """Names of files need not be valid Unicode."""
    return str(name).encode(errors="replace").decode()
