"""Selected images in the form that other training tools read: a folder, or a COCO file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from gpgc_dask.core.errors import ExistsError, InputError, MissingFileError
from gpgc_dask.core.paths import check_sources, inside
from gpgc_dask.imaging.coco import load_coco
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
    pairs = _file_pairs(images, source, target)
    existed = target.exists()
    try:
        (target / "images").mkdir(parents=True)
        for path, place in pairs:
            place.parent.mkdir(parents=True, exist_ok=True)
            if copy:
                shutil.copy2(path, place)
            else:
                place.symlink_to(path.absolute())
        if "coco" in source:
            filter_coco(source, images["image"], target / "annotations.json")
    except OSError:
        for part in target.iterdir() if existed else [target]:  # leave nothing incomplete
            shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def _file_pairs(
    images: pd.DataFrame, source: Mapping[str, Any], target: Path
) -> list[tuple[Path, Path]]:
    """(file, its place in the target) of the photos and masks; all files must exist."""
    check_sources(images["image"], images["image_path"], images["mask_path"], source)
    pairs = [
        (Path(path), target / "images" / inside(name))
        for name, path in zip(images["image"], images["image_path"], strict=True)
    ]
    if "coco" not in source:
        root = Path(source["masks"])
        pairs += [
            (Path(path), target / "masks" / _below(path, root)) for path in images["mask_path"]
        ]
    missing = [str(path) for path, _ in pairs if not path.is_file()]
    if missing:
        raise MissingFileError(
            f"{len(missing)} files are no longer where they were at ingest, such as {missing[0]}: "
            "put them back, or write a list of names (-o keep.txt)"
        )
    return pairs


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
    if "coco" not in source:
        raise InputError(
            "the model's dataset was made from a folder of masks, not from a COCO file: write a "
            "list (-o keep.txt) or a folder (--folder)"
        )
    content = load_coco(source["coco"])
    selected = set(names)
    content["images"] = [image for image in content["images"] if image["file_name"] in selected]
    ids = {image["id"] for image in content["images"]}
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] in ids]
    path = Path(target)
    write_whole(path, json.dumps(content, ensure_ascii=False).encode())
    return path


def _below(path: str, root: Path) -> PurePosixPath:
    """The path of a mask within the folder of masks."""
    own = Path(path)
    return inside(own.relative_to(root).as_posix() if own.is_relative_to(root) else own.name)
