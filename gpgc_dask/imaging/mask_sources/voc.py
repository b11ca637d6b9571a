"""Pascal VOC: JPEGImages, SegmentationClass, and perhaps SegmentationObject and ImageSets.

Exports of CVAT ("Segmentation mask 1.1") have the same folders, and a labelmap.txt with the colours
of their own classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import by_stem, find_images
from gpgc_dask.imaging.mask_sources.annotated import Annotations, AnnotationSource
from gpgc_dask.imaging.mask_sources.base import Mask, file_stamp
from gpgc_dask.imaging.mask_sources.documents import read_text
from gpgc_dask.imaging.mask_sources.pictures import (
    Ids,
    Segment,
    pack_colours,
    pick_codes,
    read_picture,
    segment_objects,
)
from gpgc_dask.imaging.masks import VOID, Codes
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.imaging.photos import Orientation, decoding, open_image

__all__ = ["NAMES", "VocFolder", "read_labelmap", "voc_colours"]

NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa",
    "train", "tvmonitor",
)  # fmt: skip
"""Names of the values 0 to 20."""

VOID_VALUE = 255
LABELMAP = "labelmap.txt"
CLASSES, OBJECTS, PHOTOS = "SegmentationClass", "SegmentationObject", "JPEGImages"
LISTS = ("trainval.txt", "train.txt", "val.txt")


class VocFolder(AnnotationSource):
    """SegmentationClass/NAME.png for each photo JPEGImages/NAME.jpg; the border, 255, is void.

    ``masks`` is the root of the dataset or its SegmentationClass; ``images`` may be the root too.
    Lists in ImageSets/Segmentation, if there are any, name the photos that have a mask.
    """

    title = "Pascal VOC"
    has_void = True

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """SegmentationClass, or the folder that contains it or JPEGImages, below it."""
        if not path.is_dir():
            return None
        if path.name == CLASSES:
            return path
        inside = [path, *sorted(path.glob("*/")), *sorted(path.glob("*/*/"))]
        known = (CLASSES, PHOTOS)
        found = [folder for name in known for folder in inside if (folder / name).is_dir()]
        return found[0] if found else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Find the masks, and which classes they have."""
        given = Path(masks)
        root = given.parent if given.name == CLASSES else cls.locate(given)
        if root is None or not (root / CLASSES).is_dir():
            raise InputError(
                f"{masks} has no folder {CLASSES}: name the root of a VOC dataset with masks "
                "(the boxes in Annotations are no outlines)"
            )
        folder = Path(images)
        if folder in (given, root) and (root / PHOTOS).is_dir():
            folder = root / PHOTOS
        palette = Palette.read(root)
        listed, photos, problems = _read_lists(root), by_stem(find_images(folder)), list[Problem]()
        pictures = by_stem(find_images(root / CLASSES))
        found: list[tuple[str, Path]] = []
        for stem in sorted(pictures if listed is None else listed):
            own = photos.get(stem, [])
            if stem not in pictures:
                problems.append(Problem(stem, f"mask missing: there is no {CLASSES}/{stem}.png"))
            elif len(own) != 1 or len(pictures[stem]) != 1:
                several = own or len(pictures[stem]) > 1
                reason = "several photos or masks" if several else "image missing"
                problems.append(Problem(stem, f"{reason}: {CLASSES}/{stem}.png and {folder}"))
            else:
                found.append((own[0], root / CLASSES / pictures[stem][0]))
        with ThreadPoolExecutor() as pool:
            read = list(pool.map(palette.present, (path for _, path in found)))
        annotated = []
        for (name, path), present in zip(found, read, strict=True):
            if isinstance(present, str):
                problems.append(Problem(name, present))
            else:
                objects = root / OBJECTS / path.relative_to(root / CLASSES)
                own_objects = str(objects) if objects.is_file() else ""
                annotated.append(VocPhoto(name, str(path), own_objects, palette, present))
        if not found and not problems:
            raise InputError(f"{root / CLASSES} has no masks")
        known = list(dict.fromkeys(palette.names[1:]))
        return Annotations(str(folder), str(root), annotated, known, problems)


def _read_lists(root: Path) -> list[str] | None:
    """Names in the lists of ImageSets/Segmentation; None if there are no lists."""
    files = [root / "ImageSets" / "Segmentation" / name for name in LISTS]
    listed = [line.strip() for file in files if file.is_file() for line in _lines(file)]
    return list(dict.fromkeys(name for name in listed if name)) or None


def _lines(path: Path) -> list[str]:
    return read_text(path).splitlines()


@dataclass(frozen=True)
class Palette:
    """What the pixels of a VOC picture mean.

    Attributes
    ----------
    names : tuple of str
        Names of the values; the first one is the background.
    colours : tuple of (int, int)
        Colour as one number, and its value, of a labelmap. If there is none, the numbers in grey
        and palette pictures are the values, and the colours of other pictures those of VOC.
    """

    names: tuple[str, ...]
    colours: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, root: Path) -> Palette:
        """Classes of VOC, or of the labelmap.txt if there is one."""
        if not (root / LABELMAP).is_file():
            return cls(NAMES)
        labels = [one for one in read_labelmap(root / LABELMAP) if one[0] != NAMES[0]]
        names = (NAMES[0], *dict.fromkeys(name for name, _ in labels))
        own = [(rgb, names.index(name)) for name, rgb in labels]
        rgb = np.array([(0, 0, 0), *(rgb for rgb, _ in own)], dtype=np.uint8)
        values = [0, *(value for _, value in own)]
        return cls(names, tuple(zip(pack_colours(rgb).tolist(), values, strict=True)))

    def values(self, image: Any) -> Ids:
        """Values of a picture."""
        if not self.colours and image.mode in ("P", "L"):
            return np.asarray(image).astype(np.int64)
        table = dict(self.colours) or colour_numbers()
        pixels = pack_colours(np.asarray(image.convert("RGB")))
        present, inverse = np.unique(pixels, return_inverse=True)
        unknown = [colour for colour in present.tolist() if colour not in table]
        if unknown:
            red, green, blue = (unknown[0] >> shift & 255 for shift in (0, 8, 16))
            raise UnusableFileError(
                f"it has the colour {red},{green},{blue}, which is of no class: add it to "
                f"{LABELMAP}"
            )
        found = np.array([table[colour] for colour in present.tolist()], dtype=np.int64)
        return found[inverse.reshape(pixels.shape)]

    def present(self, path: Path) -> tuple[str, ...] | str:
        """Names of the classes in a picture; why it cannot be used if it cannot."""
        try:
            with open_image(path) as image, decoding(path):
                present = np.flatnonzero(np.bincount(self.values(image).ravel()))
        except UnusableFileError as error:
            return f"mask {path}: {error}"
        unknown = [n for n in present.tolist() if n >= len(self.names) and n != VOID_VALUE]
        if unknown:
            return (
                f"mask {path} has the value {unknown[0]}, and the classes are 0 to "
                f"{len(self.names) - 1}: correct it, or read the folder as masks (--format masks "
                "--classes)"
            )
        return tuple(self.names[n] for n in present.tolist() if n != VOID_VALUE and n > 0)


@dataclass(frozen=True)
class VocPhoto:
    """A photo and its pictures."""

    name: str
    path: str
    objects: str
    palette: Palette
    present: tuple[str, ...]

    def labels(self) -> Collection[str]:
        return self.present

    def check(self, categories: Collection[str]) -> None:
        """Masks were checked when they were read."""

    def mask(self, codes: Mapping[str, int]) -> Mask:
        own = tuple((value, codes.get(name, 0)) for value, name in enumerate(self.palette.names))
        own = (*own, (VOID_VALUE, VOID))
        stamp = file_stamp(self.path)
        if not self.objects:
            return VocMask(self.path, stamp, self.palette, own)
        stamp += " " + file_stamp(self.objects)
        return VocObjectMask(self.path, stamp, self.palette, own, self.objects)


@dataclass(frozen=True)
class VocMask:
    """A picture of classes.

    Attributes
    ----------
    path, stamp : str
        The picture; size and time of it and of that of the objects.
    palette : Palette
        What its pixels mean.
    codes : tuple of (int, int)
        Value and class code.
    """

    path: str
    stamp: str
    palette: Palette
    codes: tuple[tuple[int, int], ...]

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes at the photo's own size."""
        values = read_picture(self.path, self.palette.values, orientation)
        return pick_codes(values, dict(self.codes), self.path, "values of no class:")


@dataclass(frozen=True)
class VocObjectMask(VocMask):
    """A picture of classes, and one of objects."""

    objects: str

    def read_objects(self, orientation: Orientation, height: int, width: int) -> list[PhotoObject]:
        """Objects of the chosen classes; the class of each is that of most of its pixels."""
        codes = self.read(orientation)
        ids = read_picture(self.objects, _object_ids, orientation)
        stem, segments = PurePosixPath(self.path).stem, []
        for number in np.unique(ids).tolist():
            counts = np.bincount(codes[ids == number], minlength=VOID + 1)[:VOID]
            code = int(counts.argmax())
            if number not in (0, VOID_VALUE) and counts[code] and code:
                segments.append(Segment(f"{stem}:{number}", number, code))
        return segment_objects(ids, segments, height, width)


def _object_ids(image: Any) -> Ids:
    """Numbers of the objects; those of the colours of VOC's palette in a colour picture."""
    if image.mode in ("P", "L"):
        return np.asarray(image).astype(np.int64)
    pixels = pack_colours(np.asarray(image.convert("RGB")))
    order = colour_numbers()
    present, inverse = np.unique(pixels, return_inverse=True)
    others = iter(range(256, 256 + present.size))
    numbers = [order[c] if c in order else next(others) for c in present.tolist()]
    return np.array(numbers, dtype=np.int64)[inverse.reshape(pixels.shape)]


def voc_colours(n: int = 256) -> list[tuple[int, int, int]]:
    """Colours of the numbers 0 to n - 1 in the palette of VOC.

    Examples
    --------
    >>> voc_colours(3)
    [(0, 0, 0), (128, 0, 0), (0, 128, 0)]
    """

    def colour(number: int) -> tuple[int, int, int]:
        bits = [(number >> bit) & 1 for bit in range(9)]
        red, green, blue = (
            sum(bits[3 * step + band] << (7 - step) for step in range(3)) for band in range(3)
        )
        return red, green, blue

    return [colour(number) for number in range(n)]


@cache
def colour_numbers() -> dict[int, int]:
    """{colour as one number: number} of the palette of VOC."""
    packed = pack_colours(np.array(voc_colours(), dtype=np.uint8)).tolist()
    return {colour: number for number, colour in enumerate(packed)}


def read_labelmap(path: Path) -> list[tuple[str, tuple[int, int, int]]]:
    """(name, colour) of the classes that a labelmap.txt lists."""
    labels = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        label, _, rest = text.partition(":")
        try:
            red, green, blue = (int(part) for part in rest.split(":")[0].split(","))
        except ValueError:
            red = green = blue = -1
        if not label or not all(0 <= band <= 255 for band in (red, green, blue)):
            raise InputError(f"{path}: line {number} is not of the form label:red,green,blue::")
        labels.append((label, (red, green, blue)))
    return labels
