"""YOLO segmentation: a text file per photo with a polygon per line, relative to the photo's size.

The names of the classes are in data.yaml or classes.txt, next to the text files or in a folder
above them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources.annotated import (
    Annotations,
    AnnotationSource,
    Shape,
    ShapesPhoto,
)
from gpgc_dask.imaging.mask_sources.documents import load_yaml, read_text, to_number
from gpgc_dask.imaging.mask_sources.regions import Polygon

__all__ = ["YoloFolder"]

YAML = (".yaml", ".yml")
LISTS = ("classes.txt", "obj.names", "classes.names")
"""Files with one name of a class per line."""

BOX = 4
"""Numbers of a box; a fifth one is its confidence."""

LEVELS = 3
"""Folders in which the names of the classes are searched: that of the labels and those above it."""


class YoloFolder(AnnotationSource):
    """labels/NAME.txt for each photo images/NAME.*, large polygons first.

    A photo without a text file has no objects, as for YOLO. ``masks`` is the folder of the labels,
    the root of the dataset or its data.yaml; ``images`` may be the root too.
    """

    title = "YOLO segmentation"

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """A data.yaml, or a folder in which some text file begins with the numbers of a shape."""
        if path.suffix.lower() in YAML:
            return path
        return path if path.is_dir() and any(map(_has_shape, _text_files(path))) else None

    @classmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read the text files of all photos."""
        root = Path(masks).parent if Path(masks).is_file() else Path(masks)
        names = _class_names(root)
        folder = Path(images)
        if folder == root and (root / "images").is_dir():
            folder = root / "images"
        photos, problems, boxes = list[ShapesPhoto](), list[Problem](), 0
        found = _pair(folder, root)
        used = {label for label in found.values() if label.is_file()}
        if not used:
            raise InputError(
                f"no photo in {folder} has a text file in {root}: labels of images/a.jpg are "
                "in labels/a.txt"
            )
        for photo, label in found.items():
            try:
                shapes = _read_shapes(label, names) if label in used else ()
            except BoxError as error:
                boxes += 1
                problems.append(Problem(photo, str(error)))
                continue
            except GpgcError as error:
                problems.append(Problem(photo, str(error)))
                continue
            photos.append(ShapesPhoto(photo, str(label), shapes))
        if boxes and not any(photo.shapes for photo in photos):
            raise InputError(
                f"{root} has boxes, not outlines, such as {problems[0].reason}: export a dataset "
                "for segmentation, with a polygon per line"
            )
        problems += _orphans(used, found, folder)
        known = list(dict.fromkeys(names.values()))
        return Annotations(str(folder), str(root), photos, known, problems)


class BoxError(UnusableFileError):
    """A line is a box and no polygon."""


def _pair(images: Path, root: Path) -> dict[str, Path]:
    """{photo: its text file, which need not exist}."""
    names = find_images(images)
    inside = [name for name in names if "images" in Path(images.name, name).parts[:-1]]
    pairs = {}
    for name in inside or names:
        stem = Path(name).with_suffix(".txt")
        swapped = _swap(images / stem)
        candidates = [root / stem, root / "labels" / stem, *swapped, images / stem]
        own = [path for path in candidates if path.is_relative_to(root)]
        pairs[name] = next((path for path in own if path.is_file()), root / stem)
    return pairs


def _swap(path: Path) -> list[Path]:
    """The path with the last folder ``images`` in it replaced by ``labels``."""
    parts = list(path.parts)
    places = [number for number, part in enumerate(parts[:-1]) if part == "images"]
    return [Path(*parts[: places[-1]], "labels", *parts[places[-1] + 1 :])] if places else []


def _orphans(used: set[Path], found: Mapping[str, Path], images: Path) -> list[Problem]:
    """Text files without a photo, in the folders of those that have one."""
    known = set(found.values())
    return [
        Problem(path.name, f"image missing: {images} has no photo for {path}")
        for folder in sorted({path.parent for path in used})
        for path in sorted(folder.glob("*.txt"))
        if path not in known and path.name not in LISTS and _looks_labelled(path)
    ]


def _looks_labelled(path: Path) -> bool:
    """Whether a text file begins with a number, or is empty: not a list or a description."""
    with path.open("rb") as file:
        first = file.readline(200).split()
    return not first or first[0].isdigit()


def _has_shape(path: Path) -> bool:
    """Whether a text file begins with a line of numbers, at least as many as those of a box."""
    with path.open("rb") as file:
        parts = file.readline(200).split()
    return len(parts) > BOX and all(set(part) <= set(b"0123456789.e-") for part in parts)


def _text_files(root: Path) -> Iterator[Path]:
    """Text files in a folder and its subfolders."""
    for folder, _, files in os.walk(root):
        for name in sorted(files):
            if name.endswith(".txt") and name not in LISTS:
                yield Path(folder, name)


def _names_file(root: Path) -> Path | None:
    """The file with the names of the classes; None if there is none."""
    # Only the folders of a dataset: others may have files of names too.
    part = "labels" in (root.name, root.parent.name) or (root / "labels").is_dir()
    for folder in [root, *root.parents][: LEVELS if part else 1]:
        files = sorted(folder.glob("*.y*ml"), key=lambda path: path.name != "data.yaml")
        for path in files:
            if path.suffix in YAML and path.is_file() and b"names" in path.read_bytes():
                return path
        for name in LISTS:
            if (folder / name).is_file():
                return folder / name
    return None


def _class_names(root: Path) -> dict[int, str]:
    """{number: name} of the classes."""
    path = _names_file(root)
    if path is None:
        raise InputError(
            f"{root} has no names of the classes: put the data.yaml of the dataset there, or a "
            "classes.txt with one name per line"
        )
    if path.suffix not in YAML:
        lines = [line.strip() for line in read_text(path).splitlines()]
        names: Any = [line for line in lines if line]
    else:
        content = load_yaml(path)
        names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    good = isinstance(names, dict) and all(
        isinstance(number, int) and isinstance(name, (str, int, float))
        for number, name in names.items()
    )
    if not good or not names:
        raise InputError(
            f"{path} has no list of names: write names: [horse, dog], or names with a number each"
        )
    return {number: str(name) for number, name in names.items()}


def _read_shapes(path: Path, names: Mapping[int, str]) -> tuple[Shape, ...]:
    shapes: list[tuple[float, Shape]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        where = f"{path.name} line {number}"
        values = [to_number(part, f"{where}: a number") for part in parts]
        if len(values) - 1 in (BOX, BOX + 1):
            raise BoxError(
                f"{where} is a box (class, centre, size), not a polygon: export outlines, or "
                "remove the line"
            )
        if len(values) % 2 == 0:
            raise UnusableFileError(
                f"{where} has {len(values) - 1} coordinates: points need two each (class x y x y …)"
            )
        if values[0] not in names:
            raise UnusableFileError(
                f"{where} has class {parts[0]}, and the names are those of classes "
                f"{min(names)} to {max(names)}: add its name, or correct it"
            )
        polygon = Polygon(tuple(values[1:]), full=1)
        shape = Shape(names[int(values[0])], (polygon,), f"{path.stem}:{number}")
        shapes.append((polygon.area(), shape))
    # Small things in front of large ones, as in COCO files: the lines have no order.
    return tuple(shape for _, shape in sorted(shapes, key=lambda one: -one[0]))
