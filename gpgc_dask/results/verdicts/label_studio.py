"""The JSON export of a Label Studio project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.mask_sources.documents import read_head
from gpgc_dask.imaging.mask_sources.label_studio import (
    annotation_time,
    image_candidates,
    load_tasks,
)
from gpgc_dask.imaging.runs import draw_polygons, read_brush
from gpgc_dask.results.export.images import VERDICTS
from gpgc_dask.results.verdicts.base import (
    DrawnMask,
    Entry,
    ImportFormat,
    count_text,
    some_names,
)

__all__ = ["LabelStudioJson", "task_image"]

Size = tuple[int, int]


class LabelStudioJson(ImportFormat):
    """Brushes and polygons of the latest annotation of each task, and the choice of a verdict.

    A submitted annotation is one that a person has finished. Skipped tasks, drafts and predictions
    do not count.
    """

    title = "Label Studio JSON export"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """A JSON list; which one is checked when it is read."""
        return read_head(source).lstrip().startswith("[")

    def entries(self) -> list[Entry]:
        """One entry per task that has a submitted annotation."""
        self._ignored: dict[str, int] = {}
        entries, empty, several = [], [], []
        for task in load_tasks(self.source):
            own = [one for one in task["annotations"] if not one.get("was_cancelled")]
            if not own:
                continue
            name = self._image(task)
            if name is None:
                continue
            if len(own) > 1:
                several.append(name)
            try:
                entry = self._entry(name, max(own, key=annotation_time))
            except GpgcError as error:
                self.problems.append(Problem(name, str(error)))
                continue
            entries.append(entry)
            if isinstance(entry.mask, DrawnMask) and not entry.mask.regions:
                empty.append(name)
        self._note(several, empty)
        return entries

    def _image(self, task: Mapping[str, Any]) -> str | None:
        try:
            return task_image(task, self.target.names)
        except InputError as error:
            self.problems.append(Problem(f"task {task.get('id')}", str(error)))
            return None

    def _entry(self, name: str, annotation: Mapping[str, Any]) -> Entry:
        results = annotation.get("result") or []
        chosen = _choice(results)
        mask = None if chosen == "rejected" else self._mask(results)
        # Confirmed without drawing: predictions need not have been copied to the annotation.
        blank = mask is not None and not mask.regions and chosen == "confirmed"
        return Entry(
            name,
            None if blank else mask,
            "confirmed" if blank else "rejected" if chosen == "rejected" else None,
            finished=True,
            by=_person(annotation.get("completed_by")),
            at=annotation_time(annotation),
            place=f"annotation {annotation.get('id')}",
        )

    def _mask(self, results: Iterable[Any]) -> DrawnMask:
        sizes: set[Size] = set()
        regions = []
        for result in results:
            value = result.get("value") or {}
            draw = _drawing(value)
            if draw is None:
                kind = str(result.get("type"))
                if kind != "choices":
                    self._ignored[kind] = self._ignored.get(kind, 0) + 1
                continue
            if result.get("image_rotation"):
                raise UnusableFileError("the photo was rotated in Label Studio: rotate it back")
            size = _size(result)
            sizes.add(size)
            regions.append((self.target.code(_label(value)), partial(draw, *size)))
        if len(sizes) > 1:
            raise UnusableFileError(f"its regions have several sizes, {sorted(sizes)}")
        return DrawnMask(next(iter(sizes), None), tuple(regions), self.target.empty)

    def _note(self, several: list[str], empty: list[str]) -> None:
        if self._ignored:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._ignored.items())
            self.notes.append(f"regions that are no brushes or polygons are ignored: {kinds}")
        if several:
            self.notes.append(
                f"{count_text(len(several), 'task')} with several annotations, of which the latest "
                f"counts: {some_names(several)}"
            )
        if empty:
            self.notes.append(
                f"{count_text(len(empty), 'annotation')} without a region count as empty masks: "
                f"{some_names(empty)}"
            )


def task_image(task: Mapping[str, Any], names: ImageNames) -> str:
    """The image of a task: by its name, or else by the URL of its photo.

    Raises
    ------
    InputError
        If the dataset does not have it.
    """
    problem = InputError("it names no image")
    for name in image_candidates(task):
        try:
            return names.find(name)
        except InputError as error:
            problem = InputError(f"{name}: {error}")
    raise problem


def _person(completed_by: Any) -> str:
    """Address or name of a person, or their number."""
    if isinstance(completed_by, dict):
        names = (completed_by.get(key) for key in ("email", "username", "id"))
        return next((str(name) for name in names if name), "")
    return f"user {completed_by}" if completed_by else ""


def _choice(results: Iterable[Any]) -> str:
    """The verdict that was chosen; empty if none."""
    for result in results:
        if not isinstance(result, dict):
            raise UnusableFileError("a region of it is no object")
        for choice in (result.get("value") or {}).get("choices", []):
            if choice in VERDICTS:
                return str(choice)
    return ""


def _drawing(value: Mapping[str, Any]) -> Callable[[int, int], Any] | None:
    """A function of height and width that returns the pixels of a region; None if it has none."""
    if value.get("format") == "rle" or "rle" in value:
        return partial(read_brush, value.get("rle") or [])
    points = value.get("points")
    if "polygonlabels" not in value or not isinstance(points, list):
        return None
    return partial(_draw_percent, points)


def _draw_percent(points: list[Any], height: int, width: int) -> Any:
    """Pixels of a polygon whose coordinates are percent of the photo's size."""
    try:
        flat = [float(c) * side / 100 for x, y in points for c, side in ((x, width), (y, height))]
    except (TypeError, ValueError):
        raise UnusableFileError("a polygon has coordinates that are no numbers") from None
    return draw_polygons([flat], height, width)


def _size(result: Mapping[str, Any]) -> Size:
    try:
        return int(result["original_height"]), int(result["original_width"])
    except (KeyError, TypeError, ValueError):
        raise UnusableFileError("a region lacks original_height and original_width") from None


def _label(value: Mapping[str, Any]) -> str:
    for key in ("brushlabels", "polygonlabels", "labels"):
        labels = value.get(key)
        if isinstance(labels, list) and labels:
            if len(labels) > 1:
                raise UnusableFileError(f"a region has {len(labels)} labels: leave one")
            return str(labels[0])
    raise UnusableFileError("a region has no label: choose one in Label Studio")
