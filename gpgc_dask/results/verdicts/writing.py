"""Write the verdicts of a dataset: a CSV file with corrected masks, or a COCO file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import xarray as xr

from gpgc_dask.core.errors import InputError, NotAFolderError
from gpgc_dask.core.paths import relative_path
from gpgc_dask.data.dataset import open_dataset
from gpgc_dask.data.verdicts import Verdict, VerdictLog, latest
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.painting import encode_picture, target_paths
from gpgc_dask.results.export.coco import coco_annotations, coco_categories
from gpgc_dask.results.verdicts.table import choose_verdicts, verdicts_to_csv
from gpgc_dask.results.verdicts.values import mask_folder, to_values
from gpgc_dask.storage.location import Location, is_url, write_whole

__all__ = ["WriteReport", "write_verdicts"]

CSV_NAME = "verdicts.csv"


@dataclass(frozen=True)
class WriteReport:
    """Outcome of writing verdicts.

    Attributes
    ----------
    files : list of str
        What was written: the file, and the folder of masks if there are any.
    verdicts, masks : int
        Number of verdicts and of corrected masks.
    """

    files: list[str]
    verdicts: int
    masks: int


def write_verdicts(
    dataset: str | PathLike[str],
    target: str | PathLike[str],
    *,
    every: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> WriteReport:
    """Write the verdicts of a dataset to files that ``import_verdicts`` and other tools read.

    Parameters
    ----------
    dataset : path or URL
        The dataset.
    target : path
        FILE.csv: a table, and the corrected masks as PNG files in the folder FILE next to it, named
        as the images, upright, at the photos' size and in the values of the training masks.
        FILE.json: a COCO file of the corrected masks. Any other path is a folder in which
        verdicts.csv is written.
    every : bool, default False
        Write the whole log, with verdicts that do not count any more. Their masks are named by
        image and id. Not for COCO.
    storage_options : dict, optional
        Options of fsspec for the URL of the dataset.

    Returns
    -------
    WriteReport

    Raises
    ------
    InputError
        If a mask would be written over those that the dataset was made from.
    """
    if is_url(fspath(target)):
        raise InputError(f"{target} is a URL: verdicts are written to local files")
    path = Path(target).expanduser().absolute()
    opened = open_dataset(dataset, storage_options, verdicts=False)
    log = VerdictLog(Location.of(dataset, storage_options)).read()
    if path.suffix.lower() == ".json":
        if every:
            raise InputError("a COCO file has one mask per image: the whole log is written as CSV")
        return _write_coco(path, opened, log)
    if path.suffix.lower() != ".csv" or path.is_dir():
        if path.is_file():
            raise NotAFolderError(f"{target} is a file: name a folder, FILE.csv or FILE.json")
        path = path / CSV_NAME
    return _write_csv(path, opened, log, every=every)


def _write_csv(path: Path, dataset: xr.Dataset, log: list[Verdict], *, every: bool) -> WriteReport:
    chosen = choose_verdicts(log, every=every)
    places = _mask_places(chosen, log, mask_folder(path))
    _check_places(list(places.values()), dataset)
    fmt = MaskFormat.from_json(dataset.attrs["source"]["mask_format"])
    for one in chosen:
        if one.correction is not None:
            write_whole(places[one.id], encode_picture(to_values(one.correction.mask, fmt)))
    write_whole(path, verdicts_to_csv(chosen).encode())
    folders = [str(mask_folder(path))] if places else []
    return WriteReport([str(path), *folders], len(chosen), len(places))


def _mask_places(chosen: list[Verdict], log: list[Verdict], folder: Path) -> dict[str, Path]:
    """{id: path of the mask}; masks that do not count any more have the id in their names."""
    counting = {one.id for one in latest(log).values()}
    corrected = [one for one in chosen if one.correction is not None]
    now = [one for one in corrected if one.id in counting]
    places = dict(
        zip((one.id for one in now), target_paths((one.image for one in now), folder), strict=True)
    )
    for one in corrected:
        if one.id not in counting:
            stem = relative_path(one.image).with_suffix("")
            places[one.id] = folder / f"{stem}.{one.id}.png"
    return places


def _check_places(places: list[Path], dataset: xr.Dataset) -> None:
    """Raise an InputError if a mask would be written into a folder of the dataset's files."""
    source = dataset.attrs["source"]
    for kind in ("images", "masks"):
        folder = Path(source[kind]).resolve()
        inside = [path for path in places if path.resolve().is_relative_to(folder)]
        if inside:
            raise InputError(
                f"{inside[0]} would be in {folder}, which holds the {kind} of the dataset: choose "
                "another place to write to"
            )


def _write_coco(path: Path, dataset: xr.Dataset, log: list[Verdict]) -> WriteReport:
    fmt = MaskFormat.from_json(dataset.attrs["source"]["mask_format"])
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    current = choose_verdicts(log, every=False)
    for one in current:
        if one.correction is None:
            continue
        height, width = one.correction.mask.shape
        number = len(images) + 1
        images.append(
            {
                "id": number,
                "file_name": one.image,
                "height": height,
                "width": width,
                "verdict": {"id": one.id, "by": one.by, "at": one.at, "note": one.note},
            }
        )
        annotations += coco_annotations(one.correction.mask, fmt, number, len(annotations) + 1)
    content = {
        "images": images,
        "annotations": annotations,
        "categories": coco_categories(fmt, void=True),
    }
    write_whole(path, json.dumps(content, ensure_ascii=False).encode())
    return WriteReport([str(path)], len(images), len(images))
