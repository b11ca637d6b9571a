"""Random corruption of files, and readers that must survive it.

A reader is an entry in :data:`READERS`: how its files are written, and how they are read. Whatever
was changed in a file, reading it must end with a :class:`~gpgc_dask.GpgcError` or with a result of
the right kind, never with another exception, and in time.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from gpgc_dask import GpgcError, MaskOptions, PhotoFormat
from gpgc_dask.core.tiles import cut_scene, join_address
from gpgc_dask.data.run_lengths import decode
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources import ObjectMask, open_source
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.photos import read_orientation, read_photo
from gpgc_dask.imaging.survey import survey_photos
from gpgc_dask.pipelines.batches import problem_error
from gpgc_dask.pipelines.mask_check import check_masks
from tests.support.annotation_files import LAYOUTS
from tests.support.deep import write_deep
from tests.support.fuzzing_stores import STORES
from tests.support.images import draw
from tests.support.medical import save_dicom, save_nifti

MAX_SECONDS = 20.0
"""Longest time that reading the files of one case may take, on a busy machine."""

JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**9, 10**30, -0.5, 1e300, float("nan"), float("inf"), "", "a", "\ud800",
    "../x", "a\0b", [], [[]], [1, 2], [[1, 2, 3, 4, 5]], {}, {"a": 1}, {"size": [1, 1]},
)  # fmt: skip
"""Values that replace others in JSON files."""


@dataclass(frozen=True)
class FuzzReader:
    """Something that reads files.

    Attributes
    ----------
    write : callable
        Writes correct files to an empty folder, and returns those that are corrupted.
    read : callable
        Reads the files of that folder; raises a GpgcError, or an AssertionError if the result is
        not of the right kind.
    """

    write: Callable[[Path], list[Path]]
    read: Callable[[Path], None]


@dataclass
class Outcome:
    """What became of the cases of a reader."""

    cases: int = 0
    errors: int = 0
    read: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)


def run_cases(reader: FuzzReader, cases: int, seed: int = 0) -> Outcome:
    """Corrupt the files of a reader in some ways, each time one file, and read them."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        files = reader.write(folder)
        contents = {path: path.read_bytes() for path in files}
        reader.read(folder)  # as written it must be readable
        for case in range(cases):
            rng = np.random.default_rng([seed, case])
            path = files[int(rng.integers(len(files)))]
            path.write_bytes(corrupt(contents[path], path.suffix, rng))
            _read(reader, folder, f"case {case} of seed {seed}, {path.name}", outcome)
            path.write_bytes(contents[path])
        shutil.rmtree(folder)
    return outcome


def _read(reader: FuzzReader, folder: Path, title: str, outcome: Outcome) -> None:
    start = time.perf_counter()
    outcome.cases += 1
    try:
        reader.read(folder)
        outcome.read += 1
    except GpgcError as error:
        outcome.errors += 1
        outcome.messages[str(error).replace(str(folder), "…")[:120]] += 1
        if not str(error):
            outcome.failures.append(f"{title}: an error without a message")
    except Exception as error:
        outcome.failures.append(f"{title}: {type(error).__name__}: {error}")
    seconds = time.perf_counter() - start
    outcome.slowest = max(outcome.slowest, seconds)
    if seconds > MAX_SECONDS:
        outcome.failures.append(f"{title}: took {seconds:.0f} s")


# -- ways to corrupt -------------------------------------------------------------------------------


def corrupt(content: bytes, suffix: str, rng: np.random.Generator) -> bytes:
    """Change a file in one of several ways."""
    ways = [flip_bytes, truncate, remove_part, repeat_part]
    if suffix == ".json":
        ways += 3 * [replace_json]
    if suffix in (".txt", ".xml", ".yaml"):
        ways += 3 * [replace_number]
    return ways[int(rng.integers(len(ways)))](content, rng)


def flip_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for place in rng.integers(0, max(len(changed), 1), size=int(rng.integers(1, 8))):
        if changed:
            changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def remove_part(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(content) + 1, size=2))
    return content[:first] + content[min(last, first + 40) :]


def repeat_part(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(content) + 1, size=2))
    return content[:last] + content[first:]


def replace_number(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace a word that has a digit in it."""
    words = content.split(b" ")
    places = [n for n, word in enumerate(words) if any(48 <= byte <= 57 for byte in word)]
    if not places:
        return flip_bytes(content, rng)
    values = (b"-1", b"nan", b"1e999", b"9" * 5000, b"x", b"", b"0", b"99999999", b"\xff", b"0.5")
    place = places[int(rng.integers(len(places)))]
    word, value = words[place], values[int(rng.integers(len(values)))]
    cut = next(n for n, byte in enumerate(word) if 48 <= byte <= 57)
    end = next((n for n in range(cut, len(word)) if not 48 <= word[n] <= 57), len(word))
    words[place] = word[:cut] + value + word[end:]
    return b" ".join(words)


def replace_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace, remove or repeat a value in a JSON file."""
    document = json.loads(content)
    places = list(_places(document))
    owner, key = places[int(rng.integers(len(places)))]
    way = int(rng.integers(4))
    if way == 0:
        del owner[key]
    elif way == 1 and isinstance(owner, list):
        owner.append(owner[key])
    else:
        owner[key] = JSON_VALUES[int(rng.integers(len(JSON_VALUES)))]
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(owner, key) of all values in a document; of lists the first few."""
    keys: Any = list(value) if isinstance(value, dict) else range(min(len(value), 12))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


# -- readers ---------------------------------------------------------------------------------------


def write_layout(layout: str, folder: Path) -> list[Path]:
    """Write a layout of annotations; its photos are not corrupted."""
    LAYOUTS[layout](folder)
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jpg")


def read_layout(layout: str, folder: Path) -> None:
    """Read all masks and objects of a layout, as an ingest does."""
    place, form = PLACES[layout]
    images, masks = (folder / part for part in place)
    options = MaskOptions(format=form, categories=["all"])
    source = open_source(images, masks, options)
    classes = len(source.mask_format.names)
    for item in source.items:
        orientation = read_orientation(item.pair.image)
        codes = item.mask.read(orientation)
        assert codes.shape == (orientation.height, orientation.width)
        assert codes.dtype == np.uint8
        assert ((codes < classes) | (codes == VOID)).all()
        if isinstance(item.mask, ObjectMask):
            for one in item.mask.read_objects(orientation, 30, 40):
                assert 0 <= one.code < classes
                assert decode(one.counts, 30, 40).shape == (30, 40)
                assert np.isfinite([one.area, *one.box]).all()
    if source.problems:  # as for an ingest that does not skip them
        raise problem_error(source.problems)


PLACES: dict[str, tuple[tuple[str, str], str]] = {
    "COCO polygons": (("photos", "instances.json"), "coco"),
    "COCO compressed run lengths": (("photos", "instances.json"), "coco"),
    "COCO run lengths": (("photos", "instances.json"), "coco"),
    "COCO panoptic": (("photos", "panoptic.json"), "coco-panoptic"),
    "YOLO root": (("", ""), "yolo"),
    "YOLO two folders, classes.txt": (("images", "labels"), "yolo"),
    "VOC folders and lists": (("JPEGImages", ""), "voc"),
    "CVAT masks 1.1, labelmap": (("JPEGImages", ""), "voc"),
    "CVAT both": (("photos", "annotations.xml"), "cvat"),
    "LabelMe polygons": (("photos", "json"), "labelme"),
    "LabelMe masks": (("photos", "json"), "labelme"),
    "Label Studio brushes": (("photos", "export.json"), "label-studio"),
    "Label Studio polygons": (("photos", "export.json"), "label-studio"),
}
"""{layout: (photos and masks, within its folder), format}."""

PHOTO = draw(0, 40, 56)[0]
DEEP = PHOTO.astype(np.uint16) * 257


def write_pictures(folder: Path) -> list[Path]:
    """Photos of 8 bits as Pillow writes them."""
    exif = Image.Exif()
    exif[274] = 6
    image = Image.fromarray(PHOTO)
    image.save(folder / "photo.jpg", exif=exif)
    image.convert("CMYK").save(folder / "inks.jpg")
    image.convert("RGBA").save(folder / "alpha.png")
    image.quantize(16).save(folder / "palette.gif")
    image.save(folder / "photo.webp")
    image.save(folder / "photo.bmp")
    return sorted(folder.iterdir())


def write_deep_pictures(folder: Path) -> list[Path]:
    """PNGs and TIFFs of more than 8 bits, in strips and tiles."""
    write_deep(folder / "deep.png", DEEP)
    write_deep(folder / "strips.tif", DEEP, compression="zlib", rowsperstrip=8)
    write_deep(folder / "tiles.tif", DEEP, tile=(16, 16))
    planar = {"photometric": "minisblack", "planarconfig": "separate"}
    tifffile.imwrite(folder / "planar.tif", np.moveaxis(DEEP / np.float32(9), 2, 0), **planar)
    Image.fromarray(PHOTO).save(folder / "plain.tif", compression="tiff_lzw")
    return sorted(folder.iterdir())


def write_dicom(folder: Path) -> list[Path]:
    save_dicom(folder / "grey.dcm", DEEP[..., 0], RescaleSlope=1, RescaleIntercept=-1024)
    save_dicom(folder / "colour.dcm", PHOTO)
    save_dicom(folder / "frames.dcm", np.moveaxis(DEEP, 2, 0), NumberOfFrames=3)
    return sorted(folder.iterdir())


def write_nifti(folder: Path) -> list[Path]:
    volume = np.moveaxis(DEEP, 2, 0)
    save_nifti(folder / "plain.nii", volume)
    save_nifti(folder / "packed.nii.gz", volume.astype(np.int16), "LPS", slope=0.5)
    return sorted(folder.iterdir())


def read_photos(folder: Path) -> None:
    """Survey and read all photos of a folder, whole and in tiles."""
    names = find_images(folder)
    own = survey_photos([str(folder / name) for name in names], PhotoFormat()).photo_format
    for name in names:
        size = read_orientation(folder / name)
        photo = read_photo(folder / name, 32, own)
        assert photo.pixels.shape[2] == 3
        assert photo.pixels.dtype == np.uint8
        assert (photo.orientation.height, photo.orientation.width) == (size.height, size.width)
        *_, (_, _, tile) = cut_scene(size.height, size.width, 24, 4)
        part = read_photo(join_address(folder / name, tile), 32, own).pixels
        assert part.shape == (tile.height, tile.width, 3)


def write_masks(folder: Path) -> list[Path]:
    """Masks of each kind, and their photos, which are not corrupted."""
    codes = (draw(0, 40, 56)[1] * 2).astype(np.uint8)
    codes[:4] = 1
    masks = {"a": Image.fromarray(codes), "b": Image.fromarray(codes.astype(np.uint16))}
    masks["c"] = Image.fromarray(codes)
    masks["c"].putpalette([0, 0, 0, 9, 9, 9, 255, 0, 0])
    masks["d"] = Image.fromarray(TABLE[codes])
    (folder / "photos").mkdir()
    (folder / "masks").mkdir()
    for name, mask in masks.items():
        Image.fromarray(PHOTO).save(folder / "photos" / f"{name}.jpg")
        mask.save(folder / "masks" / f"{name}.{'tif' if name == 'b' else 'png'}")
    lines = (f"{code},{','.join(map(str, TABLE[code]))},class{code}" for code in range(3))
    (folder / "classes.txt").write_text("\n".join(lines))
    return [*sorted((folder / "masks").iterdir()), folder / "classes.txt"]


TABLE = np.array([[0, 0, 0], [0, 128, 0], [255, 0, 0]], dtype=np.uint8)


def read_masks(folder: Path) -> None:
    """Check and read all masks of a folder, as an ingest does."""
    options = MaskOptions(format="masks", classes=str(folder / "classes.txt"))
    source = open_source(folder / "photos", folder / "masks", options)
    check_masks(source, "raise")
    for item in source.items:
        codes = item.mask.read(read_orientation(item.pair.image))
        assert codes.shape == PHOTO.shape[:2]
        assert ((codes < len(source.mask_format.names)) | (codes == VOID)).all()


READERS: dict[str, FuzzReader] = {
    layout: FuzzReader(partial(write_layout, layout), partial(read_layout, layout))
    for layout in PLACES
}
READERS |= {
    "photos": FuzzReader(write_pictures, read_photos),
    "deep photos": FuzzReader(write_deep_pictures, read_photos),
    "masks": FuzzReader(write_masks, read_masks),
    "DICOM": FuzzReader(write_dicom, read_photos),
    "NIfTI": FuzzReader(write_nifti, read_photos),
}
READERS |= {name: FuzzReader(*pair) for name, pair in STORES.items()}
"""Readers by name. To add one, write correct files and read them."""
