"""COCO files for the photos that tests draw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools import mask as rle


def write_coco(images: Path, masks: Path, path: Path, category: str = "horse") -> None:
    """Write a COCO file with one region per photo, that of its mask; empty masks have none."""
    content: dict[str, list] = {"images": [], "annotations": []}
    content["categories"] = [{"id": 7, "name": category}, {"id": 8, "name": "cat"}]
    for number, photo in enumerate(sorted(images.glob("*.jpg"))):
        inside = np.asarray(Image.open(masks / f"{photo.stem}.png")) > 0
        height, width = inside.shape
        content["images"].append(
            {"id": number, "file_name": photo.name, "height": height, "width": width}
        )
        encoded = rle.encode(np.asfortranarray(inside.astype(np.uint8)))
        region = {"size": [height, width], "counts": encoded["counts"].decode()}
        content["annotations"].append(
            {"id": number, "image_id": number, "category_id": 7, "segmentation": region}
        )
    path.write_text(json.dumps(content))
