"""Annotations of CVAT in the format "CVAT for images 1.1"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as Xml

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.mask_sources.cvat import load_annotations
from gpgc_dask.imaging.mask_sources.documents import read_head
from gpgc_dask.imaging.runs import draw_polygons, fill_boxed_runs
from gpgc_dask.results.export.cvat import REVIEW
from gpgc_dask.results.export.images import VERDICTS
from gpgc_dask.results.verdicts.base import (
    DrawnMask,
    Entry,
    ImportFormat,
    count_text,
)

__all__ = ["CvatXml"]

DRAWN = ("mask", "polygon")
IGNORED = ("box", "polyline", "points", "ellipse", "cuboid", "skeleton")


class CvatXml(ImportFormat):
    """Masks and polygons in the order in which CVAT draws them, and tags confirmed or rejected.

    The file does not show which images a person has finished: unchanged masks are confirmed by the
    tag. Images without a shape and without a tag of the export are not mentioned.
    """

    title = "CVAT for images 1.1"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """XML whose first element is <annotations>."""
        head = read_head(source)
        return head.lstrip().startswith("<") and "<annotations" in head

    def entries(self) -> list[Entry]:
        """One entry per image that has a shape or a tag."""
        root = load_annotations(self.source)
        at = (root.findtext("meta/dumped") or "").strip()
        entries, ignored = [], Counter[str]()
        for element in root.iter("image"):
            ignored.update(shape.tag for shape in element if shape.tag in IGNORED)
            if not any(_counts(child) for child in element):
                continue
            name = self.find_image(element.get("name", ""))
            if name is not None:
                try:
                    entries.append(self._entry(name, element, at))
                except GpgcError as error:
                    self.problems.append(Problem(name, str(error)))
        if ignored:
            kinds = ", ".join(count_text(count, tag) for tag, count in sorted(ignored.items()))
            self.notes.append(f"shapes that are no masks or polygons are ignored: {kinds}")
        return entries

    def _entry(self, name: str, element: Xml.Element, at: str) -> Entry:
        size = tuple(_number(element, key) for key in ("height", "width"))
        shapes = [shape for shape in element if shape.tag in DRAWN]
        shapes.sort(key=lambda shape: _number(shape, "z_order", 0))
        regions = tuple(
            (self.target.code(shape.get("label", "")), _drawing(shape, *size)) for shape in shapes
        )
        tags = {tag.get("label", "") for tag in element.iter("tag")}
        chosen = sorted(tags & set(VERDICTS))
        if len(chosen) > 1:
            raise InputError(f"it has both tags, {' and '.join(chosen)}: remove one")
        rejected = chosen == ["rejected"]
        return Entry(
            name,
            None if rejected else DrawnMask((size[0], size[1]), regions, self.target.empty),
            "rejected" if rejected else None,
            finished=bool(chosen),
            at=at,
            place=f"image {element.get('id', '')}",
        )


def _counts(child: Xml.Element) -> bool:
    """Whether it is a shape that is drawn, or a tag that an export has put on each image."""
    return child.tag in DRAWN or (child.tag == "tag" and child.get("label") in (REVIEW, *VERDICTS))


def _number(element: Xml.Element, key: str, default: int | None = None) -> int:
    text = element.get(key)
    try:
        if text is None and default is not None:
            return default
        return int(float(text or ""))
    except (ValueError, OverflowError):
        raise UnusableFileError(f"<{element.tag}> has no number {key}") from None


def _drawing(shape: Xml.Element, height: int, width: int) -> Callable[[], Mask]:
    """A function that returns the pixels of a mask or a polygon."""
    try:
        if shape.tag == "polygon":
            points = shape.get("points", "").replace(";", ",").split(",")
            return partial(draw_polygons, [[float(number) for number in points]], height, width)
        lengths = [int(number) for number in shape.get("rle", "").split(",")]
    except ValueError:
        raise UnusableFileError(f"a {shape.tag} has coordinates that are no numbers") from None
    left, top, own_width, own_height = (
        _number(shape, key) for key in ("left", "top", "width", "height")
    )
    return partial(fill_boxed_runs, lengths, (left, top, own_width, own_height), height, width)
