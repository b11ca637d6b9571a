"""LabelMe: a JSON file per photo."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath
from typing import Any

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.mask_sources.annotated import (
    Annotations,
    AnnotationSource,
    Shape,
    ShapesPhoto,
    merge_groups,
)
from gpgc_dask.imaging.mask_sources.documents import load_json, read_head, to_number
from gpgc_dask.imaging.mask_sources.regions import Ellipse, Picture, Polygon, Region

__all__ = ["LabelMeFolder"]

IGNORED = ("line", "linestrip", "point", "points")
"""Shapes that outline nothing."""


class LabelMeFolder(AnnotationSource):
    """Polygons, rectangles, circles and masks of NAME.json, later ones in front.

    The photo is the one that the file names (``imagePath``), or else the one of the file's own
    name. The files may be in the folder of the photos.
    """

    title = "LabelMe"

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """A folder with JSON files of LabelMe."""
        if not path.is_dir():
            return None
        first = next(iter(sorted(path.glob("*.json")) or sorted(path.rglob("*.json"))), None)
        return path if first is not None and '"shapes"' in read_head(first) else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read the JSON files in the folder and its subfolders."""
        root = Path(masks)
        if not root.is_dir():
            raise InputError(f"{masks} is not a folder: name the folder of the JSON files")
        files = sorted(root.rglob("*.json"))
        if not files:
            raise InputError(f"{masks} has no JSON files of LabelMe")
        names = ImageNames(find_images(images))
        photos, problems, used = list[ShapesPhoto](), list[Problem](), dict[str, None]()
        for path in files:
            place = path.relative_to(root).as_posix()
            try:
                photo = _photo(load_json(path), path, place, names)
            except GpgcError as error:
                problems.append(Problem(place, str(error)))
                continue
            photos.append(photo)
            used.update((shape.label, None) for shape in photo.shapes)
        return Annotations(images, masks, photos, list(used), problems)


def _photo(content: Any, path: Path, place: str, names: ImageNames) -> ShapesPhoto:
    if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
        raise UnusableFileError("it is not a file of LabelMe: it has no list of shapes")
    size = None
    if content.get("imageHeight") and content.get("imageWidth"):
        height, width = (int(to_number(content[f"image{s}"], s)) for s in ("Height", "Width"))
        size = (height, width)
    shapes = [_shape(one, f"{path.stem}:{n}") for n, one in enumerate(content["shapes"], start=1)]
    return ShapesPhoto(_name(content, place, names), str(path), tuple(merge_groups(shapes)), size)


def _name(content: dict[str, Any], place: str, names: ImageNames) -> str:
    """The photo that a file names, relative to its own folder; or else that of its own name."""
    own = str(PurePosixPath(place).with_suffix(""))
    stated = content.get("imagePath")
    if not isinstance(stated, str) or not stated:
        return own
    text = stated.replace("\\", "/")
    joined = os.path.normpath(PurePosixPath(place).parent / text).lstrip("./")
    for name in (joined, text, own):
        if len(names.matches(name)) == 1:
            return name
    return text


def _shape(content: Any, where: str) -> tuple[str, Shape]:
    """(group, shape)."""
    label = content.get("label") if isinstance(content, dict) else None
    if not isinstance(label, str) or not label:
        raise UnusableFileError(f"shape {where} has no label")
    kind = content.get("shape_type") or "polygon"
    group = content.get("group_id")
    try:
        regions = () if kind in IGNORED else (_region(content, str(kind)),)
    except UnusableFileError as error:
        raise UnusableFileError(f"shape {where}: {error}") from None
    return "" if group is None else str(group), Shape(label, regions, where, str(kind))


def _region(content: dict[str, Any], kind: str) -> Region:
    polygon = Polygon.read(content.get("points"))
    numbers = polygon.points
    if kind in ("polygon", "oriented_rectangle"):
        return polygon
    if kind not in ("rectangle", "circle", "mask"):
        raise UnusableFileError(f"it is of the unknown type {kind[:40]!r}")
    if len(numbers) != 4:
        raise UnusableFileError(f"a {kind} has {len(numbers) // 2} points and needs 2")
    x0, y0, x1, y1 = numbers
    if kind == "circle":
        radius = math.hypot(x1 - x0, y1 - y0)
        return Ellipse(x0, y0, radius, radius)
    if kind == "rectangle":
        return Polygon((x0, y0, x1, y0, x1, y1, x0, y1))
    left, top, right, bottom = (round(number) for number in numbers)
    mask = content.get("mask")
    if not isinstance(mask, str):
        raise UnusableFileError("a mask has no picture")
    return Picture(mask, left, top, (bottom - top + 1, right - left + 1))
