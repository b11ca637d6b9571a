"""Masks from bounding boxes by GrabCut: rough ones, as automatic annotation gives them."""

from __future__ import annotations

import csv
import hashlib
import math
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.core.errors import (
    InputError,
    IsAFolderError,
    MissingDependencyError,
    MissingFileError,
    PipelineError,
    Problem,
    UnusableFileError,
)
from gpgc_dask.core.progress import Listener
from gpgc_dask.execution.client import Client
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.painting import encoded, paint
from gpgc_dask.imaging.photos import Pixels, read_photo
from gpgc_dask.pipelines.ingest.work import OnError, complaint
from gpgc_dask.pipelines.outputs import Job, output_folders, photos_in, to_jobs
from gpgc_dask.pipelines.photo_jobs import check_manner, make_pictures
from gpgc_dask.storage.location import write_whole

__all__ = ["AutosegReport", "Box", "autoseg", "grabcut"]

Box: TypeAlias = tuple[float, float, float, float]
"""x and y of the left upper corner, width and height, in pixels."""

Boxes: TypeAlias = Mapping[str, Sequence[Sequence[float]]]

COLUMNS = ("image", "x", "y", "width", "height")

MASK_VALUES = np.array([0, 255], dtype=np.uint8)

MAX_SEED = 2**31 - 1
"""OpenCV's seeds are C's int."""

FARTHEST = 2.0**20
"""Steps of a jittered edge, each about a box wide: out of any photo."""

HALVINGS = 50


@dataclass(frozen=True)
class AutosegReport:
    """What has been made of boxes, and what it took.

    images : photos that have their masks;  resumed : those that an earlier run had done
    without_box : photos in the folder that no box is given for, and that have no mask
    elapsed : seconds of this run, by the clock
    """

    target: str
    images: int
    skipped: list[Problem]
    without_box: int = 0
    resumed: int = 0
    elapsed: float = 0.0


def grabcut(pixels: Pixels, box: Sequence[float], iterations: int = 5, seed: int = 0) -> Mask:
    """(h, w) what GrabCut takes for the object in a box: OpenCV's, with default parameters.

    The same for the same seed, whatever ran before and in whichever thread. Slow on large photos,
    and on those that are of one colour but for some specks.

    pixels : (h, w, 3) RGB, uint8
    box : x, y, width, height in pixels. Edges are rounded and cut off at the border, and at least
        one pixel is kept. GrabCut learns the background outside: a box of the whole picture is made
        smaller by a pixel a side
    iterations : of learning colours and cutting;  seed : of the first guess at the colours
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise InputError(f"pixels must be (h, w, 3) uint8, got {pixels.shape} {pixels.dtype}")
    _check_numbers(iterations, seed)
    height, width = pixels.shape[:2]
    return _cut(pixels, _cut_off(_to_box(box, "box"), height, width), iterations, seed)


def autoseg(
    images: str | PathLike[str],
    boxes: str | PathLike[str] | Boxes,
    target: str | PathLike[str],
    *,
    iterations: int = 5,
    jitter: float = 0.0,
    seed: int = 0,
    side: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_error: OnError = "raise",
    progress: bool | Listener | None = None,
    client: Client | AbstractContextManager[Client] | None = None,
) -> AutosegReport:
    """Masks of photos from bounding boxes, by GrabCut: 0/255 PNGs at the photos' own size.

    Masks are named after their photos and written as they are done: after a kill, the same call
    with ``resume=True`` goes on. They depend on photo, name, boxes and parameters alone.

    Parameters
    ----------
    images : a folder of photos, with subfolders
    boxes : a CSV file with the columns image (path within the folder), x, y, width and height, in
        pixels of the upright photo, or {image: boxes}. The mask of a photo with several boxes is
        the union of theirs. Photos without a box are left out. See :func:`grabcut` for edges
    target : folder of the masks
    iterations : of GrabCut
    jitter : 0 to 1; how wrong boxes are made. Each is replaced by one whose IoU with it, as cut off
        at the border, is drawn from U(1 − jitter, 1]. Its four edges move at once, in proportions
        drawn from N(0, 1), in widths (left, right) and heights (top, bottom) of the box, and stop
        at the photo's border, until the IoU is the one drawn: exactly, before edges are rounded.
        Where the border keeps it from falling so far, each goes the opposite way. Drawn by
        (seed, name of the image) in the order of its boxes
    seed : of GrabCut and of jitter
    side : photos are scaled down to this longest side in pixels, their masks enlarged by nearest
        pixel. GrabCut needs much memory a pixel
    resume : photos whose masks are there, of whatever boxes, are left as they are
    overwrite : masks that are there are removed, then made anew
    on_error : "raise" stops at a photo or box that cannot be used, "skip" leaves the photo out and
        lists it
    progress : True shows a live line in a notebook, prints lines to stderr elsewhere; a callable
        is called with a :class:`~gpgc_dask.core.progress.Progress` now and then
    client : a Dask client, or a context that gives one and is entered when there is work to do;
        default the active client, else threads of this process

    Examples
    --------
    >>> from gpgc_dask.pipelines.autoseg import autoseg
    >>> autoseg("photos", {"photo_000.jpg": [(10, 5, 60, 50)]}, "rough-masks").images
    1
    """
    start = time.perf_counter()
    check_manner(resume=resume, overwrite=overwrite, on_error=on_error)
    cutter = Cutter(iterations, jitter, seed, side)
    _opencv()
    folders = output_folders(mask=target)
    given = _from_mapping(boxes) if isinstance(boxes, Mapping) else _from_csv(boxes)
    root = Path(images).expanduser().absolute()
    names = photos_in(root, folders.values())
    boxed, unusable = _matched(given, names, root)
    if unusable and (on_error == "raise" or not boxed):
        raise PipelineError(complaint(unusable, kept=None), unusable)
    jobs = [
        BoxedJob(job.name, job.photo, job.pictures, boxed[job.name])
        for job in to_jobs(root, [*boxed], folders, others=names)
    ]
    problems, resumed = make_pictures(
        cutter,
        jobs,
        name="autoseg",
        resume=resume,
        overwrite=overwrite,
        on_error=on_error,
        progress=progress,
        client=client,
    )
    return AutosegReport(
        target=str(folders["mask"]),
        images=len(jobs) - len(problems),
        skipped=sorted([*unusable, *problems], key=lambda problem: problem.name),
        without_box=sum(_key(name) not in given for name in names),
        resumed=resumed,
        elapsed=time.perf_counter() - start,
    )


# -- which boxes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenBox:
    """A box, and where somebody gave it: row 3."""

    place: str
    box: Box


def _from_csv(path: str | PathLike[str]) -> dict[str, list[GivenBox]]:
    """Boxes by image. Rows are numbered as in an editor: the header is row 1."""
    given: dict[str, list[GivenBox]] = {}
    try:
        with open(Path(path).expanduser(), encoding="utf-8-sig", newline="") as file:
            for number, row in _rows(path, file):
                place = f"row {number}"
                box = _to_box([row[column] for column in COLUMNS[1:]], f"{path}, {place}")
                if not row["image"]:
                    raise InputError(f"{path}, {place}: image is missing")
                given.setdefault(_key(row["image"]), []).append(GivenBox(place, box))
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist: name a CSV file of boxes") from None
    except IsADirectoryError:
        raise IsAFolderError(f"{path} is a folder: name a CSV file of boxes") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if not given:
        raise InputError(f"{path} holds no boxes: write a row a box below the header")
    return given


def _rows(path: object, file: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, row) of a CSV file that has the columns it should have."""
    reader = csv.DictReader(file, skipinitialspace=True)
    found = reader.fieldnames or []
    missing = [column for column in COLUMNS if column not in found]
    if missing:
        told = f"holds {','.join(found)[:80]!r}" if found else "the file is empty"
        raise InputError(
            f"{path} has no column {', '.join(missing)}: its first row must name the columns "
            f"{','.join(COLUMNS)}, but {told}"
        )
    for row in reader:
        yield reader.line_num, row


def _from_mapping(boxes: Boxes) -> dict[str, list[GivenBox]]:
    given: dict[str, list[GivenBox]] = {}
    for name, several in boxes.items():
        for number, box in enumerate(several, 1):
            place = f"box {number}"
            one = GivenBox(place, _to_box(box, f"boxes of {printable(name)}, {place}"))
            given.setdefault(_key(name), []).append(one)
    if not given:
        raise InputError("boxes are empty: pass {image: [(x, y, width, height), ...]}")
    return given


def _to_box(numbers: Any, place: str) -> Box:
    """Four finite numbers, from numbers or their texts."""
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
            told = f"{value!r} is not a number" if value else "is missing"
            raise InputError(f"{place}: {column} {told}")
    x, y, width, height = box
    return x, y, width, height


def _key(name: str) -> str:
    """The same for all ways to write the name of a photo."""
    return unicodedata.normalize("NFC", PurePosixPath(name).as_posix())


def _matched(
    given: dict[str, list[GivenBox]], names: list[str], folder: Path
) -> tuple[dict[str, tuple[GivenBox, ...]], list[Problem]]:
    """(boxes by photo, in the order of the names; what cannot be used)."""
    photos = {_key(name): name for name in names}
    boxed, problems = {}, []
    for key, boxes in given.items():
        flat = [one for one in boxes if min(one.box[2:]) <= 0]
        if key not in photos:
            reason = f"{boxes[0].place}: there is no such photo in {printable(folder)}"
            problems.append(Problem(printable(key), reason))
        elif flat:
            problems.append(Problem(printable(key), f"{flat[0].place}: {_no_area(flat[0].box)}"))
        else:
            boxed[photos[key]] = tuple(boxes)
    ordered = {name: boxed[name] for name in sorted(boxed)}
    return ordered, sorted(problems, key=lambda problem: problem.name)


def _no_area(box: Box) -> str:
    return f"box {_listed(box)} has no area: width and height must be above 0"


def _listed(box: Box) -> str:
    return ", ".join(f"{number:g}" for number in box)


# -- on the workers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class BoxedJob(Job):
    """A photo, its mask's place, and its boxes."""

    boxes: tuple[GivenBox, ...]


@dataclass(frozen=True)
class Cutter:
    """How masks are cut out, see :func:`autoseg`."""

    iterations: int
    jitter: float
    seed: int
    side: int | None

    def __post_init__(self) -> None:
        _check_numbers(self.iterations, self.seed)
        if not 0 <= self.jitter <= 1:
            raise InputError(f"jitter must be 0 to 1, got {self.jitter!r}")
        if self.side is not None and not 16 <= self.side <= 8192:
            raise InputError(f"side must be 16 to 8192 pixels, got {self.side!r}")

    def run(self, job: BoxedJob) -> None:
        """Cut out what is in the boxes and write the mask, whole or not at all."""
        photo = read_photo(job.photo, self.side or sys.maxsize)
        height, width = photo.orientation.height, photo.orientation.width
        h, w = photo.pixels.shape[:2]
        scale = np.array([w / width, h / height] * 2)
        rng = self._generator(job.name)
        mask = np.zeros((h, w), dtype=np.bool_)
        for one in job.boxes:
            try:
                edges = _cut_off(one.box, height, width)
                edges = _jittered(edges, height, width, self.jitter, rng)
                mask |= _cut(photo.pixels, edges * scale, self.iterations, self.seed)
            except UnusableFileError as error:
                raise UnusableFileError(f"{one.place}: {error}") from None
        painted = paint(mask.astype(np.uint16), MASK_VALUES, height, width)
        write_whole(job.pictures["mask"], encoded(painted))

    def _generator(self, name: str) -> np.random.Generator:
        """Whatever the order and the number of workers, the same for an image."""
        digest = hashlib.sha256(_key(name).encode(errors="surrogatepass")).digest()
        return np.random.default_rng([self.seed, int.from_bytes(digest[:16], "big")])


def _check_numbers(iterations: int, seed: int) -> None:
    if iterations < 1:
        raise InputError(f"iterations must be 1 or more, got {iterations!r}")
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"seed must be a whole number from 0 to {MAX_SEED}, got {seed!r}")


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MissingDependencyError(
            f'GrabCut needs OpenCV ({error}): pip install "gpgc_dask[grabcut]"'
        ) from None
    return cv2


def _cut(pixels: Pixels, edges: Array, iterations: int, seed: int) -> Mask:
    """(h, w) what GrabCut takes for the object within edges, see :func:`grabcut`."""
    cv2 = _opencv()
    left, top, right, bottom = _rectangle(edges, *pixels.shape[:2])
    mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    box = (left, top, right - left, bottom - top)
    blue_first = np.ascontiguousarray(pixels[..., ::-1])  # as OpenCV reads photos
    try:
        cv2.setRNGSeed(int(seed))  # of this thread alone
        cv2.grabCut(blue_first, mask, box, *models, int(iterations), cv2.GC_INIT_WITH_RECT)
    except cv2.error as error:
        raise UnusableFileError(f"GrabCut fails on it: {' '.join(str(error).split())}") from None
    return (mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)


# -- edges: (4,) left, top, right, bottom ------------------------------------------------------


def _cut_off(box: Box, height: int, width: int) -> Array:
    """Edges of what a box covers of a picture."""
    x, y, across, down = box
    if min(across, down) <= 0:
        raise UnusableFileError(_no_area(box))
    edges = np.clip([x, y, x + across, y + down], 0, [width, height] * 2)
    if not (edges[2:] > edges[:2]).all():
        raise UnusableFileError(
            f"box {_listed(box)} lies outside the photo of {width}×{height} pixels: boxes are x, "
            "y, width, height in pixels of the upright photo"
        )
    return edges


def _rectangle(edges: Array, height: int, width: int) -> tuple[int, int, int, int]:
    """Edges in whole pixels, at least one apart, that leave some of the picture outside."""
    size = np.array([width, height])
    first = np.minimum(np.floor(edges[:2] + 0.5), size - 1).astype(int)
    last = np.maximum(np.floor(edges[2:] + 0.5), first + 1).astype(int)
    if (first == 0).all() and (last == size).all():
        if size.max() < 3:
            raise UnusableFileError(
                f"too small for GrabCut: {width}×{height} pixels are all in the box"
            )
        first, last = np.where(size > 2, 1, first), np.where(size > 2, size - 1, last)
    return int(first[0]), int(first[1]), int(last[0]), int(last[1])


def _jittered(
    edges: Array, height: int, width: int, jitter: float, rng: np.random.Generator
) -> Array:
    """Edges elsewhere, of which the IoU with the given ones is drawn from U(1 − jitter, 1]."""
    if jitter == 0:
        return edges
    wanted = 1 - jitter * rng.random()
    steps = rng.standard_normal(4) * np.tile(edges[2:] - edges[:2], 2)

    def moved(way: float) -> Array:
        return np.clip(edges + way * steps, 0, [width, height] * 2)

    if _iou(moved(FARTHEST), edges) > wanted:
        steps = -steps  # both spans grew, up to the border; now both shrink
    low, high = 0.0, FARTHEST
    for _ in range(HALVINGS):  # the IoU never rises along the way
        middle = (low + high) / 2
        low, high = (middle, high) if _iou(moved(middle), edges) >= wanted else (low, middle)
    return moved(low)


def _iou(one: Array, other: Array) -> float:
    shared = _area(np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:]))
    together = _area(one[:2], one[2:]) + _area(other[:2], other[2:]) - shared
    return shared / together


def _area(first: Array, last: Array) -> float:
    return float(np.prod(np.maximum(last - first, 0)))
