"""A COCO instances file: polygons and run lengths of some of its categories."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Mask as Pixels
from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.data.run_lengths import check_counts, fill_runs
from gpgc_dask.imaging.files import Pair, find_images
from gpgc_dask.imaging.mask_sources.base import Item, Mask, MaskSource, file_stamp
from gpgc_dask.imaging.mask_sources.categories import choose_categories
from gpgc_dask.imaging.mask_sources.coco_content import (
    check_annotations,
    load_coco,
    segmentation_problem,
)
from gpgc_dask.imaging.mask_sources.documents import read_head
from gpgc_dask.imaging.masks import Codes, MaskFormat, check_size, make_upright
from gpgc_dask.imaging.objects import PhotoObject, make_object
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.imaging.runs import draw_polygons

__all__ = [
    "CocoFile",
    "CocoMask",
    "annotation_size",
    "decode_segmentation",
    "filter_coco",
    "load_coco",
]

ANNOTATIONS = PurePosixPath("annotations.json")

MAX_AREA = 1e12
"""Areas in pixels beyond this are no areas."""


@dataclass(frozen=True)
class CocoMask:
    """The regions of one image.

    Attributes
    ----------
    height, width : int
        Size of the image in pixels, as the COCO file has it.
    regions : tuple of (int, object)
        Class code and segmentation, as COCO stores it, of each region, largest first.
    ids : tuple of str
        Id of each region's annotation; "" if it has none. Empty if the regions are no annotations.
    crowds : tuple of bool
        Whether each region is a crowd.
    """

    height: int
    width: int
    regions: tuple[tuple[int, Any], ...]
    ids: tuple[str, ...] = ()
    crowds: tuple[bool, ...] = ()

    def to_json(self) -> str:
        return json.dumps([self.height, self.width, self.regions, self.ids, self.crowds])

    def problem(self) -> str | None:
        """What is wrong with the geometry of a region; None if nothing is."""
        for number, (_, segmentation) in enumerate(self.regions):
            problem = segmentation_problem(segmentation, self.height, self.width)
            if problem:
                name = f"annotation {self.ids[number]}" if any(self.ids) else "an annotation"
                return f"{name} has {problem}"
        return None

    def read(self, orientation: Orientation) -> Codes:
        """Draw the regions at the photo's own size; crowds count as what they are crowds of."""
        size = (self.height, self.width)
        check_size(size, orientation)
        codes = np.zeros(size, dtype=np.uint8)
        for code, segmentation in self.regions:
            inside = decode_segmentation(segmentation, *size)
            if inside is not None:
                codes[inside] = code
        return make_upright(codes, orientation)

    def read_objects(self, orientation: Orientation, height: int, width: int) -> list[PhotoObject]:
        """Draw each annotation on its own, with what others hide, in the order of the file."""
        objects = []
        for annotation, crowd, (code, segmentation) in zip(
            self.ids, self.crowds, self.regions, strict=True
        ):
            inside = decode_segmentation(segmentation, self.height, self.width)
            if inside is not None:
                upright = np.ascontiguousarray(make_upright(inside, orientation))
                size = (height, width)
                objects.append(
                    make_object(annotation, code, crowd=crowd, inside=upright, size=size)
                )
        return objects


class CocoFile(MaskSource):
    """A folder of photos and a COCO instances file.

    One category is painted as 255, several as 1, 2, …; the background is 0.
    """

    title = "COCO instances"
    options_used = frozenset(("categories", "with_empty"))
    categories: Sequence[str] = ()

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """A JSON object; which one is checked when it is read."""
        return path if read_head(path).lstrip().startswith("{") else None

    @property
    def mask_format(self) -> MaskFormat:
        """Background and the categories."""
        categories = self.categories
        values = [255] if len(categories) == 1 else range(1, len(categories) + 1)
        return MaskFormat(classes=((0, "background"), *zip(values, categories, strict=True)))

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the photos, with ``with_empty=False`` those that show one of the categories."""
        content = load_coco(self.masks)
        check_annotations(content, self.masks)
        source = (self.images, self.masks, "coco")
        known, used = _known_categories(content)
        self.categories = choose_categories(self.options.categories, known, used, source)
        masks = _masks(content, self.categories, self.masks)
        present = set(find_images(self.images))
        items, problems = [], []
        for name, mask in masks.items():
            if not mask.regions and not self.options.with_empty:
                continue
            reason = mask.problem()
            if name not in present:
                reason = f"image missing: {self.masks} names it but {self.images} lacks it"
            if reason:
                problems.append(Problem(name, reason))
                continue
            pair = Pair(name, str(Path(self.images) / name), self.masks)
            digest = hashlib.sha256(mask.to_json().encode()).hexdigest()[:16]
            items.append(Item(pair, f"{file_stamp(pair.image)} {digest}", mask))
        if not items and not problems:
            raise InputError(f"no image in {self.masks} shows {', '.join(self.categories)}")
        return items, problems

    def provenance(self) -> dict[str, Any]:
        """As of every source, and the categories."""
        return super().provenance() | {"categories": list(self.categories)}

    @classmethod
    def restore(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> list[Mask | None]:
        """Read the COCO file again."""
        masks = read_masks(provenance["masks"], provenance["categories"])
        return [masks.get(name) for name in names]

    @classmethod
    def select(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> dict[PurePosixPath, Path | bytes]:
        """The COCO file with the selected photos alone."""
        return {ANNOTATIONS: filter_coco(provenance["masks"], names)}


def filter_coco(path: str | PathLike[str], names: Iterable[str]) -> bytes:
    """Content of a COCO file with the photos of these names and their annotations alone."""
    content = load_coco(path)
    wanted = set(names)
    content["images"] = [image for image in content["images"] if image["file_name"] in wanted]
    ids = {image["id"] for image in content["images"]}
    content["annotations"] = [one for one in content["annotations"] if one["image_id"] in ids]
    return json.dumps(content, ensure_ascii=False).encode()


def read_masks(path: str | PathLike[str], categories: Sequence[str]) -> dict[str, CocoMask]:
    """Masks of all photos that a COCO file names, by the photo's name."""
    return _masks(load_coco(path), categories, path)


def _masks(
    content: dict[str, Any], categories: Sequence[str], path: str | PathLike[str]
) -> dict[str, CocoMask]:
    codes = _category_codes(content, categories, path)
    annotations: dict[int, list[Any]] = defaultdict(list)
    for annotation in content["annotations"]:
        if annotation["category_id"] in codes and annotation.get("segmentation"):
            annotations[annotation["image_id"]].append(annotation)
    masks = {}
    for image in content["images"]:
        # Large regions first, so that small things in front of them are drawn over them.
        own = sorted(annotations[image["id"]], key=annotation_size, reverse=True)
        masks[image["file_name"]] = CocoMask(
            int(image["height"]),
            int(image["width"]),
            tuple((codes[one["category_id"]], one["segmentation"]) for one in own),
            tuple("" if one.get("id") is None else str(one["id"]) for one in own),
            tuple(bool(one.get("iscrowd")) for one in own),
        )
    return masks


def annotation_size(annotation: Any) -> float:
    """Area of an annotation; 0 if it has none."""
    area = annotation.get("area")
    # Numbers of other kinds, such as NaN, have no place in an order.
    return float(area) if isinstance(area, (int, float)) and 0 <= area < MAX_AREA else 0.0


def _known_categories(content: dict[str, Any]) -> tuple[list[str], set[str]]:
    """Names of all categories, in the order of their ids, and of those that have annotations."""
    names = {category["id"]: category["name"] for category in content["categories"]}
    used = {one["category_id"] for one in content["annotations"] if one.get("segmentation")}
    ordered = sorted(names, key=lambda number: (isinstance(number, str), number))
    return list(dict.fromkeys(names[n] for n in ordered)), {names[n] for n in used}


def _category_codes(
    content: dict[str, Any], categories: Sequence[str], path: str | PathLike[str]
) -> dict[int, int]:
    """{category id: class code}."""
    ids: dict[str, list[Any]] = defaultdict(list)
    for category in content["categories"]:
        ids[category["name"]].append(category["id"])
    unknown = [name for name in categories if name not in ids]
    if unknown:
        raise InputError(f"{path} has no category {', '.join(unknown)}; it has {', '.join(ids)}")
    return {number: code for code, name in enumerate(categories, start=1) for number in ids[name]}


def decode_segmentation(segmentation: Any, height: int, width: int) -> Pixels | None:
    """Pixels (height, width) of a region; None if it has no area."""
    try:
        if isinstance(segmentation, list):
            return _draw(segmentation, height, width)
        if list(segmentation["size"]) != [height, width]:
            raise InputError(f"run lengths for {segmentation['size']}, image of {[height, width]}")
        # pycocotools would return uninitialised memory for lengths that end too early.
        return fill_runs(check_counts(segmentation["counts"], height, width), height, width)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise UnusableFileError(f"the COCO file has an unreadable segmentation: {error}") from None


def _draw(polygons: list[Any], height: int, width: int) -> Pixels | None:
    """Pixels of polygons; two points enclose nothing."""
    drawn = [polygon for polygon in polygons if len(polygon) >= 6]
    return draw_polygons(drawn, height, width) if drawn else None
