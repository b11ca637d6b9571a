"""The XML file that CVAT exports as "CVAT for images 1.1"."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from xml.etree import ElementTree as Xml

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.mask_sources.annotated import (
    Annotations,
    AnnotationSource,
    Shape,
    ShapesPhoto,
    merge_groups,
)
from gpgc_dask.imaging.mask_sources.documents import load_xml, read_head, to_number
from gpgc_dask.imaging.mask_sources.regions import BoxedRuns, Ellipse, Polygon, Region

__all__ = ["CvatFile", "load_annotations"]

IGNORED = ("box", "polyline", "points", "cuboid", "skeleton")
"""Shapes that outline nothing."""

DRAWN = ("polygon", "mask", "ellipse")


class CvatFile(AnnotationSource):
    """Polygons, masks and ellipses of an annotations.xml in the order in which CVAT draws them."""

    title = "CVAT for images 1.1"

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """XML whose first element is <annotations>."""
        head = read_head(path)
        return path if head.lstrip().startswith("<") and "<annotations" in head else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read all <image> elements."""
        root = load_annotations(masks)
        photos, problems, used = list[ShapesPhoto](), list[Problem](), dict[str, None]()
        for number, element in enumerate(root.iter("image")):
            name = element.get("name", "")
            try:
                photo = _photo(element, name, masks)
            except GpgcError as error:
                problems.append(Problem(name or f"<image> number {number + 1}", str(error)))
                continue
            photos.append(photo)
            used.update((shape.label, None) for shape in photo.shapes)
        named = [label.findtext("name") or "" for label in root.iterfind("meta//labels/label")]
        known = list(dict.fromkeys([*(name for name in named if name), *used]))
        return Annotations(images, masks, photos, known, problems)


def load_annotations(path: str | Path) -> Xml.Element:
    """Root of an annotations.xml of images; an InputError if it is another file."""
    root = load_xml(path)
    if root.tag != "annotations" or root.find("track") is not None:
        raise InputError(
            f"{path} is not in the format CVAT for images 1.1: export the task in that format"
        )
    return root


def _photo(element: Xml.Element, name: str, path: str) -> ShapesPhoto:
    if not name:
        raise UnusableFileError(f"an <image> of {path} has no name")
    height, width = (int(_number(element, key)) for key in ("height", "width"))
    stem = PurePosixPath(name).stem
    order: list[tuple[float, str, Shape]] = []
    for number, shape in enumerate(element, start=1):
        if shape.tag in (*DRAWN, *IGNORED):
            label = shape.get("label", "")
            if not label:
                raise UnusableFileError(f"a <{shape.tag}> has no label")
            regions = () if shape.tag in IGNORED else (_region(shape),)
            made = Shape(label, regions, f"{stem}:{number}", shape.tag)
            order.append((_number(shape, "z_order", 0), shape.get("group_id") or "", made))
    order.sort(key=lambda one: one[0])
    shapes = merge_groups((group if group != "0" else "", shape) for _, group, shape in order)
    return ShapesPhoto(name, path, tuple(shapes), (height, width))


def _number(element: Xml.Element, key: str, default: float | None = None) -> float:
    text = element.get(key)
    if text is None and default is not None:
        return default
    return to_number(text, f"{key} of <{element.tag}>")


def _region(shape: Xml.Element) -> Region:
    """The outline of a polygon, a mask or an ellipse."""
    if shape.tag == "polygon":
        points = [text.split(",") for text in shape.get("points", "").split(";")]
        return Polygon.read(points)
    if shape.tag == "ellipse":
        x, y, half_width, half_height = (_number(shape, key) for key in ("cx", "cy", "rx", "ry"))
        return Ellipse(x, y, half_width, half_height, _number(shape, "rotation", 0))
    left, top, width, height = (
        int(_number(shape, key)) for key in ("left", "top", "width", "height")
    )
    return BoxedRuns(shape.get("rle", ""), (left, top, width, height))
