"""The JSON export of a Label Studio project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.mask_sources.annotated import (
    Annotations,
    AnnotationSource,
    Shape,
    ShapesPhoto,
)
from gpgc_dask.imaging.mask_sources.documents import load_json, read_head, to_number
from gpgc_dask.imaging.mask_sources.regions import Brush, Ellipse, Polygon, Region

__all__ = ["LabelStudioFile", "image_candidates", "load_tasks"]

UPLOAD = re.compile(r"[0-9a-f]{8}-")
"""What Label Studio puts in front of the names of uploaded files."""

LABELS = ("brushlabels", "polygonlabels", "ellipselabels", "rectanglelabels", "keypointlabels")

IGNORED = ("rectangle", "rectanglelabels", "keypoint", "keypointlabels")
"""Regions that outline nothing."""

PERCENT = 100.0


class LabelStudioFile(AnnotationSource):
    """Brushes, polygons and ellipses of the latest annotation of each task.

    Skipped tasks, drafts and predictions do not count; neither do photos without an annotation.
    """

    title = "Label Studio JSON export"

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """A JSON list; which one is checked when it is read."""
        return path if read_head(path).lstrip().startswith("[") else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read all tasks that have an annotation."""
        names = ImageNames(find_images(images))
        photos, problems, used = list[ShapesPhoto](), list[Problem](), dict[str, None]()
        for number, task in enumerate(load_tasks(Path(masks)), start=1):
            own = [one for one in task["annotations"] if _counts(one)]
            if not own:
                continue
            name = _name(task, names)
            try:
                if not name:
                    raise UnusableFileError("it names no image")
                photo = _photo(name, masks, max(own, key=annotation_time))
            except GpgcError as error:
                problems.append(Problem(name or f"task {task.get('id', number)}", str(error)))
                continue
            photos.append(photo)
            used.update((shape.label, None) for shape in photo.shapes)
        return Annotations(images, masks, photos, list(used), problems)


def load_tasks(path: Path) -> list[dict[str, Any]]:
    """Tasks of a JSON export; an InputError if it is none."""
    content = load_json(path)
    tasks = content if isinstance(content, list) else [content]
    for task in tasks:
        if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
            raise InputError(
                f"{path} is not a JSON export of Label Studio: choose JSON, not JSON-MIN or "
                "another format, in Export"
            )
        if not isinstance(task.setdefault("annotations", []), list):
            raise InputError(f"{path}: the annotations of task {task.get('id')} are no list")
        if not all(isinstance(one, dict) for one in task["annotations"]):
            raise InputError(f"{path}: an annotation of task {task.get('id')} is no mapping")
    if not any(task["annotations"] for task in tasks):
        raise InputError(
            f"{path} has no annotation: it may be the file of tasks. Export the project from Label "
            "Studio as JSON"
        )
    return tasks


def image_candidates(task: Mapping[str, Any]) -> Iterator[str]:
    """Names that the photo of a task may have, the most likely first."""
    data = task["data"]
    for text in (data.get("name"), *(_path(data.get(key)) for key in ("image", "img", "url"))):
        if text:
            yield from dict.fromkeys((str(text), _without_upload(text)))


def annotation_time(annotation: Mapping[str, Any]) -> str:
    """When an annotation was changed, or else made."""
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _counts(annotation: Any) -> bool:
    if not isinstance(annotation, dict):
        raise InputError("an annotation of Label Studio is no object: export the project again")
    return not annotation.get("was_cancelled")


def _name(task: Mapping[str, Any], names: ImageNames) -> str:
    candidates = list(image_candidates(task))
    known = [text for text in candidates if names.matches(text)]
    return (known or candidates or [""])[0]


def _path(url: Any) -> str | None:
    """Path of a photo from its URL; local files are named in the query."""
    if not isinstance(url, str) or not url:
        return None
    try:
        parts = urlsplit(url)
        local = parse_qs(parts.query).get("d")
    except ValueError:  # brackets that are no address, too many fields
        return url
    return local[0] if local else unquote(parts.path).lstrip("/")


def _without_upload(path: Any) -> str:
    folder, slash, name = str(path).rpartition("/")
    return folder + slash + UPLOAD.sub("", name, count=1)


def _photo(name: str, path: str, annotation: Mapping[str, Any]) -> ShapesPhoto:
    results = annotation.get("result") or []
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise UnusableFileError("the regions of it are no list of objects")
    named = _labels_by_id(results)
    sizes: dict[tuple[int, int], None] = {}
    shapes, drawn = list[Shape](), dict[str, Region]()
    for number, result in enumerate(results, start=1):
        value = result.get("value")
        kind = str(result.get("type"))
        region = _region(value) if isinstance(value, dict) else None
        if region is None and kind not in IGNORED:
            continue
        where = str(result.get("id") or f"{PurePosixPath(name).stem}:{number}")
        if result.get("image_rotation"):
            raise UnusableFileError("the photo was rotated in Label Studio: rotate it back")
        if region is not None:
            if drawn.setdefault(where, region) is not region:
                if drawn[where] == region:  # as a result for its outline and one for its label
                    continue
                raise UnusableFileError(f"several regions have the id {where}: remove all but one")
            sizes[_size(result)] = None
        label = named.get(where) or named.get(str(result.get("id")), [])
        if len(label) != 1:
            problem = f"{len(label)} labels: leave one" if label else "no label: choose one"
            raise UnusableFileError(f"region {where} has {problem} in Label Studio")
        shapes.append(Shape(label[0], () if region is None else (region,), where, kind))
    if len(sizes) > 1:
        raise UnusableFileError(f"its regions have several sizes, {sorted(sizes)}")
    return ShapesPhoto(name, path, tuple(shapes), next(iter(sizes), None))


def _labels_by_id(results: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """{id of a region: its labels}; the label may be another result than the region."""
    named: dict[str, list[str]] = {}
    for result in results:
        value = result.get("value")
        for key in (*LABELS, "labels"):
            labels = value.get(key) if isinstance(value, dict) else None
            if isinstance(labels, list) and labels:
                named[str(result.get("id"))] = [str(label) for label in labels]
                break
    return named


def _region(value: Mapping[str, Any]) -> Region | None:
    """The outline of a region; None if it has none."""
    if value.get("format") == "rle" or "rle" in value:
        try:
            return Brush(bytes(list(value.get("rle") or [])))
        except (TypeError, ValueError, OverflowError) as error:
            raise UnusableFileError(f"a brush cannot be decoded: {error}") from None
    if "radiusX" in value:
        x, y, half_width, half_height = (
            to_number(value.get(key), f"{key} of an ellipse")
            for key in ("x", "y", "radiusX", "radiusY")
        )
        degrees = to_number(value.get("rotation") or 0, "the rotation of an ellipse")
        return Ellipse(x, y, half_width, half_height, degrees, PERCENT)
    if "points" in value:
        return Polygon.read(value["points"], PERCENT)
    return None


def _size(result: Mapping[str, Any]) -> tuple[int, int]:
    height, width = (
        int(to_number(result.get(f"original_{side}"), f"original_{side} of a region"))
        for side in ("height", "width")
    )
    return height, width
