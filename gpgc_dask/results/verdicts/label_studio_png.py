"""The folder that Label Studio exports as "Brush labels to PNG"."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources.label_studio import load_tasks
from gpgc_dask.imaging.masks import Codes, check_size, make_upright
from gpgc_dask.imaging.photos import Orientation, decoding, open_image
from gpgc_dask.imaging.runs import OPAQUE
from gpgc_dask.results.verdicts.base import Entry, ImportFormat
from gpgc_dask.results.verdicts.label_studio import task_image

__all__ = ["LabelStudioPng"]

NAME = re.compile(
    r"task-(?P<task>\d+)-annotation-(?P<annotation>\d+)-by-(?P<by>[\w@.]*)-(?P<label>.+)-\d+"
)
"""Name of a picture: task, annotation, person, name of the brush and its label, and a number."""


class LabelStudioPng(ImportFormat):
    """One picture per brush. The JSON export of the same project names the images of the tasks.

    Of several annotations of a task the one of the largest number counts. Annotations without a
    brush have no picture: they are in the JSON export alone.
    """

    title = "Label Studio brush labels to PNG"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """A folder whose pictures are named by task and annotation."""
        names = find_images(source) if source.is_dir() else []
        return bool(names) and all(NAME.fullmatch(Path(name).stem) for name in names)

    def entries(self) -> list[Entry]:
        """One entry per task."""
        images = self._images()
        found: dict[int, dict[int, list[tuple[str, re.Match[str]]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for file in find_images(self.source):
            match = NAME.fullmatch(Path(file).stem)
            if match is None:
                reason = "its name is not one that Label Studio gives: remove it"
                self.problems.append(Problem(file, reason))
                continue
            found[int(match["task"])][int(match["annotation"])].append((file, match))
        entries = []
        for task, own in found.items():
            files = own[max(own)]
            if task not in images:
                reason = "the JSON export has no such task: export it again (--tasks)"
                self.problems.append(Problem(f"task {task}", reason))
                continue
            entry = self._entry(images[task], files)
            if entry is not None:
                entries.append(entry)
        return entries

    def _images(self) -> dict[int, str]:
        """{number of a task: image}."""
        path = self._tasks_file()
        images = {}
        for task in load_tasks(path):
            try:
                images[int(task["id"])] = task_image(task, self.target.names)
            except (KeyError, TypeError, ValueError) as error:
                self.problems.append(Problem(f"task {task.get('id')}", str(error)))
        return images

    def _tasks_file(self) -> Path:
        if self.options.tasks:
            return Path(self.options.tasks).expanduser()
        files = sorted(self.source.glob("*.json"))
        if len(files) != 1:
            raise InputError(
                f"{self.source} names its pictures by tasks: name the JSON export of the same "
                "project (tasks, --tasks FILE.json), or import that file alone"
            )
        return files[0]

    def _entry(self, image: str, files: list[tuple[str, re.Match[str]]]) -> Entry | None:
        regions = []
        for file, match in files:
            try:
                code = self._code(match["label"])
            except InputError as error:
                self.problems.append(Problem(image, str(error)))
                return None
            regions.append((code, str(self.source / file)))
        by = files[0][1]["by"]
        person = f"user {by}" if by.isdigit() else by
        mask = PictureMask(tuple(regions), self.target.empty)
        return Entry(image, mask, finished=True, by=person, place=files[0][0])

    def _code(self, text: str) -> int:
        """Class code of a label that follows the name of the brush, as in mask-horse."""
        problem = InputError("")
        parts = text.split("-")
        for first in [*range(1, len(parts)), 0]:
            try:
                return self.target.code("-".join(parts[first:]))
            except InputError as error:
                problem = problem if str(problem) else error
        raise problem


@dataclass(frozen=True)
class PictureMask:
    """A mask whose regions are pictures at the size of the photo.

    Attributes
    ----------
    regions : tuple of (int, str)
        Class code and path of each picture. Later ones are drawn over earlier ones.
    empty : int
        Class code of the pixels outside of all regions.
    """

    regions: tuple[tuple[int, str], ...]
    empty: int

    def read(self, orientation: Orientation) -> Codes:
        """Draw the pictures over each other."""
        codes = np.full((orientation.height, orientation.width), self.empty, dtype=np.uint8)
        for code, path in self.regions:
            with open_image(path) as image, decoding(path):
                check_size(image.size[::-1], orientation)
                alpha = make_upright(np.asarray(image.convert("L")), orientation)
            codes[alpha >= OPAQUE] = code
        return codes
