"""Rough masks of many photos from bounding boxes, by GrabCut."""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.imaging.boxes import (
    Boxes,
    PlacedBox,
    box_edges,
    jitter_edges,
    match_boxes,
    photo_key,
    read_boxes,
)
from gpgc_dask.imaging.grabcut import check_numbers, cut_object, import_opencv
from gpgc_dask.imaging.painting import encode_picture, paint
from gpgc_dask.imaging.photos import read_photo
from gpgc_dask.pipelines.batches import problem_error
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.outputs import Job, find_photos, output_folders, to_jobs
from gpgc_dask.pipelines.photo_jobs import make_pictures
from gpgc_dask.storage.location import write_whole

__all__ = ["AutosegReport", "autoseg"]

MASK_VALUES = np.array([0, 255], dtype=np.uint8)


@dataclass(frozen=True)
class AutosegReport:
    """The outcome of :func:`gpgc_dask.pipelines.autoseg.autoseg`.

    Attributes
    ----------
    target : str
        Folder of the masks.
    images : int
        Number of photos that have a mask.
    skipped : list of Problem
        Photos and boxes that could not be used.
    without_box : int
        Number of photos in the folder that have no box, and therefore no mask.
    resumed : int
        Number of photos that an earlier run had finished.
    elapsed : float
        Seconds that this run took.
    """

    target: str
    images: int
    skipped: list[Problem]
    without_box: int = 0
    resumed: int = 0
    elapsed: float = 0.0


def autoseg(
    images: str | PathLike[str],
    boxes: str | PathLike[str] | Boxes,
    target: str | PathLike[str],
    *,
    iterations: int = 5,
    jitter: float = 0.0,
    seed: int = 0,
    side: int | None = None,
    run: RunOptions | None = None,
) -> AutosegReport:
    """Make masks from bounding boxes by GrabCut: 0/255 PNGs at the photos' own size.

    Masks are named after their photos and written as they are finished. They depend on photo, name,
    boxes and parameters alone.

    Parameters
    ----------
    images : path
        Folder of photos, with subfolders.
    boxes : path or mapping
        A CSV file with the columns image (path within the folder), x, y, width and height, in
        pixels of the upright photo, or {image: boxes}. The mask of a photo with several boxes is
        the union of theirs. Photos without a box get no mask.
    target : path
        Folder of the masks.
    iterations : int, default 5
        Iterations of GrabCut, see :func:`~gpgc_dask.imaging.grabcut.grabcut`.
    jitter : float, default 0.0
        Displaces the boxes at random: the IoU of each with the original, clipped to the photo, is
        drawn from U(1 − jitter, 1], see ``gpgc_dask.imaging.boxes.jitter_edges``. The draws
        depend on the seed, the image's name and the order of its boxes.
    seed : int, default 0
        Seed of GrabCut and of the jitter.
    side : int, optional
        Longest side in pixels to which photos are scaled down; their masks are enlarged by nearest
        pixel. GrabCut needs much memory per pixel.
    run : RunOptions, optional
        Resuming, unusable photos, progress and cluster. Resuming keeps existing masks, whatever
        boxes they were made from.

    Returns
    -------
    AutosegReport

    Examples
    --------
    >>> from gpgc_dask.pipelines.autoseg import autoseg
    >>> autoseg("photos", {"photo_000.jpg": [(10, 5, 60, 50)]}, "rough-masks").images
    1
    """
    start = time.perf_counter()
    run = run or RunOptions()
    cutter = Cutter(iterations, jitter, seed, side)
    import_opencv()
    folders = output_folders(mask=target)
    by_image = read_boxes(boxes)
    root = Path(images).expanduser().absolute()
    names = find_photos(root, folders.values())
    boxed, unusable = match_boxes(by_image, names, root)
    if unusable and (run.on_error == "raise" or not boxed):
        raise problem_error(unusable)
    jobs = [
        BoxedJob(job.name, job.photo, job.pictures, boxed[job.name])
        for job in to_jobs(root, [*boxed], folders, others=names)
    ]
    problems, resumed = make_pictures(cutter, jobs, run, name="autoseg")
    return AutosegReport(
        target=str(folders["mask"]),
        images=len(jobs) - len(problems),
        skipped=sorted([*unusable, *problems], key=lambda problem: problem.name),
        without_box=sum(photo_key(name) not in by_image for name in names),
        resumed=resumed,
        elapsed=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class BoxedJob(Job):
    """A photo, the path of its mask, and its boxes."""

    boxes: tuple[PlacedBox, ...]


@dataclass(frozen=True)
class Cutter:
    """Makes the masks, see :func:`autoseg` for the parameters."""

    iterations: int
    jitter: float
    seed: int
    side: int | None

    def __post_init__(self) -> None:
        check_numbers(self.iterations, self.seed)
        if not 0 <= self.jitter <= 1:
            raise InputError(f"jitter must be 0 to 1, got {self.jitter!r}")
        if self.side is not None and not 16 <= self.side <= 8192:
            raise InputError(f"side must be 16 to 8192 pixels, got {self.side!r}")

    def run(self, job: BoxedJob) -> None:
        """Cut out the objects in the boxes and write the mask, completely or not at all."""
        photo = read_photo(job.photo, self.side or sys.maxsize)
        height, width = photo.orientation.height, photo.orientation.width
        h, w = photo.pixels.shape[:2]
        scale = np.array([w / width, h / height] * 2)
        rng = self._generator(job.name)
        mask = np.zeros((h, w), dtype=np.bool_)
        for one in job.boxes:
            try:
                edges = box_edges(one.box, height, width)
                edges = jitter_edges(edges, height, width, self.jitter, rng)
                mask |= cut_object(photo.pixels, edges * scale, self.iterations, self.seed)
            except UnusableFileError as error:
                raise UnusableFileError(f"{one.place}: {error}") from None
        painted = paint(mask.astype(np.uint16), MASK_VALUES, height, width)
        write_whole(job.pictures["mask"], encode_picture(painted))

    def _generator(self, name: str) -> np.random.Generator:
        """Generator of an image, independent of the order of images and the number of workers."""
        digest = hashlib.sha256(photo_key(name).encode(errors="surrogatepass")).digest()
        return np.random.default_rng([self.seed, int.from_bytes(digest[:16], "big")])
