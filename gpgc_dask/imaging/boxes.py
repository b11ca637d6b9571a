"""Bounding boxes of photos: reading, checking, clipping and random displacement.

A box is (x, y, width, height) in pixels of the upright photo; its edges are (4,) left, top, right,
bottom.
"""

from __future__ import annotations

import csv
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.core.errors import (
    InputError,
    IsAFolderError,
    MissingFileError,
    Problem,
    UnusableFileError,
)
from gpgc_dask.imaging.files import printable

__all__ = [
    "Box",
    "Boxes",
    "PlacedBox",
    "box_edges",
    "box_iou",
    "jitter_edges",
    "match_boxes",
    "photo_key",
    "read_boxes",
    "to_box",
]

Box: TypeAlias = tuple[float, float, float, float]
"""x and y of the upper left corner, width and height, in pixels."""

Boxes: TypeAlias = Mapping[str, Sequence[Sequence[float]]]

COLUMNS = ("image", "x", "y", "width", "height")

MAX_STEPS = 2.0**20
"""Steps of a jittered edge, each about the size of a box: enough to leave any photo."""

BISECTIONS = 50


@dataclass(frozen=True)
class PlacedBox:
    """A box, and where it was defined, such as "row 3"."""

    place: str
    box: Box


def read_boxes(boxes: str | PathLike[str] | Boxes) -> dict[str, list[PlacedBox]]:
    """Read boxes by image.

    Parameters
    ----------
    boxes : path or mapping
        A CSV file with the columns image, x, y, width and height, or {image: boxes}.

    Returns
    -------
    dict
        {normalised name of the image: its boxes}, see :func:`photo_key`.
    """
    return _read_mapping(boxes) if isinstance(boxes, Mapping) else _read_csv(boxes)


def _read_csv(path: str | PathLike[str]) -> dict[str, list[PlacedBox]]:
    """Read boxes by image. Rows are numbered as in an editor: the header is row 1."""
    boxes: dict[str, list[PlacedBox]] = {}
    try:
        with open(Path(path).expanduser(), encoding="utf-8-sig", newline="") as file:
            for number, row in _rows(path, file):
                place = f"row {number}"
                box = to_box([row[column] for column in COLUMNS[1:]], f"{path}, {place}")
                if not row["image"]:
                    raise InputError(f"{path}, {place}: image is missing")
                boxes.setdefault(photo_key(row["image"]), []).append(PlacedBox(place, box))
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist: name a CSV file of boxes") from None
    except IsADirectoryError:
        raise IsAFolderError(f"{path} is a folder: name a CSV file of boxes") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if not boxes:
        raise InputError(f"{path} holds no boxes: write one row per box below the header")
    return boxes


def _rows(path: object, file: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, row) of a CSV file; raise an InputError if a column is missing."""
    reader = csv.DictReader(file, skipinitialspace=True)
    present = reader.fieldnames or []
    missing = [column for column in COLUMNS if column not in present]
    if missing:
        content = f"has {','.join(present)[:80]!r}" if present else "is missing"
        raise InputError(
            f"{path} has no column {', '.join(missing)}: its first row must name the columns "
            f"{','.join(COLUMNS)}, but it {content}"
        )
    for row in reader:
        yield reader.line_num, row


def _read_mapping(mapping: Boxes) -> dict[str, list[PlacedBox]]:
    boxes: dict[str, list[PlacedBox]] = {}
    for name, several in mapping.items():
        for number, box in enumerate(several, 1):
            place = f"box {number}"
            one = PlacedBox(place, to_box(box, f"boxes of {printable(name)}, {place}"))
            boxes.setdefault(photo_key(name), []).append(one)
    if not boxes:
        raise InputError("boxes are empty: pass {image: [(x, y, width, height), ...]}")
    return boxes


def to_box(numbers: Any, place: str) -> Box:
    """Convert four numbers, or their texts, to a box; ``place`` is named in the error."""
    values = list(numbers) if np.iterable(numbers) else [numbers]
    if len(values) != 4:
        raise InputError(f"{place}: a box is x, y, width and height, got {numbers!r}")
    box = []
    for column, value in zip(COLUMNS[1:], values, strict=True):
        try:
            box.append(float(value))
        except (TypeError, ValueError):
            box.append(math.nan)
        if not math.isfinite(box[-1]):
            reason = f"{value!r} is not a number" if value else "is missing"
            raise InputError(f"{place}: {column} {reason}")
    x, y, width, height = box
    return x, y, width, height


def photo_key(name: str) -> str:
    """Normalised name of a photo: equal for all spellings of the same name."""
    return unicodedata.normalize("NFC", PurePosixPath(name).as_posix())


def match_boxes(
    boxes: Mapping[str, Sequence[PlacedBox]], names: Sequence[str], folder: Path
) -> tuple[dict[str, tuple[PlacedBox, ...]], list[Problem]]:
    """Match boxes with photos: boxes by photo, in the order of the names, and unusable entries."""
    photos = {photo_key(name): name for name in names}
    boxed, problems = {}, []
    for key, own in boxes.items():
        flat = [one for one in own if min(one.box[2:]) <= 0]
        if key not in photos:
            reason = f"{own[0].place}: there is no such photo in {printable(folder)}"
            problems.append(Problem(printable(key), reason))
        elif flat:
            problems.append(Problem(printable(key), f"{flat[0].place}: {_no_area(flat[0].box)}"))
        else:
            boxed[photos[key]] = tuple(own)
    ordered = {name: boxed[name] for name in sorted(boxed)}
    return ordered, sorted(problems, key=lambda problem: problem.name)


def _no_area(box: Box) -> str:
    return f"box {_listed(box)} has no area: width and height must be above 0"


def _listed(box: Box) -> str:
    return ", ".join(f"{number:g}" for number in box)


def box_edges(box: Box, height: int, width: int) -> Array:
    """Edges (4,) of a box, clipped to a photo of this size."""
    x, y, across, down = box
    if min(across, down) <= 0:
        raise UnusableFileError(_no_area(box))
    edges = np.clip([x, y, x + across, y + down], 0, [width, height] * 2)
    if not (edges[2:] > edges[:2]).all():
        raise UnusableFileError(
            f"box {_listed(box)} is outside the photo of {width}×{height} pixels: boxes are x, "
            "y, width, height in pixels of the upright photo"
        )
    return edges


def jitter_edges(
    edges: Array, height: int, width: int, jitter: float, rng: np.random.Generator
) -> Array:
    """Displace edges at random, so that the IoU with the original is drawn from U(1 − jitter, 1].

    Parameters
    ----------
    edges : (4,) array
        Left, top, right and bottom in pixels.
    height, width : int
        Size of the photo, whose border the edges do not leave.
    jitter : float
        0 to 1.
    rng : Generator
        Source of randomness.

    Returns
    -------
    (4,) array
        The displaced edges, exact before they are rounded to pixels.

    Notes
    -----
    All edges move at once, in proportions drawn from N(0, 1), in widths (left, right) and heights
    (top, bottom) of the box, until the IoU is the one drawn. If the border keeps it from falling
    so far, each edge moves in the opposite direction.
    """
    if jitter == 0:
        return edges
    wanted = 1 - jitter * rng.random()
    steps = rng.standard_normal(4) * np.tile(edges[2:] - edges[:2], 2)

    def move(distance: float) -> Array:
        return np.clip(edges + distance * steps, 0, [width, height] * 2)

    if box_iou(move(MAX_STEPS), edges) > wanted:
        steps = -steps  # both spans grew up to the border; now both shrink
    low, high = 0.0, MAX_STEPS
    for _ in range(BISECTIONS):  # the IoU never rises with the distance
        middle = (low + high) / 2
        low, high = (middle, high) if box_iou(move(middle), edges) >= wanted else (low, middle)
    return move(low)


def box_iou(one: Array, other: Array) -> float:
    """Intersection over union of two boxes by their edges (4,)."""
    shared = _area(np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:]))
    together = _area(one[:2], one[2:]) + _area(other[:2], other[2:]) - shared
    return shared / together


def _area(first: Array, last: Array) -> float:
    return float(np.prod(np.maximum(last - first, 0)))
