"""Formats that hold the masks of each image, at the size of the photo."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpgc_dask.core.arrays import Labels, Mask
from gpgc_dask.core.errors import MissingFileError, Problem, UnusableFileError
from gpgc_dask.core.paths import check_names, check_sources
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat
from gpgc_dask.imaging.painting import paint, rows_of, segment_chunks
from gpgc_dask.imaging.photos import read_orientation, silence_pillow
from gpgc_dask.imaging.scene_masks import check_are_files
from gpgc_dask.imaging.slic import Segments
from gpgc_dask.imaging.superpixels import sample_codes
from gpgc_dask.models.fitted_dataset import require_dataset_info
from gpgc_dask.results.columns import column_names
from gpgc_dask.results.corrected import CorrectedMasks
from gpgc_dask.results.export.base import ExportFormat, ExportReport, Selection
from gpgc_dask.results.ranking import is_suspect, records
from gpgc_dask.storage.location import write_whole

__all__ = ["VERDICTS", "Image", "ImageFormat", "drawn_labels", "regions"]

SUSPECT = "suspect"

VERDICTS = ("confirmed", "rejected")
"""What a person can decide about an image in a tool without drawing."""


@dataclass(frozen=True)
class Image:
    """An image of the ranking with its masks.

    Attributes
    ----------
    record : dict
        Its row of :func:`gpgc_dask.results.ranking.records`.
    path : str
        Path of the photo.
    suspect : bool
        Whether the quality is low or unknown.
    given : (height, width) array of uint8
        Class codes of the given mask.
    predicted : (height, width) array, optional
        Class codes predicted by a model that never saw the image.
    """

    record: dict[str, Any]
    path: str
    suspect: bool
    given: Codes
    predicted: Labels | None = None

    @property
    def name(self) -> str:
        return str(self.record["image"])

    @property
    def score(self) -> float:
        """Quality in [0, 1]; 0 if it is unknown."""
        return float(self.record["quality"] or 0.0)

    @property
    def tags(self) -> list[str]:
        """The flags, after "suspect" if the image is suspect."""
        return [SUSPECT] * self.suspect + self.record["flags"]

    @property
    def attributes(self) -> dict[str, Any]:
        """{column: value} of the columns that are exported; ``flags`` are the tags."""
        values = self.record | {"flags": self.tags}
        return {name: values[name] for name in column_names("exports")}


@dataclass(frozen=True)
class _Task:
    """Where an image is read from.

    photo : number of the photo in the dataset
    segments, classes : superpixels at working size and the class predicted for each, or None
    """

    photo: int
    record: dict[str, Any]
    path: str
    suspect: bool
    segments: Segments | None = None
    classes: Labels | None = None


class ImageFormat(ExportFormat):
    """A format made of one entry per image.

    Subclasses implement :meth:`entry`, which threads call once per image, and :meth:`files`.

    Attributes
    ----------
    masks : DatasetMasks
        The given masks.
    labels : dict
        {class code: label} of the classes that are drawn: void, but not the background.
    """

    def __init__(self, target: Path, selection: Selection, **options: Any) -> None:
        super().__init__(target, selection, **options)
        review = selection.review
        self.source = require_dataset_info(selection.model)["source"]
        photos = review.get("photo_name", review["image"])
        check_names(review["image"], photos)
        check_are_files(review["image_path"])
        check_sources(photos, review["image_path"], review["mask_path"], self.source)
        names, paths = review["image"].tolist(), review["mask_path"].tolist()
        self.masks = DatasetMasks(self.source, names, paths)
        self.corrected = selection.corrected_masks()
        self.labels = drawn_labels(self.masks.format)

    @abstractmethod
    def entry(self, image: Image) -> Any:
        """The entry of an image."""

    @abstractmethod
    def files(self, entries: list[Any]) -> dict[Path, bytes]:
        """{path: content} of the files, for entries in the order of the ranks; the target first."""

    def write(self, progress: Listener | None = None) -> ExportReport:
        """Read the photos and masks and write the files."""
        entries, left_out = self._entries(progress)
        if not entries:
            raise MissingFileError(
                f"no photo with its mask can be read any more, such as {left_out[0].name} "
                f"({left_out[0].reason}): put the files back where they were at ingest"
            )
        files = self.files(entries)
        for path, content in files.items():
            write_whole(path, content)
        total = len(self.selection.review)
        return ExportReport([str(path) for path in files], len(entries), total, left_out)

    def _entries(self, progress: Listener | None) -> tuple[list[Any], list[Problem]]:
        """(entries in the order of the ranks, images that cannot be read)."""
        entries: dict[int, Any] = {}
        left_out: list[Problem] = []
        meter = Meter(progress, "images", len(self.selection.chosen))

        def make(task: _Task) -> tuple[int, Any]:
            image = _read_image(task, self.masks, self.corrected)
            made = image if isinstance(image, Problem) else self.entry(image)
            return int(task.record["rank"]), made

        silence_pillow()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for tasks in _task_chunks(self.selection):
                for rank, made in pool.map(make, tasks):
                    if isinstance(made, Problem):
                        left_out.append(made)
                    else:
                        entries[rank] = made
                    meter(1, len(left_out))
        return [entries[rank] for rank in sorted(entries)], left_out


def _task_chunks(selection: Selection) -> Iterator[list[_Task]]:
    """Tasks of the images whose superpixel maps are in one chunk, which is read once."""
    chosen, photos = selection.chosen, selection.photos
    suspect = is_suspect(chosen).tolist()
    rows = zip(photos.tolist(), records(chosen), chosen["image_path"], suspect, strict=True)
    tasks = {photo: _Task(photo, *known) for photo, *known in rows}
    dataset, predicted = selection.dataset, selection.predicted
    if dataset is None or predicted is None:
        yield list(tasks.values())
        return
    image = dataset["image"].values
    for chunk in segment_chunks(dataset, photos):
        yield [
            replace(
                tasks[photo],
                segments=segments,
                classes=predicted[rows_of(image, photo)],
            )
            for photo, segments in chunk
        ]


def _read_image(task: _Task, masks: DatasetMasks, corrected: CorrectedMasks) -> Image | Problem:
    """The image, or the reason why its photo or mask cannot be read any more."""
    try:
        orientation = read_orientation(task.path)
        if task.record["image"] in corrected:
            own = corrected[task.record["image"]]
            given = sample_codes(own, orientation.height, orientation.width)
        else:
            given = masks.codes(task.photo, orientation)
    except (UnusableFileError, OSError) as error:
        return Problem(task.record["image"], str(error))
    predicted = None
    if task.segments is not None and task.classes is not None:
        predicted = paint(task.segments, task.classes, orientation.height, orientation.width)
    return Image(task.record, task.path, task.suspect, given, predicted)


def drawn_labels(fmt: MaskFormat, *, void: bool = False) -> dict[int, str]:
    """{class code: label} of all classes but the background, and of void pixels.

    With ``void`` the label of void pixels is there even if the masks of the dataset have none.
    """
    labels = {code: name for code, name in enumerate(fmt.names) if code != fmt.background}
    return labels | ({VOID: "void"} if fmt.void or void else {})


def regions(codes: Labels, labels: dict[int, str]) -> Iterator[tuple[str, Mask]]:
    """Split a mask by label.

    Parameters
    ----------
    codes : (height, width) array
        Class codes.
    labels : dict
        {class code: label}.

    Yields
    ------
    label : str
    inside : (height, width) array of bool
        Where the label is; labels that do not occur are left out.
    """
    for code, label in labels.items():
        inside = codes == code
        if inside.any():
            yield label, inside
