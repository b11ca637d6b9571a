"""From the format that a user names, or from what is in the files, to the mask source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import InputError, MissingFileError
from gpgc_dask.core.slices import is_medical
from gpgc_dask.imaging.files import by_stem, find_images
from gpgc_dask.imaging.mask_sources.base import MASK_VALUES, MaskOptions, MaskSource
from gpgc_dask.imaging.mask_sources.registry import MASK_SOURCES

__all__ = ["AUTO", "Recognised", "open_source", "recognise"]

AUTO = "auto"
"""Stands for the format that the files have."""

FOLDER = "masks"
"""Format of a folder of mask files, for which no other one is recognised."""

DOCUMENTS = (".json", ".xml")


@dataclass(frozen=True)
class Recognised:
    """The format of some masks.

    Attributes
    ----------
    format : str
        Its name.
    title : str
        What it is called; "" for a folder of mask files.
    masks : str
        The folder or file.
    """

    format: str
    title: str
    masks: str


def open_source(
    images: str | PathLike[str], masks: str | PathLike[str], options: MaskOptions | None = None
) -> MaskSource:
    """Open the source of masks of the format that the options name, or that is recognised."""
    options = options or MaskOptions()
    if options.format == AUTO:
        own = recognise(images, masks, options)
        options, masks = replace(options, format=own.format), own.masks
    try:
        source = MASK_SOURCES[options.format](images, masks, options)
    except InputError:
        _check_is_folder(masks, options)
        raise
    if not source.items:
        _check_is_folder(masks, options)
    return source


def _check_is_folder(masks: str | PathLike[str], options: MaskOptions) -> None:
    """Raise an InputError if a folder without masks of the photos is of another format."""
    other = _locate(Path(masks).expanduser()) if options.format == FOLDER else None
    if other is not None:
        raise InputError(
            f"{masks} is not a folder of mask files but {other.title}: read it with the format "
            f"{other.format} (--format {other.format}), and name its categories (--category)"
        ) from None


def recognise(
    images: str | PathLike[str], masks: str | PathLike[str], options: MaskOptions
) -> Recognised:
    """Find out the format of masks by names and beginnings of files.

    Parameters
    ----------
    images : path
        Folder of photos.
    masks : path
        Folder or file of the masks.
    options : MaskOptions
        Options that apply to mask files only decide for these.

    Raises
    ------
    InputError
        If it is a file of no known format.
    """
    path = Path(masks).expanduser()
    if options.answers:
        return Recognised("answers", "", str(masks))
    if not path.exists() and path.suffix:
        raise MissingFileError(f"{masks} does not exist: name the folder or file of the masks")
    if path.is_dir() and _has_masks(images, path, options):
        return Recognised(FOLDER, "", str(masks))
    found = _locate(path)
    if found is None and path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix.lower() in DOCUMENTS)
        found = _locate(files[0]) if len(files) == 1 else None
    if found is not None:
        return found
    if path.is_file():
        raise InputError(_unknown(path))
    return Recognised(FOLDER, "", str(masks))


def _has_masks(images: str | PathLike[str], masks: Path, options: MaskOptions) -> bool:
    """Whether options are those of mask files, or else some mask is named as a photo."""
    if options.categories:
        return False
    if options.suffix or options.photo_suffix or MASK_VALUES & set(options.changed_options()):
        return True
    folder = Path(images).expanduser()
    if not folder.is_dir() or folder.samefile(masks):
        return False
    photos = by_stem(find_images(folder, leave_out=masks))
    return not photos.keys().isdisjoint(by_stem(find_images(masks)))


def _locate(path: Path) -> Recognised | None:
    for name in MASK_SOURCES:
        kind = MASK_SOURCES[name]
        found = kind.locate(path)
        if found is not None:
            return Recognised(name, kind.title, str(found))
    return None


def _unknown(path: Path) -> str:
    if is_medical(path):
        return f"{path} is a single file: name the folder that holds the masks"
    if path.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z"):
        return f"{path} is an archive: extract it, and name the folder or file in it"
    titles = [MASK_SOURCES[name].title for name in MASK_SOURCES if MASK_SOURCES[name].title]
    return (
        f"{path} is neither a folder of masks nor a file of a known format ({', '.join(titles)}): "
        "name the folder of the masks, or export the annotations in one of these formats"
    )
