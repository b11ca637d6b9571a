"""The content of COCO instances files, and what can be wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike
from types import NoneType
from typing import Any

from gpgc_dask.core.errors import InputError
from gpgc_dask.data.run_lengths import check_counts
from gpgc_dask.imaging.mask_sources.documents import load_json
from gpgc_dask.imaging.runs import MAX_COORDINATE

__all__ = [
    "check_annotations",
    "check_entries",
    "check_images",
    "load_coco",
    "segmentation_problem",
]

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


def load_coco(path: str | PathLike[str]) -> dict[str, Any]:
    """Read and check a COCO instances file."""
    content = load_json(path)
    check_entries(content, path, NEEDED, "a COCO instances file")
    check_images(content, path)
    for number, image in enumerate(content["images"]):
        for side in ("height", "width"):
            if not 0 < image[side] <= MAX_COORDINATE:
                raise InputError(f"{path}: images[{number}] has the {side} {image[side]}")
    return dict(content)


def check_entries(
    content: Any,
    path: str | PathLike[str],
    needed: Mapping[str, Mapping[str, tuple[type, ...]]],
    title: str,
) -> None:
    """Raise an InputError if a list or a key of its entries lacks, or is of another type."""
    if not isinstance(content, dict) or not all(
        isinstance(content.get(name), list) for name in needed
    ):
        raise InputError(f"{path} is not {title}: it lacks {' or '.join(needed)}")
    for name, keys in needed.items():
        for number, entry in enumerate(content[name]):
            for key, kinds in keys.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(key), kinds):
                    raise InputError(f"{path}: {name}[{number}] has no {key}, or none of its type")
            for key in ("id", "category_id"):
                if not isinstance(entry.get(key), (int, str, NoneType)):
                    raise InputError(f"{path}: {name}[{number}] has an {key} that is no number")
    ids = Counter(one["id"] for one in content["categories"])
    doubled = [value for value, count in ids.items() if count > 1]
    if doubled:
        raise InputError(f"{path} has several categories of id {doubled[0]}: list each once")


def check_images(content: dict[str, Any], path: str | PathLike[str]) -> None:
    """Raise an InputError if images have no names and ids of their own."""
    for key in ("file_name", "id"):
        counts = Counter(image[key] for image in content["images"])
        doubled = [value for value, count in counts.items() if count > 1]
        if doubled:
            raise InputError(f"{path} has several images of {key} {doubled[0]}: list each once")


def check_annotations(content: dict[str, Any], path: str | PathLike[str]) -> None:
    """Raise an InputError if ids are not unique, or name no image or category of the file."""
    annotations = content["annotations"]
    counts = Counter(one["id"] for one in annotations if one.get("id") is not None)
    doubled = [value for value, count in counts.items() if count > 1]
    if doubled:
        raise InputError(
            f"{path} has several annotations of id {_listed(doubled)}: give each an id of its own"
        )
    for key, entries in (("image_id", "images"), ("category_id", "categories")):
        known = {entry["id"] for entry in content[entries]}
        unknown = {one[key]: one.get("id") for one in annotations if one[key] not in known}
        if unknown:
            first = next(iter(unknown))
            raise InputError(
                f"{path} has annotations of {key} {_listed(unknown)}, which is not in its "
                f"{entries} (annotation {unknown[first]}): add it there, or remove them"
            )


def segmentation_problem(segmentation: Any, height: int, width: int) -> str | None:
    """What is wrong with the geometry of an annotation; None if nothing is.

    Parameters
    ----------
    segmentation : object
        As COCO stores it: polygons or run lengths.
    height, width : int
        Size of its image.
    """
    if isinstance(segmentation, list):
        sizes = [len(one) if isinstance(one, list) else 0 for one in segmentation]
        short = [size for size in sizes if size < 6 or size % 2]
        if short:
            return f"a polygon of {short[0]} numbers, which needs at least 3 points (x, y)"
        return _outside(segmentation, height, width)
    if not isinstance(segmentation, dict) or "counts" not in segmentation:
        return "neither polygons nor run lengths"
    size = segmentation.get("size")
    if size != [height, width]:
        return f"run lengths for a size of {size}, where the image has {[height, width]}"
    try:
        check_counts(segmentation["counts"], height, width)
    except InputError as error:
        return f"wrong {error}"
    return None


def _outside(polygons: list[list[Any]], height: int, width: int) -> str | None:
    """That a polygon is completely outside of its image, or has coordinates that are no numbers."""
    for polygon in polygons:
        try:
            for numbers, side in ((polygon[::2], width), (polygon[1::2], height)):
                if max(numbers) < 0 or min(numbers) > side:
                    return (
                        f"a polygon completely outside of the image of {width}×{height} pixels, at "
                        f"x {polygon[0]:g}, y {polygon[1]:g}"
                    )
        except (TypeError, ValueError, OverflowError):
            return "a polygon with coordinates that are no numbers"
    return None


def _listed(values: Iterable[Any], limit: int = 5) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:limit]) + (", …" if len(texts) > limit else "")
