"""The images that are handed over: what is known of each, and its masks at the photo's own size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpgc_dask.core.arrays import Labels, Mask
from gpgc_dask.core.errors import Problem, UnusableFileError
from gpgc_dask.imaging.given_masks import GivenMasks
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat
from gpgc_dask.imaging.painting import paint
from gpgc_dask.imaging.photos import read_orientation
from gpgc_dask.imaging.superpixels import Segments

__all__ = ["Image", "Task", "labels_of", "read_image", "regions"]

SUSPECT = "suspect"


@dataclass(frozen=True)
class Image:
    """One image of the ranking, with its masks as class codes (height, width)."""

    facts: dict[str, Any]
    """As of :func:`gpgc_dask.results.ranking.records`: rank, image, agreement, …; None: unknown."""
    path: str
    suspect: bool
    given: Codes
    predicted: Labels | None = None
    """What a model that never saw the image makes of it."""

    @property
    def name(self) -> str:
        return str(self.facts["image"])

    @property
    def score(self) -> float:
        """Agreement in [0, 1]; 0 where it is unknown: nothing speaks for the image."""
        return float(self.facts["agreement"] or 0.0)

    @property
    def tags(self) -> list[str]:
        return [SUSPECT] * self.suspect + self.facts["flags"]


@dataclass(frozen=True)
class Task:
    """What an image is read from. ``photo``: its number in the dataset.

    segments, classes : its superpixels at working size and the class predicted of each, or None
    """

    photo: int
    facts: dict[str, Any]
    path: str
    suspect: bool
    segments: Segments | None = None
    classes: Labels | None = None


def read_image(task: Task, masks: GivenMasks) -> Image | Problem:
    """The image, or why its photo or mask cannot be read any more."""
    try:
        orientation = read_orientation(task.path)
        given = masks.codes(task.photo, orientation)
    except (UnusableFileError, OSError) as error:
        return Problem(task.facts["image"], str(error))
    predicted = None
    if task.segments is not None and task.classes is not None:
        predicted = paint(task.segments, task.classes, orientation.height, orientation.width)
    return Image(task.facts, task.path, task.suspect, given, predicted)


def labels_of(fmt: MaskFormat) -> dict[int, str]:
    """{class code: label} of all that is drawn: not the background, but what is void."""
    labels = {code: name for code, name in enumerate(fmt.names) if code != fmt.background}
    return labels | ({VOID: "void"} if fmt.void else {})


def regions(codes: Labels, labels: dict[int, str]) -> Iterator[tuple[str, Mask]]:
    """(label, (height, width) where it is) of the labels that are in a mask."""
    for code, label in labels.items():
        inside = codes == code
        if inside.any():
            yield label, inside
