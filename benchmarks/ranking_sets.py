"""Sets of photos with masks of known quality, for ``ranking.py``.

Every set is made from a folder of photos with true masks. The given masks are true masks, some of
which are corrupted in pixels, at the photo's own size; those of the horses are made by GrabCut.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from experiments import JITTER, WRONG_SHARE, true_box, wrong_box
from PIL import Image
from pycocotools import mask as run_lengths
from ranking_errors import (
    CATEGORIES,
    COCO,
    GROWTH,
    MEDICAL,
    MIN_SHARE,
    SHIFT,
    STREET,
    STREET_VOID,
    Corruption,
    Region,
    choose_kinds,
    corrupt,
    corrupt_regions,
    paint_regions,
)

from gpgc_dask import MaskOptions, RunOptions
from gpgc_dask.demo.folders import write_set
from gpgc_dask.demo.scenes import draw_scene
from gpgc_dask.experiments.ranking_quality import mask_iou
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.pipelines.autoseg import autoseg

STREET_CLASSES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian",
    "bicyclist",
)  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A photo, its given and its true mask (height, width), and the kind of error ("": none)."""

    photo: Path
    given: np.ndarray
    truth: np.ndarray
    kind: str = ""


@dataclass(frozen=True)
class Job:
    """What a set is made from.

    Attributes
    ----------
    folder : Path
        Folder of the photos and true masks.
    place : Path
        Folder of the new set.
    seed : int
    share : float
        Share of the masks to corrupt.
    cluster : callable
        Context in which many photos are processed.
    """

    folder: Path
    place: Path
    seed: int
    share: float
    cluster: Callable[[], AbstractContextManager[Any]]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of its own for each set: equal shuffles would correlate with others."""
        return np.random.default_rng([self.seed, crc32(self.folder.name.encode())])


@dataclass(frozen=True)
class SetKind:
    """How one of the sets is made, and how it is described.

    Attributes
    ----------
    folder : str
        Subfolder of the photos.
    title, errors : str
        Name of the set, and what is wrong with its masks.
    make : callable
        From a job to examples.
    share : float
        Share of the masks that are corrupted; 0 if they are not corrupted here.
    classes : mapping of int to str
        Value and name of each class; empty for one object on a background.
    void : int, optional
        Value of pixels that belong to no class.
    """

    folder: str
    title: str
    errors: str
    make: Callable[[Job], Iterator[Example]]
    share: float = 0.0
    classes: Mapping[int, str] = field(default_factory=dict)
    void: int | None = None

    @property
    def n_classes(self) -> int:
        return len(self.classes) or 2

    @property
    def options(self) -> MaskOptions:
        return MaskOptions(classes=self.classes, void=() if self.void is None else (self.void,))

    def quality(self, given: np.ndarray, truth: np.ndarray) -> float:
        """IoU of the object, or mean IoU over the classes that occur; void does not count."""
        if self.void is not None:
            given, truth = (np.where(mask == self.void, VOID, mask) for mask in (given, truth))
        return mask_iou(given, truth, self.n_classes)


def write_examples(kind: SetKind, job: Job) -> pd.DataFrame:
    """Write images/ and masks/ of a set, and return what is known about its masks.

    Returns
    -------
    pandas.DataFrame
        One row per photo: ``image``, ``kind`` (of error), ``quality`` (true, 0 to 1) and ``empty``.
    """
    for name in ("images", "masks"):
        shutil.rmtree(job.place / name, ignore_errors=True)
        (job.place / name).mkdir(parents=True)
    rows = []
    for one in kind.make(job):
        shutil.copy(one.photo, job.place / "images" / one.photo.name)
        path = job.place / "masks" / f"{one.photo.stem}.png"
        Image.fromarray(one.given.astype(np.uint8)).save(path)
        rows.append(
            {
                "image": one.photo.name,
                "kind": one.kind,
                "quality": kind.quality(one.given, one.truth),
                "empty": kind.n_classes == 2 and not one.given.any(),
            }
        )
    return pd.DataFrame(rows)


# -- sets --------------------------------------------------------------------------------------


def read_values(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("L"))


def read_object(path: Path) -> np.ndarray:
    return (read_values(path) > 0).astype(np.uint8)


def photos_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".jpeg", ".png"))


def corrupt_folder(
    job: Job, kinds: Mapping[str, Corruption], read: Callable[[Path], np.ndarray]
) -> Iterator[Example]:
    """Examples of a folder with images/ and true masks/, some of which are corrupted."""
    photos, rng = photos_in(job.folder / "images"), job.rng
    for photo, kind in zip(
        photos, choose_kinds(len(photos), job.share, list(kinds), rng), strict=True
    ):
        truth = read(job.folder / "masks" / f"{photo.stem}.png")
        given = truth
        if kind:
            given, kind = corrupt(truth, kind, kinds, rng)
        yield Example(photo, given, truth, kind)


def make_medical(job: Job) -> Iterator[Example]:
    return corrupt_folder(job, MEDICAL, read_object)


def make_street(job: Job) -> Iterator[Example]:
    return corrupt_folder(job, STREET, read_values)


def make_horses(job: Job) -> Iterator[Example]:
    """The given masks for seed 0; for others, masks by GrabCut from boxes of that seed."""
    train = job.folder / "train"
    masks = train / "masks"
    if job.seed:
        masks = job.place / "grabcut"
        cut_horses(job, masks)
    for photo in photos_in(train / "images"):
        given, truth = (
            read_object(folder / f"{photo.stem}.png") for folder in (masks, train / "truth")
        )
        yield Example(photo, given, truth)


def cut_horses(job: Job, target: Path) -> None:
    """Masks by GrabCut from jittered boxes, some of them in a wrong place."""
    train, boxes, rng = job.folder / "train", {}, job.rng
    for photo in photos_in(train / "images"):
        truth = read_object(train / "truth" / f"{photo.stem}.png")
        box = true_box(truth)
        is_wrong = rng.random() < WRONG_SHARE
        boxes[photo.name] = [wrong_box(box, truth.shape, rng) if is_wrong else box]
    with job.cluster() as client:
        run = RunOptions(client=client, overwrite=True)
        autoseg(train / "images", boxes, target, jitter=JITTER, seed=job.seed, run=run)


# -- COCO --------------------------------------------------------------------------------------


def read_regions(folder: Path) -> dict[str, tuple[list[Region], tuple[int, int]]]:
    """{photo: (regions, size)} of the photos with one of the most common categories."""
    content = json.loads((folder / "instances.json").read_text())
    shown = {(one["category_id"], one["image_id"]) for one in content["annotations"]}
    counts = Counter(category for category, _ in sorted(shown))
    common = sorted(counts, key=lambda category: (-counts[category], category))[:CATEGORIES]
    codes = {category: code for code, category in enumerate(common, start=1)}
    found: dict[str, tuple[list[Region], tuple[int, int]]] = {}
    images = {image["id"]: image for image in content["images"]}
    for one in content["annotations"]:
        if one["category_id"] in codes:
            image = images[one["image_id"]]
            size = (image["height"], image["width"])
            regions, _ = found.setdefault(image["file_name"], ([], size))
            inside = decode_region(one["segmentation"], size)
            regions.append(Region(inside, codes[one["category_id"]], float(one["area"])))
    return found


def decode_region(segmentation: Any, size: tuple[int, int]) -> np.ndarray:
    """Pixels (height, width) of polygons or of run lengths, compressed or not."""
    if isinstance(segmentation, list):
        encoded = run_lengths.merge(run_lengths.frPyObjects(segmentation, *size))
    elif isinstance(segmentation["counts"], list):
        encoded = run_lengths.frPyObjects(segmentation, *size)
    else:
        encoded = segmentation
    return run_lengths.decode(encoded).astype(bool)


def make_coco(job: Job) -> Iterator[Example]:
    found, rng = read_regions(job.folder), job.rng
    names = sorted(found)
    kinds = choose_kinds(len(names), job.share, COCO, rng)
    for name, kind in zip(names, kinds, strict=True):
        regions, size = found[name]
        truth = paint_regions(regions, size)
        given = corrupt_regions(regions, truth, kind, rng) if kind else truth
        yield Example(job.folder / "images" / name, given, truth, kind)


STEP, GROWN = f"{100 * SHIFT:.0f} % of the side", f"{100 * GROWTH:.0f} % of the side"

SETS = {
    "horses": SetKind(
        "horses",
        "Horses",
        "masks made by GrabCut from inaccurate boxes; bad masks are those with a true IoU below "
        "0.5. The seeds differ in the boxes; the photos are the same",
        make_horses,
    ),
    "street": SetKind(
        "camvid",
        "Street scenes",
        "11 classes, a quarter of the frames corrupted: the pixels of a class become the most "
        "common class (drop), two classes are exchanged (swap; both kinds affect classes with at "
        f"least {100 * MIN_SHARE:.0f} % of the pixels only), or all labels are moved by {STEP} "
        "(shift)",
        make_street,
        0.25,
        dict(enumerate(STREET_CLASSES)),
        STREET_VOID,
    ),
    "medical": SetKind(
        "kvasir",
        "Medical photos",
        f"one object, 30 % of the masks corrupted: moved by {STEP} (shift), grown by {GROWN} "
        "(dilate), replaced by their bounding box (box), empty, or moved to a place that hardly "
        "overlaps the true one (wrong place)",
        make_medical,
        0.3,
    ),
    "coco": SetKind(
        "coco",
        "COCO",
        f"the {CATEGORIES} categories that occur in the most images, and background; in a quarter "
        "of the images one annotation, chosen with a probability proportional to its area, is "
        f"moved by {STEP} (shifted), gets another category (wrong category) or is deleted",
        make_coco,
        0.25,
        {0: "background"} | {code: f"category {code}" for code in range(1, CATEGORIES + 1)},
    ),
}
CLEAN = ("street", "medical")
"""Sets that are also used with no corrupted mask."""


# -- a small folder ----------------------------------------------------------------------------


def draw_folder(folder: Path, n: int = 12, height: int = 60, width: int = 80) -> None:
    """Draw a folder with small sets of the same structure, to check that the script runs."""
    write_set(folder / "horses/train", n)
    for name in ("camvid", "kvasir", "coco"):
        (folder / name / "images").mkdir(parents=True)
    for name in ("camvid", "kvasir"):
        (folder / name / "masks").mkdir()
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(n):
        scene = draw_scene(number, height, width)
        street = np.where(np.arange(height)[:, None] < height // 3, 0, 3) + 0 * scene.mask
        street[scene.other], street[scene.mask], street[:, :2] = 1, 8, STREET_VOID
        for name in ("camvid", "kvasir", "coco"):
            Image.fromarray(scene.photo).save(folder / f"{name}/images/{number:03d}.jpg")
        save_mask(street, folder / f"camvid/masks/{number:03d}.png")
        save_mask(255 * scene.mask, folder / f"kvasir/masks/{number:03d}.png")
        file = {"id": number, "file_name": f"{number:03d}.jpg", "height": height, "width": width}
        images.append(file)
        sky = [[0, 0, width, 0, width, height // 4, 0, height // 4]]
        things = {1: encode(scene.mask), 2: encode(scene.other), 3: sky}
        areas = {1: scene.mask.sum(), 2: scene.other.sum(), 3: width * (height // 4)}
        annotations += [
            {"image_id": number, "category_id": c, "segmentation": s, "area": int(areas[c])}
            for c, s in things.items()
        ]
    for number, annotation in enumerate(annotations):
        annotation["id"] = number
    categories = [{"id": c, "name": name} for c, name in enumerate(("animal", "thing", "sky"), 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "coco/instances.json").write_text(json.dumps(content))


def save_mask(mask: np.ndarray, path: Path) -> None:
    Image.fromarray(mask.astype(np.uint8)).save(path)


def encode(mask: np.ndarray) -> dict[str, Any]:
    encoded = run_lengths.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(mask.shape), "counts": encoded["counts"].decode()}
