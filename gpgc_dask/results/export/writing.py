"""From a reviewed model to the files of another tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.checks import choice
from gpgc_dask.core.errors import InputError, MissingFileError, Problem
from gpgc_dask.core.paths import check_sources
from gpgc_dask.core.progress import Meter, Progress
from gpgc_dask.imaging.given_masks import GivenMasks
from gpgc_dask.imaging.painting import rows_of, segment_chunks
from gpgc_dask.imaging.photos import hush
from gpgc_dask.models.review import By, predict_and_review, rank, reviewed
from gpgc_dask.results.export.cleanlab import image_scores, probabilities, to_npz
from gpgc_dask.results.export.cvat import Cvat
from gpgc_dask.results.export.fiftyone import FiftyOne
from gpgc_dask.results.export.images import Image, Task, labels_of, read_image
from gpgc_dask.results.export.label_studio import LabelStudio, image_urls
from gpgc_dask.results.ranking import is_suspect, records, worst
from gpgc_dask.storage.location import write_whole

__all__ = ["FORMATS", "ExportReport", "Format", "export"]

Format = Literal["label-studio", "cvat", "fiftyone", "cleanlab"]
FORMATS: tuple[Format, ...] = get_args(Format)

ENDINGS = {"label-studio": ".json", "cvat": ".xml", "fiftyone": ".json", "cleanlab": ".npz"}
"""What the tools take."""


@dataclass(frozen=True)
class ExportReport:
    """What was handed over.

    files : all that were written, the one that was named first; FiftyOne's masks as their folder
    images, of : how many images are in it, of how many in the ranking
    left_out : images whose photo or mask cannot be read any more
    """

    files: list[str]
    images: int
    of: int
    left_out: list[Problem] = field(default_factory=list)


def export(
    model: Any,
    target: str | PathLike[str],
    to: Format,
    *,
    count: int | str | None = None,
    below: float | None = None,
    by: By = "agreement",
    dataset: xr.Dataset | None = None,
    document_root: str | None = None,
    image_prefix: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ExportReport:
    """Write the ranking of a reviewed model as a file that another tool reads, worst first.

    Parameters
    ----------
    model : fitted on a dataset and reviewed, as ``gpgc fit`` leaves it
    target : a local file; what else the tool needs is written beside it
    to : "label-studio", "cvat", "fiftyone" or "cleanlab"
    count, below : the worst so many (50, "10%"), or all with less agreement than this; default: all
    by : "agreement", or "confidence"
    dataset : that of the model; adds what models that never saw each image make of it
    document_root, image_prefix : Label Studio: the folder that it serves files from, or the URL
        below which it finds the photos
    """
    path = _checked_target(target, choice("to", to, FORMATS))
    if to != "label-studio" and (document_root or image_prefix):
        raise InputError("document_root and image_prefix belong to label-studio")
    if to == "cvat" and dataset is not None:
        raise InputError("CVAT has one mask for each label and image: export without the dataset")
    predicted, table = (
        (None, reviewed(model)) if dataset is None else predict_and_review(model, dataset)
    )
    chosen = worst(rank(table, by), count, below=below, by=by)
    if chosen.empty:
        raise InputError(f"no image has {by} below {below}: there is nothing to export")
    photos = pd.Index(table["image"]).get_indexer(chosen["image"])
    if to == "cleanlab":
        photos = np.sort(photos)
        arrays = image_scores(table.iloc[photos])
        if dataset is not None:
            arrays |= probabilities(model, dataset, photos)
        write_whole(path, to_npz(arrays))
        return ExportReport([str(path)], len(photos), len(table))
    source = model.dataset_["source"]
    check_sources(table["image"], table["image_path"], table["mask_path"], source)
    masks = GivenMasks(source, table["image"].tolist(), table["mask_path"].tolist())
    labels = labels_of(masks.format)
    form: LabelStudio | Cvat | FiftyOne
    if to == "label-studio":
        url = image_urls(source["images"], document_root, image_prefix)
        form = LabelStudio(path, labels, url, len(table))
    elif to == "cvat":
        form = Cvat(path, labels)
    else:
        form = FiftyOne(path, labels, predicted=predicted is not None)
    tasks = _tasks(chosen, photos, dataset, predicted)
    made, left_out = _made(tasks, masks, form.entry, Meter(progress, "images", len(chosen)))
    if not made:
        raise MissingFileError(
            f"no photo with its mask can be read any more, such as {left_out[0].name} "
            f"({left_out[0].reason}): put the files back where they were at ingest"
        )
    files = form.files(made)
    for name, content in files.items():
        write_whole(name, content)
    written = [str(name) for name in files]
    if isinstance(form, FiftyOne):
        written.append(str(form.folder))
    return ExportReport(written, len(made), len(table), left_out)


def _checked_target(target: str | PathLike[str], to: Format) -> Path:
    path = Path(target).expanduser()
    if path.suffix.lower() != ENDINGS[to]:
        raise InputError(f"{to} reads {ENDINGS[to]} files: name one, not {path.name}")
    return path


def _tasks(
    chosen: pd.DataFrame, photos: Index, dataset: xr.Dataset | None, predicted: Index | None
) -> Iterator[list[Task]]:
    """What is to be read, some images at a time; those whose superpixel maps lie together."""
    suspect = is_suspect(chosen).tolist()
    rows = zip(photos.tolist(), records(chosen), chosen["image_path"], suspect, strict=True)
    tasks = {photo: Task(photo, *told) for photo, *told in rows}
    if dataset is None or predicted is None:
        yield list(tasks.values())
        return
    image = dataset["image"].values
    for chunk in segment_chunks(dataset, photos):
        yield [
            replace(tasks[photo], segments=segments, classes=predicted[rows_of(image, photo)])
            for photo, segments in chunk
        ]


def _made(
    tasks: Iterator[list[Task]],
    masks: GivenMasks,
    entry: Callable[[Image], Any],
    meter: Meter,
) -> tuple[list[Any], list[Problem]]:
    """(the entries of the images in the order of their ranks, the images that cannot be read)."""
    made: list[tuple[int, Any]] = []
    left_out: list[Problem] = []

    def make(task: Task) -> tuple[int, Any]:
        image = read_image(task, masks)
        rank = int(task.facts["rank"])
        return rank, image if isinstance(image, Problem) else entry(image)

    hush()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for some in tasks:
            for rank, one in pool.map(make, some):
                if isinstance(one, Problem):
                    left_out.append(one)
                else:
                    made.append((rank, one))
                meter(1, len(left_out))
    return [one for _, one in sorted(made, key=lambda pair: pair[0])], left_out
