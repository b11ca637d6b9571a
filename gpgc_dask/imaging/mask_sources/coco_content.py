"""The content of COCO instances files, and what can be wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from gpgc_dask.core.errors import InputError

__all__ = ["MAX_COORDINATE", "check_annotations", "load_coco", "segmentation_problem"]

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
        return None
    if not isinstance(segmentation, dict) or "counts" not in segmentation:
        return "neither polygons nor run lengths"
    size = segmentation.get("size")
    if size != [height, width]:
        return f"run lengths for a size of {size}, where the image has {[height, width]}"
    return None


def _listed(values: Iterable[Any], limit: int = 5) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:limit]) + (", …" if len(texts) > limit else "")
