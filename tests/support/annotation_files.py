"""The same annotated photos in every layout that ``gpgc ingest`` reads."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
from PIL import Image
from pycocotools import mask as rle

from gpgc_dask.imaging.mask_sources.voc import voc_colours
from gpgc_dask.results.export.runs import brush_bytes
from tests.support.images import draw

H, W = 60, 80
HORSE, DOG = "horse", "dog"
SCENES = {
    "a": [(HORSE, (10, 20, 50, 40)), (DOG, (20, 24, 30, 34))],
    "b": [(DOG, (5, 5, 40, 30))],
    "c": [],
    "d": [(HORSE, (0, 0, 30, 60)), (HORSE, (40, 10, 79, 50))],
}
"""{photo: (category, left, top, right, bottom) of its objects}, later ones in front."""

NUMBERS = {DOG: 12, HORSE: 13}
"""Values of the categories in VOC."""


@dataclass(frozen=True)
class Written:
    """Where a layout was written, and the format that it is recognised as."""

    images: Path
    masks: Path
    format: str


def inside(box: tuple[int, int, int, int]) -> np.ndarray:
    left, top, right, bottom = box
    mask = np.zeros((H, W), dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def true_codes(photo: str, categories: list[str], *, hidden: bool = False) -> np.ndarray:
    """Class codes of a photo, 0 for the background.

    With ``hidden`` other categories hide what is behind them, as in formats that store pictures.
    """
    codes = np.zeros((H, W), dtype=np.uint8)
    for label, box in SCENES[photo]:
        if label in categories or hidden:
            codes[inside(box)] = categories.index(label) + 1 if label in categories else 0
    return codes


def save_photos(folder: Path, names: Any = SCENES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.fromarray(draw(number, H, W)[0]).save(folder / f"{name}.jpg")
    return folder


def corners(box: tuple[int, int, int, int]) -> list[tuple[float, float]]:
    left, top, right, bottom = box
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def flat(box: tuple[int, int, int, int]) -> list[float]:
    return [float(number) for point in corners(box) for number in point]


# -- COCO ------------------------------------------------------------------------------------------


def coco_polygons(box: tuple[int, int, int, int]) -> Any:
    return [flat(box)]


def coco_compressed(box: tuple[int, int, int, int]) -> Any:
    found = rle.encode(np.asfortranarray(inside(box).astype(np.uint8)))
    return {"size": found["size"], "counts": found["counts"].decode()}


def coco_uncompressed(box: tuple[int, int, int, int]) -> Any:
    values = inside(box).ravel(order="F")
    bounds = np.flatnonzero(np.diff(values, prepend=False, append=not values[-1]))
    return {"size": [H, W], "counts": np.diff(bounds, prepend=0).tolist()}


def write_coco(folder: Path, region: Callable[..., Any], name: str = "instances.json") -> Written:
    images = save_photos(folder / "photos")
    content: dict[str, list[Any]] = {"images": [], "annotations": []}
    content["categories"] = [{"id": 7, "name": HORSE}, {"id": 3, "name": DOG}]
    ids = {one["name"]: one["id"] for one in content["categories"]}
    for number, (photo, objects) in enumerate(SCENES.items()):
        size = {"height": H, "width": W}
        content["images"].append({"id": number, "file_name": f"{photo}.jpg"} | size)
        for label, box in objects:
            own = {"id": len(content["annotations"]) + 1, "image_id": number}
            area = int(inside(box).sum())
            own |= {"category_id": ids[label], "segmentation": region(box), "area": area}
            content["annotations"].append(own)
    (folder / name).write_text(json.dumps(content))
    return Written(images, folder / name, "coco")


def write_coco_in_folder(folder: Path) -> Written:
    write_coco(folder, coco_polygons, "photos/_annotations.coco.json")
    return Written(folder / "photos", folder / "photos", "coco")


def write_panoptic(folder: Path) -> Written:
    """Grass is stuff, and the last column is unlabelled."""
    images = save_photos(folder / "photos")
    categories = [
        {"id": 1, "name": HORSE, "isthing": 1},
        {"id": 2, "name": DOG, "isthing": 1},
        {"id": 9, "name": "grass", "isthing": 0},
    ]
    ids = {one["name"]: one["id"] for one in categories}
    content: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": categories}
    (folder / "panoptic").mkdir()
    for number, (photo, objects) in enumerate(SCENES.items()):
        segments = np.full((H, W), 70_000, dtype=np.int64)
        listed = [{"id": 70_000, "category_id": 9, "iscrowd": 0}]
        for own, (label, box) in enumerate(objects, start=300):
            segments[inside(box)] = own
            listed.append({"id": own, "category_id": ids[label], "iscrowd": 0})
        segments[:, -1] = 0
        pixels = np.stack([segments >> shift & 255 for shift in (0, 8, 16)], axis=-1)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "panoptic" / f"{photo}.png")
        size = {"height": H, "width": W}
        content["images"].append({"id": number, "file_name": f"{photo}.jpg"} | size)
        own = {"image_id": number, "file_name": f"{photo}.png", "segments_info": listed}
        content["annotations"].append(own)
    (folder / "panoptic.json").write_text(json.dumps(content))
    return Written(images, folder / "panoptic.json", "coco-panoptic")


# -- YOLO ------------------------------------------------------------------------------------------


def write_labels(folder: Path, *, empty: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for photo, objects in SCENES.items():
        lines = [
            " ".join(
                [str([DOG, HORSE].index(label))] + [f"{x / W} {y / H}" for x, y in corners(box)]
            )
            for label, box in reversed(objects)
        ]
        if lines or empty:
            (folder / f"{photo}.txt").write_text("\n".join(lines) + "\n")
    return folder


def write_yolo_root(folder: Path) -> Written:
    save_photos(folder / "images/train")
    write_labels(folder / "labels/train")
    names = "names:\n  0: dog\n  1: horse\n"
    (folder / "data.yaml").write_text(f"path: .\ntrain: images/train\n{names}")
    return Written(folder, folder, "yolo")


def write_yolo_split(folder: Path) -> Written:
    save_photos(folder / "train/images")
    write_labels(folder / "train/labels", empty=True)
    (folder / "data.yaml").write_text("nc: 2\nnames: ['dog', 'horse']\n")
    return Written(folder, folder / "data.yaml", "yolo")


def write_yolo_folders(folder: Path) -> Written:
    labels = write_labels(folder / "labels")
    (labels / "classes.txt").write_text("dog\nhorse\n")
    return Written(save_photos(folder / "images"), labels, "yolo")


def write_yolo_together(folder: Path) -> Written:
    images = save_photos(folder / "data")
    write_labels(images)
    (images / "classes.txt").write_text("dog\nhorse\n")
    return Written(images, images, "yolo")


# -- VOC -------------------------------------------------------------------------------------------


def voc_pictures(photo: str) -> tuple[np.ndarray, np.ndarray]:
    """(classes, objects) with a void corner."""
    classes, objects = np.zeros((2, H, W), dtype=np.uint8)
    for number, (label, box) in enumerate(SCENES[photo], start=1):
        classes[inside(box)], objects[inside(box)] = NUMBERS[label], number
    classes[-5:, -5:] = objects[-5:, -5:] = 255
    return classes, objects


def write_voc(
    folder: Path, *, objects: bool = True, colours: bool = False, lists: bool = False
) -> Written:
    save_photos(folder / "JPEGImages", [*SCENES, "unlabelled"])
    palette = np.array(voc_colours(), dtype=np.uint8)
    for photo in SCENES:
        for kind, values in zip(
            ("SegmentationClass", "SegmentationObject"), voc_pictures(photo), strict=True
        ):
            if kind == "SegmentationObject" and not objects:
                continue
            (folder / kind).mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(palette[values] if colours else values)
            if not colours:
                picture.putpalette(palette.ravel())
            picture.save(folder / kind / f"{photo}.png")
    if lists:
        place = folder / "ImageSets/Segmentation"
        place.mkdir(parents=True)
        (place / "train.txt").write_text("a\nb\n")
        (place / "val.txt").write_text("c\nd\n")
    return Written(folder, folder, "voc")


def write_voc_folders(folder: Path) -> Written:
    write_voc(folder, lists=True)
    return Written(folder / "JPEGImages", folder, "voc")


def write_voc_deep(folder: Path) -> Written:
    write_voc(folder / "VOCdevkit/VOC2012")
    return Written(folder / "VOCdevkit/VOC2012/JPEGImages", folder / "VOCdevkit", "voc")


def write_voc_labelmap(folder: Path) -> Written:
    """As CVAT exports "Segmentation mask 1.1"."""
    colours = {"background": (0, 0, 0), DOG: (9, 200, 30), HORSE: (250, 50, 83)}
    lines = [f"{name}:{r},{g},{b}::" for name, (r, g, b) in colours.items()]
    write_voc(folder, colours=True)
    (folder / "labelmap.txt").write_text("# label:color_rgb:parts:actions\n" + "\n".join(lines))
    table = np.zeros((256, 3), dtype=np.uint8)
    table[NUMBERS[DOG]], table[NUMBERS[HORSE]] = colours[DOG], colours[HORSE]
    for photo in SCENES:
        values = voc_pictures(photo)[0]
        Image.fromarray(table[values]).save(folder / "SegmentationClass" / f"{photo}.png")
    return Written(folder / "JPEGImages", folder, "voc")


# -- CVAT ------------------------------------------------------------------------------------------


def cvat_polygon(label: str, box: tuple[int, int, int, int]) -> Xml.Element:
    points = ";".join(f"{x:.2f},{y:.2f}" for x, y in corners(box))
    return Xml.Element("polygon", label=label, points=points)


def cvat_mask(label: str, box: tuple[int, int, int, int]) -> Xml.Element:
    from cvat_sdk.masks import encode_mask  # takes long to import

    *lengths, left, top, right, bottom = (int(number) for number in encode_mask(inside(box)))
    sizes = {"left": left, "top": top, "width": right - left + 1, "height": bottom - top + 1}
    runs = ", ".join(map(str, lengths))
    return Xml.Element(
        "mask", {key: str(size) for key, size in sizes.items()}, label=label, rle=runs
    )


def write_cvat(folder: Path, *kinds: Callable[..., Xml.Element]) -> Written:
    """In reverse order, with layers."""
    images = save_photos(folder / "photos")
    root = Xml.Element("annotations")
    Xml.SubElement(root, "version").text = "1.1"
    labels = Xml.SubElement(Xml.SubElement(Xml.SubElement(root, "meta"), "task"), "labels")
    for name in (HORSE, DOG):
        Xml.SubElement(Xml.SubElement(labels, "label"), "name").text = name
    for number, (photo, objects) in enumerate(SCENES.items()):
        size = {"width": str(W), "height": str(H)}
        image = Xml.SubElement(root, "image", id=str(number), name=f"project/{photo}.jpg", **size)
        for layer, (label, box) in reversed(list(enumerate(objects))):
            shape = kinds[layer % len(kinds)](label, box)
            shape.set("z_order", str(layer))
            image.append(shape)
    Xml.ElementTree(root).write(folder / "annotations.xml", encoding="utf-8", xml_declaration=True)
    return Written(images, folder / "annotations.xml", "cvat")


# -- LabelMe ---------------------------------------------------------------------------------------


def labelme_polygon(box: tuple[int, int, int, int]) -> dict[str, Any]:
    return {"shape_type": "polygon", "points": [list(point) for point in corners(box)]}


def labelme_rectangle(box: tuple[int, int, int, int]) -> dict[str, Any]:
    left, top, right, bottom = box
    return {"shape_type": "rectangle", "points": [[right, bottom], [left, top]]}


def labelme_mask(box: tuple[int, int, int, int]) -> dict[str, Any]:
    left, top, right, bottom = box
    content = io.BytesIO()
    Image.fromarray(np.ones((bottom - top, right - left), dtype=bool)).save(content, "PNG")
    points = [[left, top], [right - 1, bottom - 1]]
    mask = base64.b64encode(content.getvalue()).decode()
    return {"shape_type": "mask", "points": points, "mask": mask}


def write_labelme(
    folder: Path, kind: Callable[..., dict[str, Any]], *, together: bool = False
) -> Written:
    images = save_photos(folder / "photos")
    place = images if together else folder / "json"
    place.mkdir(exist_ok=True)
    for photo, objects in SCENES.items():
        shapes = [{"label": label, "group_id": None} | kind(box) for label, box in objects]
        content = {"version": "5.4.1", "flags": {}, "shapes": shapes, "imageData": None}
        path = f"{photo}.jpg" if together else f"..\\photos\\{photo}.jpg"
        content |= {"imagePath": path, "imageHeight": H, "imageWidth": W}
        (place / f"{photo}.json").write_text(json.dumps(content, indent=2))
    return Written(images, place, "labelme")


# -- Label Studio ----------------------------------------------------------------------------------


def studio_brush(label: str, box: tuple[int, int, int, int]) -> dict[str, Any]:
    value = {"format": "rle", "rle": brush_bytes(inside(box)), "brushlabels": [label]}
    return {"type": "brushlabels", "value": value}


def studio_polygon(label: str, box: tuple[int, int, int, int]) -> dict[str, Any]:
    points = [[100 * x / W, 100 * y / H] for x, y in corners(box)]
    value = {"points": points, "closed": True, "polygonlabels": [label]}
    return {"type": "polygonlabels", "value": value}


def write_label_studio(folder: Path, kind: Callable[..., dict[str, Any]]) -> Written:
    images = save_photos(folder / "photos")
    tasks = []
    for number, (photo, objects) in enumerate(SCENES.items(), start=1):
        size = {"original_width": W, "original_height": H, "image_rotation": 0}
        results = [
            kind(label, box) | size | {"id": f"{photo}{place}"}
            for place, (label, box) in enumerate(objects)
        ]
        annotation = {"id": number, "result": results, "was_cancelled": False}
        data = {"image": f"/data/upload/1/0a1b2c3d-{photo}.jpg"}
        tasks.append({"id": number, "data": data, "annotations": [annotation]})
    (folder / "export.json").write_text(json.dumps(tasks))
    return Written(images, folder / "export.json", "label-studio")


LAYOUTS: dict[str, Callable[[Path], Written]] = {
    "COCO polygons": lambda folder: write_coco(folder, coco_polygons),
    "COCO compressed run lengths": lambda folder: write_coco(folder, coco_compressed),
    "COCO run lengths": lambda folder: write_coco(folder, coco_uncompressed),
    "COCO next to the photos": write_coco_in_folder,
    "COCO panoptic": write_panoptic,
    "YOLO root": write_yolo_root,
    "YOLO split, data.yaml": write_yolo_split,
    "YOLO two folders, classes.txt": write_yolo_folders,
    "YOLO in one folder": write_yolo_together,
    "VOC root": write_voc,
    "VOC folders and lists": write_voc_folders,
    "VOC without objects": lambda folder: write_voc(folder, objects=False),
    "VOC in colours": lambda folder: write_voc(folder, colours=True),
    "VOC in VOCdevkit": write_voc_deep,
    "CVAT masks 1.1, labelmap": write_voc_labelmap,
    "CVAT polygons": lambda folder: write_cvat(folder, cvat_polygon),
    "CVAT masks": lambda folder: write_cvat(folder, cvat_mask),
    "CVAT both": lambda folder: write_cvat(folder, cvat_mask, cvat_polygon),
    "LabelMe polygons": lambda folder: write_labelme(folder, labelme_polygon),
    "LabelMe rectangles": lambda folder: write_labelme(folder, labelme_rectangle),
    "LabelMe masks": lambda folder: write_labelme(folder, labelme_mask),
    "LabelMe next to the photos": lambda f: write_labelme(f, labelme_polygon, together=True),
    "Label Studio brushes": lambda folder: write_label_studio(folder, studio_brush),
    "Label Studio polygons": lambda folder: write_label_studio(folder, studio_polygon),
}
"""{layout: function that writes it to a folder}."""
