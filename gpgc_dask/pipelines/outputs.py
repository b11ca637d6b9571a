"""Which pictures are made of which photos. No picture may replace a photo or another picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath, stat_result
from pathlib import Path

from gpgc_dask.core.errors import ExistsError, InputError, MissingFileError, NotAFolderError
from gpgc_dask.imaging.files import find_images, images_in, printable
from gpgc_dask.imaging.painting import target_paths
from gpgc_dask.storage.location import UNFINISHED_SUFFIX

__all__ = [
    "Job",
    "check_absent",
    "find_jobs",
    "find_photos",
    "output_folders",
    "remove_pictures",
    "to_jobs",
]

SUFFIXES = {"mask": ".png", "probability": ".png", "std": ".tiff"}
"""{kind of picture: file ending}."""


@dataclass(frozen=True)
class Job:
    """A photo and the pictures to be made of it.

    Attributes
    ----------
    name : str
        Path of the photo within its folder, with forward slashes.
    photo : Path
        The photo.
    pictures : dict
        {kind: path of the picture}.
    """

    name: str
    photo: Path
    pictures: dict[str, Path]

    @property
    def is_done(self) -> bool:
        """Whether all pictures exist."""
        return all(path.exists() for path in self.pictures.values())


def output_folders(**kinds: str | PathLike[str] | None) -> dict[str, Path]:
    """Absolute paths of the folders that are not None, by kind of picture."""
    folders: dict[str, Path] = {}
    for kind, folder in kinds.items():
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
    """Jobs of a folder of photos, or of one photo, in the order of the names."""
    path = Path(images).expanduser().absolute()
    if path.is_file():
        root = path.parent
        names = [own.relative_to(root).as_posix() for own in images_in(path)]
    else:
        root, names = path, find_photos(path, folders.values())
    return to_jobs(root, names, folders)


def to_jobs(
    root: Path, names: list[str], folders: dict[str, Path], others: Iterable[str] = ()
) -> list[Job]:
    """Jobs of photos by name; ``others`` are photos in the folder that nothing is made of."""
    targets = [target_paths(names, folder, SUFFIXES[kind]) for kind, folder in folders.items()]
    jobs = [
        Job(name, root / name, dict(zip(folders, paths, strict=True)))
        for name, paths in zip(names, zip(*targets, strict=True), strict=True)
    ]
    _check_places(jobs, [root / name for name in (*names, *others)])
    return jobs


def find_photos(folder: Path, outputs: Iterable[Path]) -> list[str]:
    """Names of the photos in a folder, without the pictures in the folders ``outputs``."""
    if not folder.exists():
        raise MissingFileError(f"{folder} does not exist: specify a photo or a folder of photos")
    existing = [output for output in outputs if output.is_dir()]
    if any(output.samefile(folder) for output in existing):
        raise InputError(
            f"{folder} holds the photos: choose another folder for the pictures, which would be "
            "taken for photos"
        )
    passed: list[Path | None] = [*existing] or [None]
    names = set.intersection(*(set(find_images(folder, leave_out=output)) for output in passed))
    if not names:
        raise InputError(f"there are no images in {folder}")
    return sorted(names)


def _check_places(jobs: list[Job], photos: list[Path]) -> None:
    """Raise an InputError if a picture would replace another picture or a photo."""
    counts = Counter(path for job in jobs for path in job.pictures.values())
    lost = [path for path, count in counts.items() if count > 1]
    existing = {_file_id(path.lstat()): path for path in counts if path.is_file()}
    if existing:  # otherwise no photo is among them
        lost += [existing[one] for photo in photos for one in _file_ids(photo) if one in existing]
    if lost:
        raise InputError(
            f"{printable(lost[0])} is a photo, or another picture, and would be lost: choose "
            "another folder to write to"
        )


def _file_id(status: stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _file_ids(photo: Path) -> Iterator[tuple[int, int]]:
    """Identifiers of a photo and of the file that it links to."""
    yield _file_id(photo.lstat())
    if photo.is_symlink() and photo.exists():
        yield _file_id(photo.stat())


def check_absent(jobs: Sequence[Job]) -> None:
    """Raise an ExistsError if a picture exists."""
    existing = [path for job in jobs for path in job.pictures.values() if path.exists()]
    if existing:
        more = f", and {len(existing) - 1:,} more of the pictures" if len(existing) > 1 else ""
        raise ExistsError(
            f"{printable(existing[0])} exists{more}: keep what exists and make the rest with "
            "resume=True (--resume), replace it with overwrite=True (--overwrite), or choose "
            "another folder"
        )


def remove_pictures(jobs: Sequence[Job], *, finished: bool) -> None:
    """Remove unfinished pictures that killed processes have left; with ``finished`` all pictures.

    All are removed at the start, so that resuming an interrupted overwrite keeps none of the old
    ones.
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
