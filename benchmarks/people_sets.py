"""Annotators, answers and videos made of true masks, for ``people.py``.

Features do not depend on masks. So photos and true masks are ingested once, and each seed replaces
the masks of the dataset in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from ranking_errors import MEDICAL, STREET, STREET_VOID, large_classes, move, shift_scene
from ranking_sets import STREET_CLASSES, read_object, read_values
from scipy import ndimage

from gpgc_dask import GPGC, MaskOptions, Recipe, RunOptions, ingest, open_dataset
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.schema import VOID
from gpgc_dask.experiments.ranking_quality import mask_iou
from gpgc_dask.imaging.features import PhotoFeatures, PhotoLabels, label
from gpgc_dask.imaging.photos import Orientation

Corruption = Callable[[np.ndarray, np.random.Generator], np.ndarray]

PEOPLE, CARELESS = 10, 3
ERRORS = {True: 0.5, False: 0.1}
"""Share of masks with an error, of careless annotators and of the others."""

SMALL = 0.03
"""Errors of careful annotators: shifts by this share of the side."""

ANSWERS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""IoU of the answers for a photo, about."""

RUN = 5
"""Consecutive frames of a video that get the same error."""


@dataclass(frozen=True)
class SetKind:
    """A folder of photos with true masks.

    Attributes
    ----------
    images, masks : str
        Folders.
    title : str
    errors : mapping of str to callable
        Large errors of masks.
    classes : mapping of int to str
        Empty for one object on a background.
    """

    images: str
    masks: str
    title: str
    errors: Mapping[str, Corruption]
    classes: Mapping[int, str]

    @property
    def options(self) -> MaskOptions:
        void = (STREET_VOID,) if self.classes else ()
        return MaskOptions(classes=self.classes, void=void)

    @property
    def n_classes(self) -> int:
        return len(self.classes) or 2

    def read(self, path: Path) -> np.ndarray:
        """Class codes of a mask file; void is 255."""
        if not self.classes:
            return read_object(path)
        values = read_values(path)
        return np.where(values == STREET_VOID, VOID, values).astype(np.uint8)

    def corrupt(self, mask: np.ndarray, kind: Corruption, rng: np.random.Generator) -> np.ndarray:
        """Apply an error, which takes void as the files have it."""
        if not self.classes:
            return kind(mask, rng)
        result = kind(np.where(mask == VOID, STREET_VOID, mask), rng)
        return np.where(result == STREET_VOID, VOID, result).astype(np.uint8)


KINDS = {
    "street": SetKind(
        "camvid/images",
        "camvid/masks",
        "street scenes",
        STREET,
        dict(enumerate(STREET_CLASSES)),
    ),
    "horses": SetKind("horses/train/images", "horses/train/truth", "horses", MEDICAL, {}),
}


def small_shift(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move a mask a little."""
    angle = rng.uniform(0, 2 * np.pi)
    step = np.rint(SMALL * np.array(mask.shape) * (np.sin(angle), np.cos(angle))).astype(int)
    moved = move(mask, *step.tolist(), edge=True)
    return np.where((mask == STREET_VOID) | (moved == STREET_VOID), mask, moved)


@dataclass(frozen=True)
class TrueSet:
    """A dataset of true masks in memory.

    Attributes
    ----------
    kind : SetKind
    dataset : xarray.Dataset
        Features, superpixels and true masks.
    truth : list of (height, width) array
        True masks at the photos' own size.
    """

    kind: SetKind
    dataset: xr.Dataset
    truth: list[np.ndarray]

    @property
    def names(self) -> list[str]:
        return text_values(self.dataset["image_name"]).tolist()

    def with_masks(self, masks: Sequence[np.ndarray], **about: Sequence[str]) -> xr.Dataset:
        """The dataset with other masks, and with groups or annotators."""
        data = self.dataset
        mask = data["mask"].values.copy()
        labels = []
        for photo, codes in enumerate(masks):
            own = relabel(data, photo, codes, self.kind.n_classes)
            height, width = own.mask.shape
            mask[photo, :height, :width] = own.mask
            labels.append(own)
        changed = {
            "label": ("superpixel", np.concatenate([own.label for own in labels])),
            "weight": ("superpixel", np.concatenate([own.weight for own in labels])),
            "mask": (("photo", "y", "x"), mask),
            "flags": ("photo", np.array([";".join(own.flags) for own in labels], dtype=object)),
            **{name: ("photo", np.array(list(v), dtype=object)) for name, v in about.items()},
        }
        return data.assign(changed)


def relabel(data: xr.Dataset, photo: int, codes: np.ndarray, n_classes: int) -> PhotoLabels:
    """Labels of the superpixels of a photo by another mask."""
    height, width = (int(data[f"segment_{side}"].values[photo]) for side in ("height", "width"))
    segments = data["segments"].values[photo, :height, :width]
    n = int((data["image"].values == photo).sum())
    size = Orientation(*codes.shape, codes.shape)
    return label(PhotoFeatures(np.empty((n, 0)), segments, {}, size), codes, n_classes)


def ingest_truth(kind: SetKind, folder: Path, place: Path, recipe: Recipe) -> TrueSet:
    """Ingest the photos and true masks of a set."""
    target = place / f"{kind.title.replace(' ', '-')}.zarr"
    ingest(
        folder / kind.images,
        folder / kind.masks,
        target,
        recipe=recipe,
        masks_as=kind.options,
        run=RunOptions(resume=target.exists()),
    )
    dataset = open_dataset(target).load()
    truth = [kind.read(Path(path)) for path in text_values(dataset["mask_path"])]
    return TrueSet(kind, dataset, truth)


# -- people -------------------------------------------------------------------------------------


def measure_ease(true: TrueSet) -> np.ndarray:
    """How well each photo is predicted by a model of true masks: low where it is difficult."""
    model = GPGC().fit(true.dataset)
    return model.review(true.dataset)["agreement"].fillna(0.0).to_numpy()


def assign_people(ease: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(photos,) number of each photo's annotator; the first CARELESS get the easier photos.

    The difficult half of the photos goes to careful annotators only, and the easy half to all, the
    careless ones first.
    """
    n = ease.size
    counts = np.bincount(np.arange(n) % PEOPLE, minlength=PEOPLE)
    easy = rng.permutation(np.argsort(-ease, kind="stable")[: n // 2])
    n_careless = int(counts[:CARELESS].sum())
    who = np.empty(n, dtype=np.intp)
    who[easy[:n_careless]] = rng.permutation(np.repeat(np.arange(CARELESS), counts[:CARELESS]))
    rest = np.setdiff1d(np.arange(n), easy[:n_careless])
    others = np.repeat(np.arange(CARELESS, PEOPLE), counts[CARELESS:])
    who[rest] = rng.permutation(others)
    return who


def draw_people(
    true: TrueSet, ease: np.ndarray, rng: np.random.Generator
) -> tuple[xr.Dataset, np.ndarray]:
    """Masks by annotators with errors, and who (photos,) drew them; the first are careless."""
    who = assign_people(ease, rng)
    masks = list(true.truth)
    large = list(true.kind.errors.values())
    for person in range(PEOPLE):
        careless = person < CARELESS
        own = rng.permutation(np.flatnonzero(who == person))
        for photo in own[: round(ERRORS[careless] * own.size)]:
            kind = large[int(rng.integers(len(large)))] if careless else small_shift
            masks[photo] = true.kind.corrupt(masks[photo], kind, rng)
    names = rng.permutation(PEOPLE)  # so that no order depends on who is careless
    annotators = [f"annotator {names[person]}" for person in who]
    return true.with_masks(masks, annotator=annotators), names


# -- videos -------------------------------------------------------------------------------------


def draw_videos(
    true: TrueSet, share: float, rng: np.random.Generator
) -> tuple[xr.Dataset, np.ndarray]:
    """Frames of which some runs have the same error, with runs as groups; which are corrupted."""
    videos = [name.split("_")[0] for name in true.names]
    groups, position = [], 0
    for number, video in enumerate(videos):
        position = 0 if number and video != videos[number - 1] else position
        groups.append(f"{video} {position // RUN:04d}")
        position += 1
    runs = sorted(set(groups))
    bad = set(rng.permutation(runs)[: round(share * len(runs))].tolist())
    masks, corrupted = list(true.truth), np.array([group in bad for group in groups])
    for group in sorted(bad):
        own = [number for number, each in enumerate(groups) if each == group]
        error = common_error([true.truth[number] for number in own], rng)
        for number in own:
            masks[number] = true.kind.corrupt(masks[number], error, np.random.default_rng(0))
    return true.with_masks(masks, group=groups), corrupted


def common_error(masks: Sequence[np.ndarray], rng: np.random.Generator) -> Corruption:
    """One error that all frames of a run get: the same class dropped, the same two swapped."""
    merged = np.concatenate([mask.ravel() for mask in masks])
    first, others = large_classes(np.where(merged == VOID, STREET_VOID, merged))
    if not others:
        return shift_scene
    one = int(rng.choice(others))
    if rng.random() < 0.5:
        return lambda mask, _: np.where(mask == one, first, mask)
    two = int(rng.choice([code for code in (first, *others) if code != one]))
    return lambda mask, _: np.where(mask == one, two, np.where(mask == two, one, mask))


# -- answers ------------------------------------------------------------------------------------


def draw_answers(
    true: TrueSet, photos: np.ndarray, rng: np.random.Generator
) -> tuple[xr.Dataset, list[list[np.ndarray]], np.ndarray]:
    """Several answers per photo, of known IoU.

    Returns
    -------
    dataset : xarray.Dataset
        One image per answer; features are those of the photo.
    answers : list of list of (height, width) array
        Answers of each photo.
    iou : (photos, answers) array
        Their IoU with the true mask.
    """
    answers, iou = [], []
    for photo in photos:
        targets = rng.permutation(ANSWERS) + rng.uniform(-0.03, 0.03, len(ANSWERS))
        own = [draw_answer(true.truth[photo], target, rng) for target in targets]
        answers.append(own)
        iou.append([mask_iou(mask, true.truth[photo], 2) for mask in own])
    copies = repeat_photos(true.dataset, photos, len(ANSWERS))
    stacked = TrueSet(true.kind, copies, [])
    return stacked.with_masks([mask for own in answers for mask in own]), answers, np.array(iou)


def repeat_photos(data: xr.Dataset, photos: np.ndarray, times: int) -> xr.Dataset:
    """The dataset with each of some photos as often as it has answers."""
    image = data["image"].values
    first, last = (np.searchsorted(image, photos, side=side) for side in ("left", "right"))
    spans = [np.arange(a, b) for a, b in zip(first, last, strict=True) for _ in range(times)]
    entries = np.repeat(photos, times)
    names = text_values(data["image_name"])[entries]
    answer = np.arange(entries.size) % times
    texts = {
        "image_name": [f"{name}/{number}" for name, number in zip(names, answer, strict=True)],
        "photo_name": names,
        "group": names,
    }
    number = np.repeat(np.arange(entries.size), [span.size for span in spans]).astype(np.int32)
    return data.isel(photo=entries, superpixel=np.concatenate(spans)).assign(
        image=("superpixel", number),
        **{name: ("photo", np.array(list(v), dtype=object)) for name, v in texts.items()},
    )


def draw_answer(truth: np.ndarray, target: float, rng: np.random.Generator) -> np.ndarray:
    """An answer with about the target IoU: an error of a random kind, as strong as needed."""
    kinds = [_shifted, _grown, _shrunk, _cut, _boxed]
    kind = kinds[int(rng.integers(len(kinds)))]
    angle = rng.uniform(0, 2 * np.pi)
    low, high, best = 0.0, 1.0, truth
    for _ in range(12):
        middle = (low + high) / 2
        drawn = kind(truth, middle, angle)
        iou = mask_iou(drawn, truth, 2)
        if abs(iou - target) < abs(mask_iou(best, truth, 2) - target):
            best = drawn
        low, high = (middle, high) if iou > target else (low, middle)
    return best


def _shifted(mask: np.ndarray, strength: float, angle: float) -> np.ndarray:
    step = np.rint(strength * np.array(mask.shape) * (np.sin(angle), np.cos(angle))).astype(int)
    return move(mask, *step.tolist())


def _grown(mask: np.ndarray, strength: float, angle: float) -> np.ndarray:
    near = ndimage.distance_transform_edt(mask == 0) <= strength * max(mask.shape) / 2
    return near.astype(mask.dtype)


def _shrunk(mask: np.ndarray, strength: float, angle: float) -> np.ndarray:
    depth = ndimage.distance_transform_edt(mask)
    return (depth > strength * depth.max()).astype(mask.dtype)


def _half(mask: np.ndarray, angle: float) -> np.ndarray:
    """Position of each pixel along a direction, 0 to 1 within the object."""
    y, x = np.indices(mask.shape)
    along = np.sin(angle) * y + np.cos(angle) * x
    own = along[mask > 0]
    return (along - own.min()) / max(np.ptp(own), 1e-9)


def _cut(mask: np.ndarray, strength: float, angle: float) -> np.ndarray:
    """A part of the object is missing."""
    return (mask & (_half(mask, angle) >= strength)).astype(mask.dtype)


def _boxed(mask: np.ndarray, strength: float, angle: float) -> np.ndarray:
    """A part of the object is its box."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box = np.zeros_like(mask)
    box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = 1
    return np.where(_half(mask, angle) < strength, box, mask).astype(mask.dtype)
