"""Annotations and masks with known errors, for ``objects.py``."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from pycocotools import mask as run_lengths
from ranking_errors import CATEGORIES, SHIFT, move
from ranking_sets import decode_region, photos_in, read_object
from scipy import ndimage

MIN_IMAGES = 20
"""Categories with fewer images are left out: there is too little to learn them from."""

CORRUPTED = 0.2
"""Share of the annotations, or of the masks, with an error."""

DELETED_AREA = 0.01
"""Annotations of at least this share of the photo are deleted."""

PART = (0.1, 0.4)
"""Share of the object that is cut off or added."""


@dataclass(frozen=True)
class CocoSet:
    """A COCO file with known errors.

    Attributes
    ----------
    images, file : Path
        Folder of photos, and the COCO file.
    categories : list of str
    truth : pandas.DataFrame
        One row per annotation of the original file: ``id``, ``image``, ``class``, ``area`` (share
        of the photo), ``error`` ("" for none) and ``region`` (run lengths).
    """

    images: Path
    file: Path
    categories: list[str]
    truth: pd.DataFrame


def common_categories(content: dict[str, Any], min_images: int) -> list[dict[str, Any]]:
    """Categories with annotations in at least so many images, in the order of their ids."""
    counts = count_images(content)
    chosen = [one for one in content["categories"] if counts[one["id"]] >= min_images]
    return sorted(chosen, key=lambda one: one["id"])


def most_common_categories(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The four categories of the most images, as in ``ranking.py``, in the order of their ids."""
    counts = count_images(content)
    order = sorted(content["categories"], key=lambda one: (-counts[one["id"]], one["id"]))
    return sorted(order[:CATEGORIES], key=lambda one: one["id"])


def count_images(content: dict[str, Any]) -> Counter[int]:
    """{category: number of images with annotations of it}."""
    shown = {(one["category_id"], one["image_id"]) for one in content["annotations"]}
    return Counter(category for category, _ in shown)


def keep_shown(content: dict[str, Any], folder: Path, place: Path, names: set[int]) -> Path:
    """Leave out images without annotations of these categories, and copy the photos of others."""
    shown = {one["image_id"] for one in content["annotations"] if one["category_id"] in names}
    content["images"] = [one for one in content["images"] if one["id"] in shown]
    target = place / "images"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for image in content["images"]:
        shutil.copy(folder / image["file_name"], target)
    return target


def shift_region(inside: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The region, moved by 10 % of the side; never out of the photo."""
    for _ in range(100):
        angle = rng.uniform(0, 2 * np.pi)
        down, across = (SHIFT * np.array(inside.shape) * (np.sin(angle), np.cos(angle))).round()
        moved = move(inside.astype(np.uint8), int(down), int(across)).astype(bool)
        if moved.sum() >= 0.5 * inside.sum():
            return moved
    return inside


def make_coco(
    folder: Path, place: Path, seed: int, errors: str, min_images: int = MIN_IMAGES
) -> CocoSet:
    """Write a COCO file with errors in a fifth of the annotations.

    Parameters
    ----------
    folder : Path
        Has ``images`` and ``instances.json``.
    place : Path
        Folder for the new file.
    seed : int
    errors : str
        "corrupted": shifted, or of a wrong category; "common": the same in the four most common
        categories and their photos only; "deleted": removed, if at least 1 % large.
    min_images : int
        Categories of fewer images are left out.
    """
    content = json.loads((folder / "instances.json").read_text())
    rng = np.random.default_rng([seed, len(errors)])
    photos = folder / "images"
    if errors == "common":
        categories = most_common_categories(content)
        photos = keep_shown(content, photos, place, {one["id"] for one in categories})
    else:
        categories = common_categories(content, min_images)
    names = {one["id"]: one["name"] for one in categories}
    images = {image["id"]: image for image in content["images"]}
    known, written = [], []
    for one in content["annotations"]:
        if one["category_id"] not in names:
            continue
        image = images[one["image_id"]]
        inside = decode_region(one["segmentation"], (image["height"], image["width"]))
        row = {
            "id": str(one["id"]),
            "image": image["file_name"],
            "class": names[one["category_id"]],
            "area": float(inside.mean()),
            "error": "",
            "region": encode(inside),
        }
        is_candidate = errors != "deleted" or inside.mean() >= DELETED_AREA
        if not one.get("iscrowd") and is_candidate and rng.random() < CORRUPTED:
            if errors == "deleted":
                row["error"] = "deleted"
            elif rng.random() < 0.5:
                row["error"] = "shifted"
                one = one | {"segmentation": encode(shift_region(inside, rng))}
            else:
                row["error"] = "wrong category"
                others = [number for number in names if number != one["category_id"]]
                one = one | {"category_id": int(rng.choice(others))}
        known.append(row)
        if row["error"] != "deleted":
            written.append(one)
    place.mkdir(parents=True, exist_ok=True)
    target = place / "instances.json"
    target.write_text(json.dumps(content | {"categories": categories, "annotations": written}))
    return CocoSet(photos, target, list(names.values()), pd.DataFrame(known))


def encode(inside: np.ndarray) -> dict[str, Any]:
    """Run lengths of a region as JSON has them."""
    found = run_lengths.encode(np.asfortranarray(inside.astype(np.uint8)))
    return {"size": found["size"], "counts": found["counts"].decode()}


def change_part(mask: np.ndarray, rng: np.random.Generator, *, add: bool) -> np.ndarray:
    """Cut a part of 10 % to 40 % off an object, at one side, or add one next to it.

    The part is what lies beyond a straight line, or a blob that touches the object's outline.
    """
    wanted = rng.uniform(*PART) * mask.sum()
    rows, columns = np.indices(mask.shape)
    if not add:
        angle = rng.uniform(0, 2 * np.pi)
        order = rows * np.sin(angle) + columns * np.cos(angle)
        values = np.sort(order[mask > 0])
        return np.where((mask > 0) & (order > values[-int(wanted) - 1]), 0, mask)
    border = np.argwhere(ndimage.binary_dilation(mask > 0) & (mask == 0))
    y, x = border[rng.integers(len(border))]
    distance = (rows - y) ** 2 + (columns - x) ** 2
    values = np.sort(distance[mask == 0])
    limit = values[min(int(wanted), values.size - 1)]
    return np.where((mask == 0) & (distance <= limit), 1, mask).astype(mask.dtype)


def make_parts(images: Path, masks: Path, place: Path, seed: int) -> pd.DataFrame:
    """Write masks of one object, a fifth of which lack a part or have one too many.

    Returns
    -------
    pandas.DataFrame
        ``image`` and ``error`` of each mask, and ``mask``, the path of the true one.
    """
    rng = np.random.default_rng([seed, 7])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    known = []
    for photo in photos_in(images):
        truth = read_object(masks / f"{photo.stem}.png")
        given, error = truth, ""
        if rng.random() < CORRUPTED and truth.any():
            error = "added" if rng.random() < 0.5 else "cut off"
            given = change_part(truth, rng, add=error == "added")
        Image.fromarray((255 * given).astype(np.uint8)).save(place / f"{photo.stem}.png")
        path = masks / f"{photo.stem}.png"
        known.append({"image": photo.name, "error": error, "mask": str(path)})
    return pd.DataFrame(known)
