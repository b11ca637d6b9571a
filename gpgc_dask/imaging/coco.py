"""Masks out of a COCO file: polygons and run lengths of the categories somebody asks for."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import Found, Pair, find_images
from gpgc_dask.imaging.masks import Codes, MaskFormat, check_size, upright
from gpgc_dask.imaging.photos import Orientation

__all__ = ["CocoMask", "coco_format", "draw_mask", "load_coco", "read_coco"]

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
"""What the entries of a COCO instances file must have, for our purpose."""

FARTHEST = 1e6
"""Coordinates in pixels beyond this make pycocotools fail, or worse."""


@dataclass(frozen=True)
class CocoMask:
    """The regions of one image, largest first: (class code, segmentation as COCO stores it)."""

    height: int
    width: int
    regions: tuple[tuple[int, Any], ...]

    def to_json(self) -> str:
        return json.dumps([self.height, self.width, self.regions])


def coco_format(categories: Sequence[str]) -> MaskFormat:
    """Background and the categories; one category is painted as 255, several as 1, 2, ..."""
    values = [255] if len(categories) == 1 else range(1, len(categories) + 1)
    return MaskFormat(classes=((0, "background"), *zip(values, categories, strict=True)))


def read_coco(
    images: str | PathLike[str],
    path: str | PathLike[str],
    categories: Sequence[str],
    *,
    with_empty: bool = False,
) -> tuple[Found, dict[str, CocoMask]]:
    """Photos of a COCO file that show one of ``categories``, and their masks by name.

    with_empty : also the photos that show none, with empty masks
    """
    content = load_coco(path)
    numbers = _category_numbers(content, categories, path)
    regions: dict[int, list[Any]] = defaultdict(list)
    for annotation in content["annotations"]:
        if annotation["category_id"] in numbers and annotation.get("segmentation"):
            regions[annotation["image_id"]].append(annotation)
    there = set(find_images(images))
    pairs, problems, masks = [], [], {}
    for image in content["images"]:
        name, found = image["file_name"], regions.get(image["id"], [])
        if not found and not with_empty:
            continue
        if name not in there:
            problems.append(Problem(name, f"image missing: {path} names it but {images} lacks it"))
            continue
        pairs.append(Pair(name, str(Path(images).expanduser().absolute() / name), str(path)))
        masks[name] = CocoMask(int(image["height"]), int(image["width"]), _ordered(found, numbers))
    if not pairs and not problems:
        raise InputError(f"no image in {path} shows {', '.join(categories)}")
    return Found(sorted(pairs, key=lambda pair: pair.name), problems), masks


def _ordered(annotations: list[Any], numbers: dict[int, int]) -> tuple[tuple[int, Any], ...]:
    """Large regions first, so that small things in front of them are drawn over them."""

    def size(annotation: Any) -> float:
        area = annotation.get("area")
        return float(area) if isinstance(area, (int, float)) else 0.0

    ordered = sorted(annotations, key=size, reverse=True)
    return tuple((numbers[a["category_id"]], a["segmentation"]) for a in ordered)


def load_coco(path: str | PathLike[str]) -> dict[str, Any]:
    """The content of a COCO instances file, with all that we rely on in its place."""
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


def _category_numbers(
    content: dict[str, Any], categories: Sequence[str], path: str | PathLike[str]
) -> dict[int, int]:
    """{category id: class code}."""
    ids: dict[str, list[Any]] = defaultdict(list)
    for category in content["categories"]:
        ids[category["name"]].append(category["id"])
    unknown = [name for name in categories if name not in ids]
    if unknown or not categories:
        known = f"it knows {', '.join(sorted(ids))}"
        if unknown:
            raise InputError(f"{path} has no category {', '.join(unknown)}; {known}")
        raise InputError(f"say which categories of {path} to take (--category NAME); {known}")
    return {number: code for code, name in enumerate(categories, start=1) for number in ids[name]}


def draw_mask(mask: CocoMask, orientation: Orientation) -> Codes:
    """Class codes a pixel, at the photo's own size. Crowds count as what they are crowds of."""
    from pycocotools import mask as rle

    size = (mask.height, mask.width)
    check_size(size, orientation)
    codes = np.zeros(size, dtype=np.uint8)
    for code, segmentation in mask.regions:
        try:
            encoded = _encoded(segmentation, *size)
            inside = None if encoded is None else rle.decode(encoded)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise UnusableFileError(
                f"the COCO file has an unreadable segmentation: {error}"
            ) from None
        if inside is not None:
            codes[inside.astype(bool)] = code
    return upright(codes, orientation)


def _encoded(segmentation: Any, height: int, width: int) -> Any:
    """Polygons and run lengths as compressed run lengths; None where there is no area."""
    from pycocotools import mask as rle

    if isinstance(segmentation, list):
        # Four numbers would be taken for a box: two points enclose nothing.
        polygons = [polygon for polygon in segmentation if len(polygon) >= 6]
        if any(not abs(number) < FARTHEST for polygon in polygons for number in polygon):
            raise InputError(f"a coordinate is not within ±{FARTHEST:g}")
        return rle.merge(rle.frPyObjects(polygons, height, width)) if polygons else None
    if list(segmentation["size"]) != [height, width]:
        raise InputError(f"run lengths for {segmentation['size']}, image of {[height, width]}")
    if isinstance(segmentation["counts"], list):
        return rle.frPyObjects(segmentation, height, width)
    return segmentation
