"""A COCO instances file: polygons and run lengths of some of its categories."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import Pair, find_images
from gpgc_dask.imaging.mask_sources.base import Item, Mask, MaskSource, file_stamp
from gpgc_dask.imaging.masks import Codes, MaskFormat, check_size, make_upright
from gpgc_dask.imaging.photos import Orientation

__all__ = ["CocoFile", "CocoMask", "filter_coco", "load_coco"]

NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "images": {
        "id": (int, str),
        "file_name": (str,),
        "height": (int, float),
        "width": (int, float),
    },
    "annotations": {"image_id": (int, str), "category_id": (int, str)},
    "categories": {"id": (int, str), "name": (str,)},
}
"""Keys that the entries of a COCO instances file must have, and their types."""

MAX_COORDINATE = 1e6
"""Coordinates in pixels beyond this make pycocotools fail or crash."""

ANNOTATIONS = PurePosixPath("annotations.json")


@dataclass(frozen=True)
class CocoMask:
    """The regions of one image.

    Attributes
    ----------
    height, width : int
        Size of the image in pixels, as the COCO file has it.
    regions : tuple of (int, object)
        Class code and segmentation, as COCO stores it, of each region, largest first.
    """

    height: int
    width: int
    regions: tuple[tuple[int, Any], ...]

    def to_json(self) -> str:
        return json.dumps([self.height, self.width, self.regions])

    def read(self, orientation: Orientation) -> Codes:
        """Draw the regions at the photo's own size; crowds count as what they are crowds of."""
        from pycocotools import mask as rle

        size = (self.height, self.width)
        check_size(size, orientation)
        codes = np.zeros(size, dtype=np.uint8)
        for code, segmentation in self.regions:
            try:
                run_lengths = _to_run_lengths(segmentation, *size)
                inside = None if run_lengths is None else rle.decode(run_lengths)
            except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
                raise UnusableFileError(
                    f"the COCO file has an unreadable segmentation: {error}"
                ) from None
            if inside is not None:
                codes[inside.astype(bool)] = code
        return make_upright(codes, orientation)


class CocoFile(MaskSource):
    """A folder of photos and a COCO instances file.

    One category is painted as 255, several as 1, 2, …; the background is 0.
    """

    options_used = frozenset(("categories", "with_empty"))

    @property
    def mask_format(self) -> MaskFormat:
        """Background and the categories."""
        categories = self.options.categories
        values = [255] if len(categories) == 1 else range(1, len(categories) + 1)
        return MaskFormat(classes=((0, "background"), *zip(values, categories, strict=True)))

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the photos that show one of the categories, with ``with_empty`` all photos."""
        masks = read_masks(self.masks, self.options.categories)
        present = set(find_images(self.images))
        items, problems = [], []
        for name, mask in masks.items():
            if not mask.regions and not self.options.with_empty:
                continue
            if name not in present:
                reason = f"image missing: {self.masks} names it but {self.images} lacks it"
                problems.append(Problem(name, reason))
                continue
            pair = Pair(name, str(Path(self.images) / name), self.masks)
            digest = hashlib.sha256(mask.to_json().encode()).hexdigest()[:16]
            items.append(Item(pair, f"{file_stamp(pair.image)} {digest}", mask))
        if not items and not problems:
            raise InputError(f"no image in {self.masks} shows {', '.join(self.options.categories)}")
        return items, problems

    def provenance(self) -> dict[str, Any]:
        """As of every source, and the categories."""
        return super().provenance() | {"categories": list(self.options.categories)}

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
    content = load_coco(path)
    codes = _category_codes(content, categories, path)
    regions: dict[int, list[Any]] = defaultdict(list)
    for annotation in content["annotations"]:
        if annotation["category_id"] in codes and annotation.get("segmentation"):
            regions[annotation["image_id"]].append(annotation)
    return {
        image["file_name"]: CocoMask(
            int(image["height"]), int(image["width"]), _sort_regions(regions[image["id"]], codes)
        )
        for image in content["images"]
    }


def _sort_regions(annotations: list[Any], codes: dict[int, int]) -> tuple[tuple[int, Any], ...]:
    """Large regions first, so that small things in front of them are drawn over them."""

    def size(annotation: Any) -> float:
        area = annotation.get("area")
        return float(area) if isinstance(area, (int, float)) else 0.0

    ordered = sorted(annotations, key=size, reverse=True)
    return tuple((codes[a["category_id"]], a["segmentation"]) for a in ordered)


def load_coco(path: str | PathLike[str]) -> dict[str, Any]:
    """Read and check a COCO instances file."""
    try:
        content = json.loads(Path(path).expanduser().read_bytes())
        complete = all(isinstance(content[name], list) for name in NEEDED)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a JSON file: {error}") from None
    except (KeyError, TypeError):
        complete = False
    if not complete:
        raise InputError(
            f"{path} is not a COCO instances file: it lacks images, annotations or categories"
        )
    for name, keys in NEEDED.items():
        for number, entry in enumerate(content[name]):
            for key, kinds in keys.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(key), kinds):
                    raise InputError(f"{path}: {name}[{number}] has no {key}, or none of its type")
    for key in ("file_name", "id"):
        counts = Counter(image[key] for image in content["images"])
        doubled = [value for value, count in counts.items() if count > 1]
        if doubled:
            raise InputError(f"{path} has several images of {key} {doubled[0]}: list each once")
    return dict(content)


def _category_codes(
    content: dict[str, Any], categories: Sequence[str], path: str | PathLike[str]
) -> dict[int, int]:
    """{category id: class code}."""
    ids: dict[str, list[Any]] = defaultdict(list)
    for category in content["categories"]:
        ids[category["name"]].append(category["id"])
    unknown = [name for name in categories if name not in ids]
    if unknown or not categories:
        known = f"it has {', '.join(sorted(ids))}"
        if unknown:
            raise InputError(f"{path} has no category {', '.join(unknown)}; {known}")
        raise InputError(f"name the categories of {path} to take (--category NAME); {known}")
    return {number: code for code, name in enumerate(categories, start=1) for number in ids[name]}


def _to_run_lengths(segmentation: Any, height: int, width: int) -> Any:
    """Compressed run lengths of polygons or run lengths; None if there is no area."""
    from pycocotools import mask as rle

    if isinstance(segmentation, list):
        # Four numbers would be taken for a box: two points enclose nothing.
        polygons = [polygon for polygon in segmentation if len(polygon) >= 6]
        if any(not abs(number) < MAX_COORDINATE for polygon in polygons for number in polygon):
            raise InputError(f"a coordinate is not within ±{MAX_COORDINATE:g}")
        return rle.merge(rle.frPyObjects(polygons, height, width)) if polygons else None
    if list(segmentation["size"]) != [height, width]:
        raise InputError(f"run lengths for {segmentation['size']}, image of {[height, width]}")
    if isinstance(segmentation["counts"], list):
        return rle.frPyObjects(segmentation, height, width)
    return segmentation
