"""Folders of the kinds of data that pages of the documentation begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from gpgc_dask.imaging.class_tables import read_classes
from tests.support.coco_files import write_coco
from tests.support.images import draw, save_pairs
from tests.support.medical import draw_slices, save_nifti

SKY, ROAD, CAR = 23, 7, 26
"""Values of Cityscapes."""


def draw_street(seed: int, height: int = 60, width: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """A car on a road below the sky: photo, and values of Cityscapes."""
    rng = np.random.default_rng(seed)
    values = np.full((height, width), SKY, dtype=np.uint8)
    values[height // 2 :] = ROAD
    top, left = rng.integers(height // 3, height // 2), rng.integers(5, width - 30)
    values[top : top + 14, left : left + 24] = CAR
    values[:2] = 3  # out of the region of interest
    colours = {SKY: (150, 180, 220), ROAD: (90, 85, 95), CAR: (170, 40, 50), 3: (20, 20, 20)}
    photo = np.zeros((height, width, 3))
    for value, colour in colours.items():
        photo[values == value] = colour
    return np.clip(photo + rng.normal(0, 12, photo.shape), 0, 255).astype(np.uint8), values


def _save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def save_streets(place: Path) -> None:
    """Write cityscapes/ and camvid/."""
    table = read_classes("cityscapes")
    rgb = {value: colour for *colour, value in table.colours}
    for number in range(8):
        photo, values = draw_street(number)
        town = ("aachen", "bonn")[number % 2]
        name = f"{town}/{town}_{number // 4:06d}_{number:06d}"
        _save(place / f"cityscapes/leftImg8bit/{name}_leftImg8bit.png", photo)
        _save(place / f"cityscapes/gtFine/{name}_gtFine_labelIds.png", values)
        _save(place / f"camvid/images/0016E5_{number:05d}.png", photo)
        picture = np.array([rgb.get(value, (0, 0, 0)) for value in range(40)], dtype=np.uint8)
        _save(place / f"camvid/labels/0016E5_{number:05d}_L.png", picture[values])
    names = {SKY: "Sky", ROAD: "Road", CAR: "Car"}
    lines = [f"{' '.join(map(str, rgb[value]))}\t{name}" for value, name in names.items()]
    (place / "camvid/label_colors.txt").write_text("\n".join([*lines, "0 0 0\tVoid"]))


def save_cases(place: Path) -> None:
    """Write liver/: three CT volumes and their labels, as the Medical Segmentation Decathlon."""
    for case in range(3):
        slices, labels = draw_slices(4, case)
        labels = labels.astype(np.uint8)
        labels[:, 25:30, 35:40] *= 2
        ct = slices.astype(np.int16) * 4 - 400
        save_nifti(place / f"liver/imagesTr/liver_{case}.nii.gz", ct)
        save_nifti(place / f"liver/labelsTr/liver_{case}.nii.gz", labels)
    save_nifti(place / "liver/imagesTs/liver_9.nii.gz", draw_slices(2, 9)[0].astype(np.int16))


def save_cells(place: Path) -> None:
    """Write cells/: 12-bit photos in 16-bit TIFFs, and masks with the number of each cell."""
    for number in range(8):
        cells = np.zeros((64, 96), dtype=np.uint16)
        photo = np.zeros((64, 96))
        for own in range(6):
            y, x = 32 * (own // 3), 32 * (own % 3)
            mask = draw(10 * number + own, 32, 32)[1]
            cells[y : y + 32, x : x + 32][mask] = own * 2 + number % 2 + 1
        noise = np.random.default_rng(number).normal(0, 60, photo.shape)
        photo = np.clip(300 + 1500 * (cells > 0) + noise, 0, 4095).astype(np.uint16)
        for folder, array in (("images", photo), ("masks", cells)):
            path = place / "cells" / folder / f"well_{number}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            tifffile.imwrite(path, array)


def save_scenes(place: Path) -> None:
    """Write aerial/: scenes of four bands of 16 bits, and masks of the river in them."""
    for number in range(2):
        y, x = np.mgrid[:160, :240]
        river = np.abs(y - 80 - 40 * np.sin(x / 40 + number)) < 18
        rng = np.random.default_rng(number)
        colours = np.where(river[..., None], (40, 70, 140, 20), (90, 130, 60, 210))
        bands = (colours + rng.normal(0, 10, colours.shape)).clip(0, 255) * 40
        folder = place / "aerial"
        (folder / "scenes").mkdir(parents=True, exist_ok=True)
        options = {"photometric": "minisblack", "planarconfig": "contig", "tile": (64, 64)}
        tifffile.imwrite(folder / f"scenes/site_{number}.tif", bands.astype(np.uint16), **options)
        _save(folder / f"masks/site_{number}.tif", river.astype(np.uint8))


def save_crowd(place: Path) -> None:
    """Write crowd/: three answers for each photo; those of carl are moved."""
    for number in range(6):
        photo, mask = draw(number)
        _save(place / f"crowd/photos/photo_{number}.jpg", photo)
        for who, shift in (("anna", 0), ("ben", 1), ("carl", 25)):
            answer = np.roll(mask, shift, axis=1) * np.uint8(255)
            _save(place / f"crowd/answers/photo_{number}/{who}.png", answer)
            _save(place / f"crowd/{who}/photo_{number}.png", answer)


def save_coco(place: Path) -> None:
    """Write train2017/ and instances_train2017.json."""
    images, masks = save_pairs(place, 12)
    images.rename(place / "train2017")
    write_coco(place / "train2017", masks, place / "instances_train2017.json")


KINDS: dict[str, Callable[[Path], None]] = {
    "street-scenes": save_streets,
    "medical": save_cases,
    "microscopy": save_cells,
    "aerial": save_scenes,
    "coco": save_coco,
    "crowd": save_crowd,
}
"""{page: function that writes the folder which it begins with}."""
