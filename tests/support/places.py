"""The folders that examples in the documentation use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
from PIL import Image

from gpgc_dask.results.export.runs import boxed_runs, brush_bytes
from tests.support.coco_files import write_coco
from tests.support.images import draw, save_pair, save_pairs


def save_folders(place: Path, n: int = 12) -> tuple[Path, Path]:
    """Write photos/ and masks/ of n images, and the same in the formats VOC, COCO and boxes."""
    images, masks = save_pairs(place, n)
    photos = images.rename(place / "photos")
    shutil.copytree(photos, place / "JPEGImages")
    shutil.copytree(photos, place / "train2017")
    (place / "SegmentationClass").mkdir()
    for path in masks.iterdir():
        classes = np.where(np.asarray(Image.open(path)) > 0, 13, 0).astype(np.uint8)
        classes[:3] = 255
        Image.fromarray(classes).save(place / "SegmentationClass" / path.name)
    _save_voc(place)
    write_coco(photos, masks, place / "instances_train2017.json")
    lines = ["image,x,y,width,height"]
    lines += [f"{path.name},10,5,60,50" for path in sorted(photos.iterdir())]
    (place / "boxes.csv").write_text("\n".join(lines))
    return photos, masks


def _save_voc(place: Path) -> None:
    """Write VOC2012/: the animals of every third photo are cows."""
    root = place / "VOC2012"
    shutil.copytree(place / "JPEGImages", root / "JPEGImages")
    (root / "SegmentationClass").mkdir(parents=True)
    for number, path in enumerate(sorted((place / "SegmentationClass").iterdir())):
        classes = np.array(Image.open(path))
        classes[classes == 13] = 13 if number % 3 else 10
        Image.fromarray(classes).save(root / "SegmentationClass" / path.name)


def save_corrections(place: Path) -> None:
    """Write corrected masks of two images as a folder, and as Label Studio and CVAT export them."""
    masks = {number: draw(number + 20)[1] for number in (3, 7)}
    (place / "corrected-masks").mkdir()
    tasks = []
    root = Xml.Element("annotations")
    for number, mask in masks.items():
        name = f"photo_{number:03d}"
        Image.fromarray(mask * np.uint8(255)).save(place / f"corrected-masks/{name}.png")
        value = {"format": "rle", "rle": brush_bytes(mask), "brushlabels": ["foreground"]}
        size = {"original_height": mask.shape[0], "original_width": mask.shape[1]}
        region = {"type": "brushlabels", "value": value} | size
        own = {"id": number, "completed_by": 1, "result": [region]}
        tasks.append({"id": number, "data": {"name": f"{name}.jpg"}, "annotations": [own]})
        image = Xml.SubElement(root, "image", name=f"{name}.jpg", height="60", width="80")
        lengths, box = boxed_runs(mask)
        sides = dict(zip(("left", "top", "width", "height"), map(str, box), strict=True))
        Xml.SubElement(image, "mask", sides, label="foreground", rle=str(lengths)[1:-1])
        Xml.SubElement(image, "tag", label="confirmed")
    (place / "label-studio.json").write_text(json.dumps(tasks))
    Xml.ElementTree(root).write(place / "annotations.xml")


def save_others(place: Path, n: int = 3) -> None:
    """Write new-photos/, true-masks/, and two folders of predictions, one of them worse."""
    images, masks = save_pairs(place / "others", n)
    images.rename(place / "new-photos")
    shutil.copytree(masks, place / "predicted-clean")
    (place / "predicted-all").mkdir()
    for path in masks.iterdir():
        shifted = np.roll(np.asarray(Image.open(path)), 5, axis=1)
        Image.fromarray(shifted).save(place / "predicted-all" / path.name)
    masks.rename(place / "true-masks")
    (place / "others").rmdir()


def save_job(place: Path) -> None:
    """Write job/ and today/, by annotator and day; all masks by ben are shifted."""
    days = ("2026-11-16", "2026-11-17")
    names = [f"{who}/{day}" for who in ("anna", "ben", "cleo") for day in days]
    for number, name in enumerate(names * 2):
        save_pair(place / "job", f"{name}/photo_{number:03d}", number)
    for number in range(3):
        save_pair(place / "today", f"anna/2026-11-18/photo_{number:03d}", 50 + number)
    for path in (place / "job/masks/ben").rglob("*.png"):
        Image.fromarray(np.roll(np.asarray(Image.open(path)), 30, axis=1)).save(path)
    for folder in ("job", "today"):
        (place / folder / "images").rename(place / folder / "photos")
