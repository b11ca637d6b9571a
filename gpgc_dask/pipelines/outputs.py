"""Which pictures are to be made of which photos: none at the cost of a photo or of each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath, stat_result
from pathlib import Path

from gpgc_dask.core.errors import ExistsError, InputError, MissingFileError, NotAFolderError
from gpgc_dask.imaging.files import find_images, printable
from gpgc_dask.imaging.painting import target_paths
from gpgc_dask.storage.location import UNFINISHED_SUFFIX

__all__ = [
    "Job",
    "check_absent",
    "clear",
    "find_jobs",
    "output_folders",
    "photos_in",
    "to_jobs",
]

SUFFIXES = {"mask": ".png", "probability": ".png", "std": ".tiff"}
"""Endings of the kinds of pictures."""


@dataclass(frozen=True)
class Job:
    """A photo and the pictures to be made of it, by kind. ``name``: as of files.Pair."""

    name: str
    photo: Path
    pictures: dict[str, Path]

    @property
    def is_done(self) -> bool:
        return all(path.exists() for path in self.pictures.values())


def output_folders(**given: str | PathLike[str] | None) -> dict[str, Path]:
    """Absolute paths of the folders that are given, by kind of picture."""
    folders: dict[str, Path] = {}
    for kind, folder in given.items():
        if folder is None:
            continue
        if "://" in fspath(folder):
            raise InputError(f"{folder} is a URL: pictures are written to local folders")
        path = Path(folder).expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise NotAFolderError(f"{folder} is a file: name a folder to write to")
        if path.resolve() in [other.resolve() for other in folders.values()]:
            raise InputError(f"{folder} is named twice: each kind of picture needs its own folder")
        folders[kind] = path
    return folders


def find_jobs(images: str | PathLike[str], folders: dict[str, Path]) -> list[Job]:
    """What to do for a folder of photos, or for one photo, in the order of the names."""
    given = Path(images).expanduser().absolute()
    if given.is_file():
        root, names = given.parent, [given.name]
    else:
        root, names = given, photos_in(given, folders.values())
    return to_jobs(root, names, folders)


def to_jobs(
    root: Path, names: list[str], folders: dict[str, Path], others: Iterable[str] = ()
) -> list[Job]:
    """The jobs of photos by name. ``others``: photos there that nothing is made of."""
    targets = [target_paths(names, folder, SUFFIXES[kind]) for kind, folder in folders.items()]
    jobs = [
        Job(name, root / name, dict(zip(folders, paths, strict=True)))
        for name, paths in zip(names, zip(*targets, strict=True), strict=True)
    ]
    _check_places(jobs, [root / name for name in (*names, *others)])
    return jobs


def photos_in(folder: Path, outputs: Iterable[Path]) -> list[str]:
    """Names of the photos in a folder; pictures made of photos are none."""
    if not folder.exists():
        raise MissingFileError(f"{folder} does not exist: name a photo, or a folder of photos")
    there = [output for output in outputs if output.is_dir()]
    if any(output.samefile(folder) for output in there):
        raise InputError(
            f"{folder} holds the photos: choose another folder for what is made of them, lest it "
            "be taken for photos"
        )
    passed: list[Path | None] = [*there] or [None]
    names = set.intersection(*(set(find_images(folder, leave_out=output)) for output in passed))
    if not names:
        raise InputError(f"there are no images in {folder}")
    return sorted(names)


def _check_places(jobs: list[Job], photos: list[Path]) -> None:
    """Complain where a picture would take the place of another, or of a photo."""
    places = Counter(path for job in jobs for path in job.pictures.values())
    lost = [path for path, count in places.items() if count > 1]
    there = {_file_id(path.lstat()): path for path in places if path.is_file()}
    if there:  # else no photo is among them
        lost += [there[known] for photo in photos for known in _ids(photo) if known in there]
    if lost:
        raise InputError(
            f"{printable(lost[0])} is a photo, or another picture, and would be lost: choose "
            "another folder to write to"
        )


def _file_id(status: stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _ids(photo: Path) -> Iterator[tuple[int, int]]:
    """A photo, and what it is a link to, whatever the paths to them."""
    yield _file_id(photo.lstat())
    if photo.is_symlink() and photo.exists():
        yield _file_id(photo.stat())


def check_absent(jobs: Sequence[Job]) -> None:
    """Complain where there are pictures already."""
    there = [path for job in jobs for path in job.pictures.values() if path.exists()]
    if there:
        more = f", and {len(there) - 1:,} more of the pictures" if len(there) > 1 else ""
        raise ExistsError(
            f"{printable(there[0])} exists{more}: leave what is there and do the rest with "
            "resume=True (--resume), replace it with overwrite=True (--overwrite), or choose "
            "another folder"
        )


def clear(jobs: Sequence[Job], *, finished: bool) -> None:
    """Remove what killed writers have left of the jobs' pictures; ``finished``: these as well.

    All at the start: whoever resumes an overwrite that was stopped finds none of the old ones.
    """
    pictures = {path for job in jobs for path in job.pictures.values()}
    unfinished = re.compile(rf"(.+)\.[0-9a-f]{{32}}{re.escape(UNFINISHED_SUFFIX)}")
    for folder in {path.parent for path in pictures}:
        for path in folder.glob(f"*{UNFINISHED_SUFFIX}"):
            match = unfinished.fullmatch(path.name)
            if match and folder / match[1] in pictures:
                path.unlink(missing_ok=True)
    if finished:
        for path in pictures:
            path.unlink(missing_ok=True)
