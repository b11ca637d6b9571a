"""COCO: the annotations with their scores, and missing objects as proposed annotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.errors import Problem, UnusableFileError
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.mask_sources.coco_content import load_coco
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat
from gpgc_dask.imaging.photos import read_orientation, silence_pillow
from gpgc_dask.models.fitted_dataset import require_dataset_info
from gpgc_dask.models.objects import require_objects
from gpgc_dask.results.export.base import ExportFormat, ExportReport, Selection
from gpgc_dask.results.export.images import drawn_labels
from gpgc_dask.storage.location import write_whole

__all__ = ["Coco", "coco_annotations", "coco_categories"]

PROPOSALS_PER_IMAGE = 2
"""Missing regions that are proposed, per image of the dataset on average: the most likely ones."""

DIGITS = 4


class Coco(ExportFormat):
    """One file with all annotations of the chosen images.

    Annotations of the COCO file that the dataset was made from are as they were, with ``score``,
    the probability that each is right, if it is known. Missing objects follow as annotations with
    ``"proposed": true`` and the probability that they exist as ``score``. Of a dataset made from a
    folder of masks the annotations are the masks, one per class, without scores.
    """

    suffix = ".json"
    accepts_dataset = False

    def __init__(self, target: Path, selection: Selection, **options: Any) -> None:
        super().__init__(target, selection, **options)
        self.source = require_dataset_info(selection.model)["source"]
        self.objects = require_objects(selection.model)

    def write(self, progress: Listener | None = None) -> ExportReport:
        """Write the file."""
        chosen = self.selection.chosen["image"].tolist()
        meter = Meter(progress, "images", len(chosen))
        left_out: list[Problem] = []
        if self.source["format"] == "coco":
            content = self._scored_content(chosen)
        else:
            content, left_out = self._drawn_content()
        content["annotations"] += self._proposed(content)
        write_whole(self.target, json.dumps(content, ensure_ascii=False).encode())
        meter(len(chosen), len(left_out))
        total = len(self.selection.review)
        return ExportReport([str(self.target)], len(content["images"]), total, left_out)

    def _scored_content(self, chosen: list[str]) -> dict[str, Any]:
        """The source's content of the chosen images, with scores."""
        content = load_coco(self.source["masks"])
        given = self.objects[(self.objects["kind"] == "given") & (self.objects["annotation"] != "")]
        scores = dict(zip(given["annotation"], given["score"], strict=True))
        wanted = set(chosen)
        content["images"] = [one for one in content["images"] if one["file_name"] in wanted]
        ids = {image["id"] for image in content["images"]}
        content["annotations"] = [
            one | _score(scores.get(str(one.get("id")), float("nan")))
            for one in content["annotations"]
            if one["image_id"] in ids
        ]
        return content

    def _drawn_content(self) -> tuple[dict[str, Any], list[Problem]]:
        """Images, classes and masks of a dataset that was made from mask files.

        Without the masks, a tool in which the file is edited would return the proposals alone.
        """
        review, chosen = self.selection.review, self.selection.chosen
        fmt = MaskFormat.from_json(self.source["mask_format"])
        masks = DatasetMasks(self.source, review["image"].tolist(), review["mask_path"].tolist())
        corrected = self.selection.corrected_masks()
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        left_out: list[Problem] = []
        silence_pillow()
        for name, path, photo in zip(
            chosen["image"], chosen["image_path"], self.selection.photos.tolist(), strict=True
        ):
            try:
                if name in corrected:
                    codes = corrected[name]
                else:
                    codes = masks.codes(photo, read_orientation(path))
            except (UnusableFileError, OSError) as error:
                left_out.append(Problem(name, str(error)))
                continue
            number, (height, width) = len(images) + 1, codes.shape
            images.append({"id": number, "file_name": name, "height": height, "width": width})
            annotations += coco_annotations(codes, fmt, number, len(annotations) + 1)
        categories = coco_categories(fmt)
        return {"images": images, "annotations": annotations, "categories": categories}, left_out

    def _proposed(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        """Annotations of missing objects, numbered after those that exist."""
        missing = self.objects[self.objects["kind"] == "missing"]
        missing = missing.head(PROPOSALS_PER_IMAGE * len(self.selection.review))
        images = {image["file_name"]: image["id"] for image in content["images"]}
        categories = {one["name"]: one["id"] for one in reversed(content["categories"])}
        known = [one.get("id") for one in content["annotations"]]
        first = max((number for number in known if isinstance(number, int)), default=0) + 1
        rows = missing[missing["image"].isin(images) & missing["class"].isin(categories)]
        proposed: list[dict[str, Any]] = []
        for row in rows.to_dict("records"):
            polygons = [each for each in json.loads(row["polygon"]) if len(each) >= 6]
            if polygons:
                proposed.append(
                    {
                        "id": first + len(proposed),
                        "image_id": images[row["image"]],
                        "category_id": categories[row["class"]],
                        "segmentation": polygons,
                        "bbox": [row["x"], row["y"], row["width"], row["height"]],
                        "area": round(sum(map(_polygon_area, polygons)), 1),
                        "iscrowd": 0,
                        "proposed": True,
                        **_score(1.0 - row["score"]),
                    }
                )
        return proposed


def coco_categories(fmt: MaskFormat, *, void: bool = False) -> list[dict[str, Any]]:
    """Categories of the classes of a dataset but the background, and of void pixels."""
    labels = drawn_labels(fmt, void=void)
    return [{"id": _category_id(code, fmt), "name": label} for code, label in labels.items()]


def coco_annotations(
    codes: Codes, fmt: MaskFormat, image_id: int, first_id: int
) -> list[dict[str, Any]]:
    """Annotations of a mask, one per class, as run lengths.

    Parameters
    ----------
    codes : (height, width) array of uint8
        Class codes.
    fmt : MaskFormat
        The classes.
    image_id, first_id : int
        Id of the image, and of the first annotation.

    Returns
    -------
    list of dict
        Annotations in the categories of :func:`coco_categories`.
    """
    from pycocotools import mask as rle

    annotations: list[dict[str, Any]] = []
    for code in drawn_labels(fmt, void=True):
        inside = codes == code
        if not inside.any():
            continue
        encoded = rle.encode(np.asfortranarray(inside.astype(np.uint8)))
        counts = encoded["counts"].decode()
        annotations.append(
            {
                "id": first_id + len(annotations),
                "image_id": image_id,
                "category_id": _category_id(code, fmt),
                "segmentation": {"size": list(codes.shape), "counts": counts},
                "bbox": rle.toBbox(encoded).tolist(),
                "area": int(inside.sum()),
                "iscrowd": 0,
            }
        )
    return annotations


def _category_id(code: int, fmt: MaskFormat) -> int:
    """Ids start with 1."""
    n = len(fmt.names)
    return n + 1 if code == VOID else code or n


def _score(value: float) -> dict[str, float]:
    """The entry of a score; empty if it is unknown."""
    return {} if pd.isna(value) else {"score": round(float(value), DIGITS)}


def _polygon_area(flat: list[float]) -> float:
    x, y = flat[::2], flat[1::2]
    following = zip(x[1:] + x[:1], y[1:] + y[:1], strict=True)
    pairs = zip(x, y, following, strict=True)
    return abs(sum(a * d - c * b for a, b, (c, d) in pairs)) / 2
