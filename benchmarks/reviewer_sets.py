"""Sets for ``reviewer.py``: photos with true masks, of which some are replaced by wrong ones.

The errors are ones that annotators make again and again, so that they mislead a model: random
errors hardly do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from experiments import JITTER, WRONG_SHARE
from ranking_errors import STREET_VOID, dilate
from ranking_sets import (
    SETS,
    STREET_CLASSES,
    Job,
    SetKind,
    cut_horses,
    photos_in,
    read_object,
    read_values,
    save_mask,
)
from scipy import ndimage
from second_look import SMALL

from gpgc_dask import Recipe, connect, ingest, open_dataset, update
from gpgc_dask.imaging.masks import VOID

__all__ = ["KINDS", "Original", "ReviewSet", "prepare"]

WRONG_MASKS = 0.5
"""Share of the street scenes and of the medical photos with a wrong mask."""

TEST_SHARE = 0.3
OMITTED = ("pole", "sign", "pedestrian", "bicyclist")


def omit(mask: np.ndarray) -> np.ndarray:
    """Without the small things: their pixels have the class of the nearest other pixel."""
    small = np.isin(mask, [STREET_CLASSES.index(name) for name in OMITTED])
    nearest = ndimage.distance_transform_edt(
        small | (mask == STREET_VOID), return_distances=False, return_indices=True
    )
    return np.where(small, mask[tuple(nearest)], mask)


def enlarge(mask: np.ndarray) -> np.ndarray:
    return dilate(mask, np.random.default_rng(0))


@dataclass(frozen=True)
class Kind:
    """Photos, what is wrong with the masks, and which masks a reviewer should find."""

    name: str
    errors: str
    wrong: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def set(self) -> SetKind:
        return SETS[self.name]

    @property
    def score(self) -> str:
        return "mean IoU" if self.set.classes else "average class accuracy"


KINDS = {
    "horses": Kind(
        "horses",
        f"all masks made by GrabCut from inaccurate boxes ({100 * WRONG_SHARE:.0f} % of them in a "
        f"wrong place, the others moved by up to {100 * JITTER:.0f} %); those with a true IoU "
        "below 0.5 are to be found",
    ),
    "street": Kind(
        "street",
        f"in half of the frames, {', '.join(OMITTED[:-1])} and {OMITTED[-1]} are omitted: their "
        "pixels have the class of what is next to them",
        omit,
    ),
    "medical": Kind(
        "medical",
        "half of the masks are drawn too large, by 5 % of the side of the photo",
        enlarge,
    ),
}


@dataclass(frozen=True)
class Original:
    """All photos of a set with their true masks, of which features are computed once.

    The folder has images/, masks/ (true ones) and data.zarr; ``tests`` are the names of photos
    that belong to a test set of their own, if there is one.
    """

    kind: Kind
    folder: Path
    source: Path
    small: bool
    tests: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, folder: Path, place: Path, small: bool) -> Original:
        kind, tests = KINDS[name], set[str]()
        source = folder / kind.set.folder
        parts = [(source / "images", source / "masks")]
        if name == "horses":
            parts = [(source / "train/images", source / "train/truth")]
            if not small:
                parts.append((source / "test/images", source / "test/masks"))
                tests = {photo.name for photo in photos_in(source / "test/images")}
        for images, masks in parts:
            for photo in photos_in(images):
                link(photo, place / "images" / photo.name)
                link(masks / f"{photo.stem}.png", place / "masks" / f"{photo.stem}.png")
        recipe = Recipe(**SMALL) if small else Recipe()
        ingest(
            place / "images",
            place / "masks",
            place / "data.zarr",
            recipe=recipe,
            masks_as=kind.set.options,
        )
        return cls(kind, place, source, small, frozenset(tests))

    def split(self, seed: int) -> tuple[list[Path], list[Path]]:
        """Photos to review, and test photos: a video, or a share of the photos, by the seed."""
        photos = photos_in(self.folder / "images")
        tests = self.tests
        if self.kind.name == "street":
            videos = sorted({photo.name.split("_")[0] for photo in photos})
            video = videos[seed % len(videos)]
            tests = {photo.name for photo in photos if photo.name.split("_")[0] == video}
        elif not tests:
            order = np.random.default_rng([seed, 5]).permutation(len(photos))
            tests = {photos[n].name for n in order[: round(TEST_SHARE * len(photos))]}
        return (
            [photo for photo in photos if photo.name not in tests],
            [photo for photo in photos if photo.name in tests],
        )


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.resolve())


@dataclass(frozen=True)
class ReviewSet:
    """Folders train/masks, train/truth and test/masks of a set and seed."""

    original: Original
    folder: Path
    seed: int

    @property
    def kind(self) -> Kind:
        return self.original.kind

    def read(self, path: Path) -> np.ndarray:
        return read_values(path) if self.kind.set.classes else read_object(path)

    def codes(self, path: Path) -> np.ndarray:
        mask = self.read(path)
        return np.where(mask == STREET_VOID, VOID, mask) if self.kind.set.classes else mask

    def write(self) -> None:
        """Write the masks."""
        train, tests = self.original.split(self.seed)
        truth = self.original.folder / "masks"
        for part, photos in (("train", train), ("test", tests)):
            for photo in photos:
                mask = f"{photo.stem}.png"
                name = "truth" if part == "train" else "masks"
                link(truth / mask, self.folder / part / name / mask)
        masks = self.folder / "train/masks"
        if self.kind.wrong is None:
            self._cut(masks, train)
            return
        masks.mkdir()
        rng = np.random.default_rng([self.seed, 7])
        wrong = set(rng.permutation(len(train))[: round(WRONG_MASKS * len(train))].tolist())
        for number, photo in enumerate(train):
            mask = read_values(truth / f"{photo.stem}.png")
            if number in wrong:
                values = self.read(truth / f"{photo.stem}.png")
                mask = self.kind.wrong(values) * (1 if self.kind.set.classes else 255)
            save_mask(mask, masks / f"{photo.stem}.png")

    def _cut(self, masks: Path, train: list[Path]) -> None:
        """The given masks of the horses for seed 0, those by other boxes for other seeds."""
        if self.seed:
            source = self.original.source
            cut_horses(Job(source, masks.parent, self.seed, 0.0, connect), masks)
            return
        for photo in train:
            link(
                self.original.source / "train/masks" / f"{photo.stem}.png",
                masks / f"{photo.stem}.png",
            )

    def open(self) -> tuple[Path, xr.Dataset, xr.Dataset]:
        """Path of the dataset to review, the same with true masks, and the test photos."""
        found = []
        for name, part, masks in (
            ("data", "train", "masks"),
            ("clean", "train", "truth"),
            ("test", "test", "masks"),
        ):
            target = self.original.folder / f"{name}-{self.seed}.zarr"
            shutil.copytree(self.original.folder / "data.zarr", target)
            # Photos without a mask are left out.
            update(target, self.original.folder / "images", self.folder / part / masks, prune=True)
            found.append(target)
        return found[0], open_dataset(found[1]), open_dataset(found[2])

    def qualities(self, names: list[str]) -> np.ndarray:
        """True quality of the given masks."""
        return np.array([self.kind.set.quality(*self._masks(name)) for name in names])

    def is_wrong(self, names: list[str]) -> np.ndarray:
        """Whether a given mask is to be found: it is bad, or one that was made wrong."""
        if self.kind.wrong is None:
            return self.qualities(names) < 0.5
        return np.array([bool(np.any(given != truth)) for given, truth in map(self._masks, names)])

    def _masks(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        train, file = self.folder / "train", f"{Path(name).stem}.png"
        return self.read(train / "masks" / file), self.read(train / "truth" / file)


def prepare(original: Original, place: Path, seed: int) -> ReviewSet:
    """Write the folders of a seed."""
    own = ReviewSet(original, place, seed)
    own.write()
    return own
