"""Selected images in the form that other training tools read: a folder, or a COCO file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from gpgc_dask.core.errors import ExistsError, InputError, MissingFileError
from gpgc_dask.core.paths import check_names, check_sources, relative_path
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, coco
from gpgc_dask.storage.location import write_whole

__all__ = ["filter_coco", "write_folder"]


def write_folder(
    images: pd.DataFrame,
    source: Mapping[str, Any],
    folder: str | PathLike[str],
    *,
    copy: bool = False,
) -> Path:
    """Write ``images/`` and ``masks/`` of the selected images, as links to their files or copies.

    If the dataset came from a COCO file, ``annotations.json`` with the annotations of the selected
    images is written in place of ``masks/``.

    Parameters
    ----------
    images : pandas.DataFrame
        Rows of a review or a ranking (image, image_path, mask_path).
    source : mapping
        Where the photos and masks of the dataset come from: ``model.dataset_["source"]``.
    folder : path
        A new or empty folder.
    copy : bool, default False
        Copy the files in place of linking to them.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> from gpgc_dask import load, rank
    >>> from gpgc_dask.results.ranking import select_best
    >>> from gpgc_dask.results.selection import write_folder
    >>> model = load("model.zarr")
    >>> best = select_best(rank(model.review_), top=5)
    >>> folder = write_folder(best, model.dataset_["source"], "clean")
    >>> len(list((folder / "masks").iterdir()))
    5
    """
    target = Path(folder).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExistsError(f"{target} exists and is not an empty folder: choose another")
    files = _selected_files(images, source)
    existed = target.exists()
    try:
        (target / "images").mkdir(parents=True)
        for place, file in files.items():
            _place(file, target / place, copy=copy)
    except OSError:
        for part in target.iterdir() if existed else [target]:  # leave nothing incomplete
            shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def _selected_files(
    images: pd.DataFrame, source: Mapping[str, Any]
) -> dict[PurePosixPath, Path | bytes]:
    """{path in the folder: file, or content} of photos and masks; all files must exist."""
    names = images.get("photo_name", images["image"]).tolist()
    photos, masks = (images[name].tolist() for name in ("image_path", "mask_path"))
    check_names(images["image"], names)
    check_sources(names, photos, masks, source)
    files: dict[PurePosixPath, Path | bytes] = {
        PurePosixPath("images") / relative_path(name): Path(path)
        for name, path in zip(names, photos, strict=True)
    }
    files |= MASK_SOURCES[source["format"]].select(source, images["image"].tolist(), masks)
    missing = [
        str(file) for file in files.values() if isinstance(file, Path) and not file.is_file()
    ]
    if missing:
        raise MissingFileError(
            f"{len(missing)} files are no longer where they were at ingest, such as {missing[0]}: "
            "put them back, or write a list of names (-o keep.txt)"
        )
    return files


def _place(file: Path | bytes, place: Path, *, copy: bool) -> None:
    """Write a file: its content, a copy or a link."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(file, bytes):
        write_whole(place, file)
    elif copy:
        shutil.copy2(file, place)
    else:
        place.symlink_to(file.absolute())


def filter_coco(
    source: Mapping[str, Any], names: Iterable[str], target: str | PathLike[str]
) -> Path:
    """Write the COCO file of a dataset, reduced to the selected images and their annotations.

    Parameters
    ----------
    source : mapping
        Where the photos and masks of the dataset come from: ``model.dataset_["source"]``.
    names : iterable of str
        Names of the selected images.
    target : path
        The file to write.

    Returns
    -------
    Path
        The file.
    """
    if source["format"] != "coco":
        raise InputError(
            "the model's dataset was made from a folder of masks, not from a COCO file: write a "
            "list (-o keep.txt) or a folder (--folder)"
        )
    path = Path(target)
    write_whole(path, coco.filter_coco(source["masks"], names))
    return path
