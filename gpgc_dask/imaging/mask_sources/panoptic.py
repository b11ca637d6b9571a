"""COCO panoptic: a JSON file, and a folder of PNGs whose colours are ids of segments."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.core.paths import relative_path
from gpgc_dask.imaging.mask_sources.annotated import Annotations, AnnotationSource
from gpgc_dask.imaging.mask_sources.base import file_stamp
from gpgc_dask.imaging.mask_sources.coco_content import check_entries, check_images
from gpgc_dask.imaging.mask_sources.documents import is_file, load_json, read_head
from gpgc_dask.imaging.mask_sources.pictures import (
    Ids,
    Segment,
    pack_colours,
    pick_codes,
    read_picture,
    segment_objects,
)
from gpgc_dask.imaging.masks import VOID, Codes
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.imaging.photos import Orientation

__all__ = ["PanopticFile"]

UNLABELLED = 0
"""Id of pixels that belong to no segment: their class is unknown."""


class PanopticFile(AnnotationSource):
    """A panoptic JSON file; its PNGs are in the folder of the same name next to it.

    Segments of other categories than the chosen ones are background. If all are chosen there is no
    background. Segments of things are objects, those of stuff are not.
    """

    title = "COCO panoptic"
    has_void = True

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """A JSON object in which the word segments_info occurs."""
        if not read_head(path).lstrip().startswith("{"):
            return None
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return path if text.find(b'"segments_info"') >= 0 else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read the JSON file."""
        content = load_json(masks)
        check_entries(content, masks, NEEDED, "a COCO panoptic file")
        check_images(content, masks)
        labels = {one["id"]: one["name"] for one in content["categories"]}
        things = {one["id"] for one in content["categories"] if one.get("isthing", 1)}
        photos = {image["id"]: image for image in content["images"]}
        folder = _find_folder(Path(masks), content["annotations"])
        annotated, problems, seen = list[PanopticPhoto](), list[Problem](), set[Any]()
        for annotation in content["annotations"]:
            number = annotation["image_id"]
            if number not in photos or number in seen:
                problem = "is annotated twice" if number in seen else "is not in its images"
                raise InputError(f"{masks}: the image of image_id {number} {problem}: correct it")
            seen.add(number)
            name = photos[number]["file_name"]
            try:
                segments = _segments(annotation, labels, things)
                picture = folder / relative_path(annotation["file_name"])
                if not is_file(picture):
                    raise UnusableFileError(f"mask missing: there is no {picture}")
            except InputError as error:
                problems.append(Problem(name, str(error)))
                continue
            annotated.append(PanopticPhoto(name, masks, str(picture), segments))
        known = [labels[number] for number in sorted(labels, key=lambda n: (isinstance(n, str), n))]
        return Annotations(
            images, masks, annotated, list(dict.fromkeys(known)), problems, background=False
        )


NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "images": {"id": (int, str), "file_name": (str,)},
    "annotations": {"image_id": (int, str), "file_name": (str,), "segments_info": (list,)},
    "categories": {"id": (int, str), "name": (str,)},
}
"""Keys that the entries of a COCO panoptic file must have, and their types."""


def _find_folder(path: Path, annotations: list[Any]) -> Path:
    """The folder of the PNGs: named as the file, or another one next to it."""
    first = annotations[0]["file_name"] if annotations else ""
    others = sorted(one for one in path.parent.iterdir() if one.is_dir())
    candidates = [path.with_suffix(""), path.parent, *others]
    for folder in candidates:
        if first and is_file(folder / relative_path(first)):
            return folder
    raise InputError(
        f"{path} names the mask {first or '-'}, which is not in {candidates[0]}: put the folder of "
        "PNGs next to the JSON file, under the same name"
    )


def _segments(
    annotation: Mapping[str, Any], labels: Mapping[Any, str], things: Collection[Any]
) -> tuple[tuple[int, str, bool, bool], ...]:
    """(id, category, whether it is a thing, whether it is a crowd) of each segment."""
    segments: dict[int, tuple[int, str, bool, bool]] = {}
    for one in annotation["segments_info"]:
        number = one.get("id") if isinstance(one, dict) else None
        category = one.get("category_id") if isinstance(one, dict) else None
        if type(number) is not int or not isinstance(category, (int, str)):
            raise UnusableFileError("a segment has no id or no category_id")
        if number in segments:
            raise UnusableFileError(f"several segments have the id {number}: give each its own")
        if number == UNLABELLED or category not in labels:
            problem = "the id 0" if number == UNLABELLED else f"the unknown category {category}"
            raise UnusableFileError(f"segment {number} has {problem}: correct it")
        crowd = bool(one.get("iscrowd"))
        segments[number] = (number, labels[category], category in things, crowd)
    return tuple(segments.values())


@dataclass(frozen=True)
class PanopticPhoto:
    """A photo whose segments are in a picture."""

    name: str
    path: str
    picture: str
    segments: tuple[tuple[int, str, bool, bool], ...]

    def labels(self) -> Collection[str]:
        return {label for _, label, _, _ in self.segments}

    def check(self, categories: Collection[str]) -> None:
        """Segments were checked when they were read; pictures are, by the workers."""

    def mask(self, codes: Mapping[str, int]) -> PanopticMask:
        stem = Path(self.picture).stem
        own = tuple(
            (number, codes.get(label, 0), thing and label in codes, crowd)
            for number, label, thing, crowd in self.segments
        )
        return PanopticMask(self.picture, file_stamp(self.picture), stem, own)


@dataclass(frozen=True)
class PanopticMask:
    """The mask of a :class:`PanopticPhoto`.

    Attributes
    ----------
    picture, stamp : str
        The PNG, and its size and time.
    stem : str
        What the ids of its objects begin with.
    segments : tuple of (int, int, bool, bool)
        Id, class code, whether it is an object and whether it is a crowd, of each segment.
    """

    picture: str
    stamp: str
    stem: str
    segments: tuple[tuple[int, int, bool, bool], ...]

    def _ids(self, orientation: Orientation) -> Ids:
        return read_picture(self.picture, _colours, orientation)

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes at the photo's own size; pixels of no segment are void."""
        codes = {number: code for number, code, _, _ in self.segments} | {UNLABELLED: VOID}
        meaning = "segments that its segments_info lacks:"
        return pick_codes(self._ids(orientation), codes, self.picture, meaning)

    def read_objects(self, orientation: Orientation, height: int, width: int) -> list[PhotoObject]:
        """Segments of things."""
        segments = [
            Segment(f"{self.stem}:{number}", number, code, crowd)
            for number, code, is_object, crowd in self.segments
            if is_object
        ]
        return segment_objects(self._ids(orientation), segments, height, width)


def _colours(image: Any) -> Ids:
    return pack_colours(np.asarray(image.convert("RGB")))
