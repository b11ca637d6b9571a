"""A CSV file of verdicts, as ``gpgc verdicts -o`` writes it, with a folder of corrected masks."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.data.verdicts import ID, VerdictKind
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources.documents import read_head
from gpgc_dask.imaging.mask_sources.folder import MaskFile
from gpgc_dask.results.verdicts.base import Entry, ImportFormat
from gpgc_dask.results.verdicts.values import mask_folder, storage_format

__all__ = ["CsvFile"]

NEEDED = ("image", "verdict")


class CsvFile(ImportFormat):
    """Columns image, verdict, and perhaps by, at, note, id, mask.

    ``mask`` is the path of the corrected mask, relative to the CSV file. Without it the mask is
    found in the folder next to the file that is named as the file: verdicts/ of verdicts.csv.
    """

    title = "CSV file of verdicts"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """A first line with the columns image and verdict."""
        first = read_head(source).split("\n", 1)[0]
        return set(NEEDED) <= {name.strip().strip('"') for name in first.split(",")}

    def entries(self) -> list[Entry]:
        """One entry per line."""
        self._format = storage_format(self.target.format)
        self._folder = mask_folder(self.source)
        files = find_images(self._folder) if self._folder.is_dir() else []
        self._files = {str(PurePosixPath(name).with_suffix("")): name for name in files}
        entries = []
        for number, line in enumerate(self._lines(), start=2):
            try:
                entries.append(self._entry(number, line))
            except InputError as error:
                self.problems.append(Problem(line["image"], str(error)))
        return entries

    def _lines(self) -> list[Mapping[str, str]]:
        try:
            with self.source.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file, restkey="")
                columns = [name.strip() for name in reader.fieldnames or ()]
                reader.fieldnames = columns
                lines: list[Mapping[str, Any]] = [dict(line) for line in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{self.source} is not a CSV file in UTF-8: {error}") from None
        if not set(NEEDED) <= set(columns):
            raise InputError(
                f"{self.source} lacks the column image or verdict: its first line must be "
                "image,verdict (by, at, note, id and mask are optional)"
            )
        return [
            {name: value.strip() if isinstance(value, str) else "" for name, value in line.items()}
            for line in lines
        ]

    def _entry(self, number: int, line: Mapping[str, str]) -> Entry:
        image = self.target.names.find(line["image"])
        kind, known = line["verdict"], get_args(VerdictKind)
        if kind not in known:
            raise InputError(f"the verdict {kind!r} is none of {', '.join(known)}")
        own_id = line.get("id", "").lower()
        if own_id and not ID.fullmatch(own_id):
            raise InputError("the id is not one of 32 hexadecimal digits: leave it out")
        mask = None
        if kind == "corrected":
            path = self._mask_path(image, line.get("mask", ""), own_id)
            if path is None:
                raise InputError(f"there is no corrected mask of it in {self._folder.name}/")
            mask = MaskFile(str(path), self._format)
        by, at, note = (line.get(name, "") for name in ("by", "at", "note"))
        return Entry(
            image,
            mask,
            kind,  # type: ignore[arg-type]
            finished=True,
            by=by,
            at=at,
            note=note,
            id=own_id,
            place=f"line {number}",
        )

    def _mask_path(self, image: str, named: str, own_id: str) -> Path | None:
        """Path of a corrected mask: as named, or by the name of the image and the id."""
        if named:
            path = self.source.parent / named
            return path if path.is_file() else None
        stem = str(PurePosixPath(image).with_suffix(""))
        for name in ([f"{stem}.{own_id}"] if own_id else []) + [stem]:
            if name in self._files:
                return self._folder / self._files[name]
        return None
