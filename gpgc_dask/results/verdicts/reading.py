"""Import verdicts into a dataset: everything is checked before the first one is written."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from gpgc_dask.core.errors import GpgcError, InputError, MissingFileError, PipelineError, Problem
from gpgc_dask.core.progress import Meter, Progress
from gpgc_dask.data.dataset import open_dataset, text_values
from gpgc_dask.data.maps import map_chunks
from gpgc_dask.data.verdicts import Verdict, VerdictKind, VerdictLog, latest
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.results.verdicts.base import (
    Entry,
    ImportFormat,
    ImportOptions,
    Target,
    count_text,
    some_names,
)
from gpgc_dask.results.verdicts.given import GivenMasks
from gpgc_dask.results.verdicts.registry import IMPORTS
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = ["ImportReport", "import_verdicts"]


@dataclass(frozen=True)
class ImportReport:
    """Outcome of an import.

    Attributes
    ----------
    source : str
        The file or folder.
    format : str
        Name of its format.
    title : str
        What the format is called.
    corrected, confirmed, rejected, withdrawn : int
        Number of verdicts that were added.
    known : int
        Number of verdicts that the dataset had already.
    undecided : int
        Number of images whose mask is as given, without a sign that a person has finished them.
    older : int
        Number of added verdicts that do not count, because later ones exist on the same images.
    skipped : list of Problem
        Images and files that cannot be used.
    notes : list of str
        What else to know.
    """

    source: str
    format: str
    title: str
    corrected: int = 0
    confirmed: int = 0
    rejected: int = 0
    withdrawn: int = 0
    known: int = 0
    undecided: int = 0
    older: int = 0
    skipped: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def added(self) -> int:
        """Number of verdicts that were added."""
        return self.corrected + self.confirmed + self.rejected + self.withdrawn


def import_verdicts(
    dataset: str | PathLike[str],
    source: str | PathLike[str],
    *,
    format: str | None = None,
    by: str = "",
    on_error: Literal["raise", "skip"] = "raise",
    confirm_unchanged: bool | None = None,
    mask_suffix: str = "",
    tasks: str | PathLike[str] = "",
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ImportReport:
    """Add the verdicts and corrected masks of a file or folder to a dataset.

    A mask that differs from the given one is a correction. A mask that does not differ is confirmed
    if a person has finished the image; which images these are depends on the format. Images that
    are not mentioned stay as they are. What the dataset has already is not added again.

    Parameters
    ----------
    dataset : path or URL
        The dataset.
    source : path
        A local file or folder.
    format : str, optional
        Name of its format (``IMPORTS.names()``); by default it is recognised by its content.
    by : str, optional
        Who has decided; by default as the source names them.
    on_error : {"raise", "skip"}, default "raise"
        Whether to stop before anything is written if something cannot be used, or to leave it out.
    confirm_unchanged : bool, optional
        Whether masks that are as given are confirmed. By default if a person has finished them.
    mask_suffix : str, default ""
        What follows the image's name in the names of mask files, such as "_mask".
    tasks : path, optional
        For Label Studio's PNG files: the JSON export of the same project.
    storage_options : dict, optional
        Options of fsspec for the URL of the dataset.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress` after each image.

    Returns
    -------
    ImportReport

    Raises
    ------
    InputError
        If there is no such format, or the source has none.
    PipelineError
        If something cannot be used; its ``problems`` list what. Nothing has been written.

    Examples
    --------
    >>> import shutil
    >>> from gpgc_dask.results.verdicts import import_verdicts
    >>> dataset = shutil.copytree("horses.zarr", "reviewed.zarr", dirs_exist_ok=True)
    >>> report = import_verdicts(dataset, "masks", by="anna")  # a folder of masks as given
    >>> report.title, report.confirmed, report.corrected
    ('folder of masks', 12, 0)
    """
    path = Path(source).expanduser()
    name, kind = _find_format(path, format)
    opened = open_dataset(dataset, storage_options, verdicts=False)
    log = VerdictLog(Location.of(dataset, storage_options))
    options = ImportOptions(mask_suffix, os.fspath(tasks))
    reader = kind(path, _target(opened), options)
    entries = reader.entries()
    if not entries and not reader.problems:
        reader.notes.append(f"{path} mentions no image: there is nothing to import")
    decisions = _Decisions(opened, log.read(), by=by, confirm_unchanged=confirm_unchanged)
    decisions.decide(entries, progress)
    problems = reader.problems + decisions.problems
    if problems and on_error == "raise":
        raise PipelineError(_describe(path, kind, problems), problems)
    _append(log, opened, decisions.added)
    counts = Counter(one.kind for one in decisions.added)
    return ImportReport(
        str(path),
        name,
        kind.title,
        **{own: counts[own] for own in ("corrected", "confirmed", "rejected", "withdrawn")},
        known=decisions.known,
        undecided=decisions.undecided,
        older=decisions.older,
        skipped=problems,
        notes=reader.notes + decisions.notes(),
    )


def _find_format(path: Path, name: str | None) -> tuple[str, type[ImportFormat]]:
    """Name and class of the format of a file or folder."""
    if name is not None:
        kind = IMPORTS[name]
    if not path.exists():
        raise MissingFileError(f"{path} does not exist: name a file or folder to import")
    if name is not None:
        return name, kind
    for known in IMPORTS:
        if IMPORTS[known].recognises(path):
            return known, IMPORTS[known]
    titles = ", ".join(IMPORTS[known].title for known in IMPORTS)
    raise InputError(f"{path} has none of the known formats: {titles}")


def _target(dataset: xr.Dataset) -> Target:
    source = dataset.attrs["source"]
    fmt = MaskFormat.from_json(source["mask_format"])
    return Target(ImageNames(text_values(dataset["image_name"]).tolist()), fmt, source["format"])


def _describe(path: Path, kind: type[ImportFormat], problems: list[Problem]) -> str:
    """One line per reason, with the number of images and the first names."""
    reasons: dict[str, list[str]] = {}
    for problem in problems:
        reasons.setdefault(problem.reason, []).append(problem.name)
    lines = [
        f"{reason} ({count_text(len(names), 'image')}: {some_names(names)})"
        for reason, names in reasons.items()
    ]
    return (
        f"{path} ({kind.title}): {count_text(len(problems), 'image')} cannot be used, and nothing "
        'was imported; on_error="skip" (--on-error skip) leaves them out:\n' + "\n".join(lines)
    )


# -- from entries to verdicts ----------------------------------------------------------------------


@dataclass(frozen=True)
class _New:
    """A verdict to be written. Its mask, if any, is compressed: there may be thousands of them."""

    image: str
    kind: VerdictKind
    by: str
    at: str
    note: str
    id: str
    mask: bytes | None = None


class _Decisions:
    """Decides which verdicts follow from entries.

    Parameters
    ----------
    dataset : xarray.Dataset
        Without verdicts.
    log : list of Verdict
        The verdicts that it has, in the order of their times.
    by : str
        Replaces the names in the entries, if it is not empty.
    confirm_unchanged : bool or None
        Replaces ``finished`` of the entries, if it is not None.
    """

    def __init__(
        self, dataset: xr.Dataset, log: list[Verdict], *, by: str, confirm_unchanged: bool | None
    ) -> None:
        self.dataset, self.by, self.confirm_unchanged = dataset, by, confirm_unchanged
        names = text_values(dataset["image_name"]).tolist()
        self.photo = {name: number for number, name in enumerate(names)}
        self.ids = {verdict.id for verdict in log}
        self.last = {verdict.image: verdict.at for verdict in log}
        # What counts for each image: kind and digest of the corrected mask.
        self.current: dict[str, tuple[str, str]] = {
            name: (one.kind, "" if one.correction is None else _digest(one.correction.mask))
            for name, one in latest(log).items()
        }
        self.given = GivenMasks(dataset)
        self.now = datetime.now(UTC).isoformat(timespec="microseconds")
        self.added: list[_New] = []
        self.problems: list[Problem] = []
        self.known = self.undecided = self.older = self.small = 0

    def decide(self, entries: list[Entry], progress: Callable[[Progress], None] | None) -> None:
        """Read the masks of all entries, several at a time, and decide in their order."""
        silence_pillow()
        meter = Meter(progress, "images", len(entries))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for entry, made in zip(entries, pool.map(self._read, entries), strict=True):
                if isinstance(made, Problem):
                    self.problems.append(made)
                else:
                    self._add(entry, *made)
                meter(1, len(self.problems))

    def notes(self) -> list[str]:
        """What a user should know about the decisions."""
        if not self.small:
            return []
        return [
            f"the given masks of {count_text(self.small, 'image')} cannot be read any more: the "
            "masks were compared at the size of the superpixels"
        ]

    def _read(self, entry: Entry) -> tuple[bytes | None, str, bool | None, bool] | Problem:
        """(compressed mask, its digest, whether it is as given, whether compared at full size)."""
        if entry.mask is None:
            return None, "", None, True
        photo = self.photo[entry.image]
        try:
            codes = entry.mask.read(self.given.orientation(photo))
            same, whole = self.given.equals(photo, codes)
        except (GpgcError, OSError) as error:
            return Problem(entry.image, str(error))
        return zlib.compress(codes.tobytes(), 1), _digest(codes), same, whole

    def _add(
        self, entry: Entry, mask: bytes | None, digest: str, same: bool | None, whole: bool
    ) -> None:
        finished = entry.finished if self.confirm_unchanged is None else self.confirm_unchanged
        if entry.kind is None and same and not finished:
            self.undecided += 1
            return
        kind = entry.kind or ("confirmed" if same else "corrected")
        if kind != "corrected":
            mask, digest = None, ""
        self.small += not whole
        if self._is_known(entry, kind, digest):
            self.known += 1
            return
        by, at = self.by or entry.by, entry.at or self.now
        own_id = entry.id or _make_id(entry.image, kind, by, at, entry.note, digest)
        if own_id in self.ids:
            self.known += 1
            return
        try:
            checked = Verdict(entry.image, "confirmed", by, at, entry.note, id=own_id)
        except InputError as error:
            self.problems.append(Problem(entry.image, f"{entry.place}: {error}"))
            return
        new = _New(entry.image, kind, by, checked.at, entry.note, own_id, mask)
        self.added.append(new)
        self.ids.add(own_id)
        if new.at < self.last.get(new.image, ""):
            self.older += 1
        else:
            self.last[new.image], self.current[new.image] = new.at, (kind, digest)

    def _is_known(self, entry: Entry, kind: str, digest: str) -> bool:
        """Whether an entry changes nothing; with an id, whether the log has it."""
        if entry.id:
            return entry.id in self.ids
        withdrawn = ("withdrawn", "")
        return self.current.get(entry.image, withdrawn) == (kind, digest)


def _digest(codes: Any) -> str:
    data = np.ascontiguousarray(codes, dtype=np.uint8).tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _make_id(*parts: str) -> str:
    """An id that is the same when the same verdict is imported again."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


# -- writing ---------------------------------------------------------------------------------------


def _append(log: VerdictLog, dataset: xr.Dataset, added: list[_New]) -> None:
    """Write the verdicts, several at a time; an interrupted import is completed by the next one."""
    names = text_values(dataset["image_name"]).tolist()
    by_photo: dict[int, list[_New]] = {}
    number = {name: photo for photo, name in enumerate(names)}
    for new in added:
        by_photo.setdefault(number[new.image], []).append(new)
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        plain = [_verdict(new) for new in added if new.mask is None]
        list(pool.map(log.append, plain))
        photos = [photo for photo, own in by_photo.items() if any(new.mask for new in own)]
        if not photos:
            return
        for chunk in map_chunks(dataset, ["segments"], np.array(photos)):
            made = (
                _corrected(dataset, photo, new, segments)
                for photo, segments in chunk
                for new in by_photo[photo]
                if new.mask is not None
            )
            list(pool.map(log.append, made))


def _verdict(new: _New, **more: Any) -> Verdict:
    return Verdict(new.image, new.kind, new.by, new.at, new.note, id=new.id, **more)


def _corrected(dataset: xr.Dataset, photo: int, new: _New, segments: Any) -> Verdict:
    size = tuple(int(dataset[side].values[photo]) for side in ("height", "width"))
    codes = np.frombuffer(zlib.decompress(new.mask or b""), dtype=np.uint8).reshape(size)
    return _verdict(new, correction=make_correction(dataset, photo, codes, segments))
