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
from gpgc_dask.core.paths import check_names, check_sources, relative_path
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, coco
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.painting import encode_picture
from gpgc_dask.imaging.scene_masks import check_are_files
from gpgc_dask.results.corrected import CorrectedMasks
from gpgc_dask.results.export.coco import coco_annotations, coco_categories
from gpgc_dask.results.verdicts.values import to_values
from gpgc_dask.storage.location import write_whole

__all__ = ["filter_coco", "write_folder"]


def write_folder(
    images: pd.DataFrame,
    source: Mapping[str, Any],
    folder: str | PathLike[str],
    *,
    copy: bool = False,
    corrected: CorrectedMasks | None = None,
) -> Path:
    """Write ``images/`` and ``masks/`` of the selected images, as links to their files or copies.

    If the dataset came from a COCO file, ``annotations.json`` with the annotations of the selected
    images is written in place of ``masks/``. Masks of other annotations are written as PNG files.

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
    corrected : CorrectedMasks, optional
        Masks that people have corrected: they are written in place of the given ones, as PNG files
        or as one annotation per class.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> from gpgc_dask import load, rank
    >>> from gpgc_dask.results.corrected import CorrectedMasks
    >>> from gpgc_dask.results.ranking import select_best
    >>> from gpgc_dask.results.selection import write_folder
    >>> model = load("model.zarr")
    >>> best = select_best(rank(model.review_), top=5)
    >>> corrected = CorrectedMasks(model, best)
    >>> folder = write_folder(best, model.dataset_["source"], "clean", corrected=corrected)
    >>> len(list((folder / "masks").iterdir()))
    5
    """
    target = Path(folder).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExistsError(f"{target} exists and is not an empty folder: choose another")
    files = _selected_files(images, source, corrected)
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
    images: pd.DataFrame, source: Mapping[str, Any], corrected: CorrectedMasks | None
) -> dict[PurePosixPath, Path | bytes]:
    """{path in the folder: file, or content} of photos and masks; all files must exist."""
    names = images.get("photo_name", images["image"]).tolist()
    photos, masks = (images[name].tolist() for name in ("image_path", "mask_path"))
    check_are_files(photos)
    check_names(images["image"], names)
    check_sources(names, photos, masks, source)
    files: dict[PurePosixPath, Path | bytes] = {
        PurePosixPath("images") / relative_path(name): Path(path)
        for name, path in zip(names, photos, strict=True)
    }
    files |= MASK_SOURCES[source["format"]].select(source, images["image"].tolist(), masks)
    if corrected is not None:
        files = _with_corrections(files, images, source, corrected)
    missing = [
        str(file) for file in files.values() if isinstance(file, Path) and not file.is_file()
    ]
    if missing:
        raise MissingFileError(
            f"{len(missing)} files are no longer where they were at ingest, such as {missing[0]}: "
            "put them back, or write a list of names (-o keep.txt)"
        )
    return files


def _with_corrections(
    files: Mapping[PurePosixPath, Path | bytes],
    images: pd.DataFrame,
    source: Mapping[str, Any],
    corrected: CorrectedMasks,
) -> dict[PurePosixPath, Path | bytes]:
    """The files, with corrected masks in place of the given ones."""
    result, fmt = dict(files), MaskFormat.from_json(source["mask_format"])
    if source["format"] == "coco":
        return {
            place: file if isinstance(file, Path) else _replace_annotations(file, source, corrected)
            for place, file in result.items()
        }
    select = MASK_SOURCES[source["format"]].select
    for name, path in zip(images["image"], images["mask_path"], strict=True):
        if name in corrected:
            (place,) = select(source, [name], [path])
            del result[place]
            mask = encode_picture(to_values(corrected[name], fmt))
            result[place.with_suffix(".png")] = bytes(mask)
    return result


def _replace_annotations(
    content: bytes, source: Mapping[str, Any], corrected: CorrectedMasks
) -> bytes:
    """A COCO file with one annotation per class and corrected mask, in place of the given ones."""
    loaded, fmt = json.loads(content), MaskFormat.from_json(source["mask_format"])
    images = {one["file_name"]: one["id"] for one in loaded["images"]}
    images = {name: number for name, number in images.items() if name in corrected}
    replaced = set(images.values())
    ids = {one["name"]: one["id"] for one in reversed(loaded["categories"])}
    names = {one["id"]: one["name"] for one in coco_categories(fmt, void=True)}
    first = 1 + max((one["id"] for one in loaded["annotations"]), default=0)
    kept = [one for one in loaded["annotations"] if one["image_id"] not in replaced]
    for name, image in images.items():
        drawn = coco_annotations(corrected[name], fmt, image, first)
        drawn = [one for one in drawn if names[one["category_id"]] in ids]  # void is no category
        kept += [one | {"category_id": ids[names[one["category_id"]]]} for one in drawn]
        first += len(drawn)
    loaded["annotations"] = kept
    return json.dumps(loaded, ensure_ascii=False).encode()


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
    source: Mapping[str, Any],
    names: Iterable[str],
    target: str | PathLike[str],
    *,
    corrected: CorrectedMasks | None = None,
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
    corrected : CorrectedMasks, optional
        Masks that people have corrected: written as one annotation per class, in place of the
        given ones.

    Returns
    -------
    Path
        The file.
    """
    if source["format"] != "coco":
        raise InputError(
            "the model's dataset was not made from a COCO instances file: write a "
            "list (-o keep.txt) or a folder (--folder)"
        )
    path = Path(target)
    content = coco.filter_coco(source["masks"], names)
    if corrected is not None:
        content = _replace_annotations(content, source, corrected)
    write_whole(path, content)
    return path
