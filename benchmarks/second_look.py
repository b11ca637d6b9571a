"""What the second look is worth: predicted masks of fits with 0, 1 and 2 rounds.

Takes a folder with ``horses`` (train/images, train/masks, train/truth, test/images, test/masks) and
``camvid`` (images, masks; the part of a name before ``_`` is its video), or draws photos. Horses:
fitted to unreliable masks, and to true ones for comparison; average class accuracy in pixels of the
test photos. Street scenes: seed s leaves out video s, modulo the number of videos. A third of the
frames of the other videos are corrupted as in ``ranking.py``; mean IoU on the frames of the video
left out. Logistic regressions (LR) are fitted to the same rows; they choose the most likely class
or, much as GPGC does with more than two classes, the one with the largest probability P divided by
the square root of its frequency π. ``--other PYTHON`` runs the commands ``ingest``, ``fit`` and
``predict`` of another installation with its own defaults. All masks are written as PNGs in the size
of the photos, and compared with the true ones in that size.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from common import Section, parser
from ranking_errors import STREET, choose_kinds, corrupt
from ranking_sets import SETS, draw_folder, photos_in, read_object, read_values, save_mask
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from gpgc_dask import GPGC, MaskOptions, Recipe, ingest, open_dataset, write_masks

ROUNDS = (0, 1, 2)
COSTS = (0.001, 0.01)
SMALL = {"backbone": "colour", "superpixels": 20}


def class_accuracy(table: np.ndarray) -> float:
    return 100 * float(np.mean(np.diagonal(table) / np.maximum(table.sum(1), 1)))


def mean_iou(table: np.ndarray) -> float:
    right = np.diagonal(table)
    union = table.sum(0) + table.sum(1) - right
    return 100 * float(np.mean(right[union > 0] / union[union > 0]))


def confusion(
    predicted: Path, truth: Path, read: Callable[[Path], np.ndarray], n_classes: int
) -> np.ndarray:
    """(classes, classes) pixels by true and by predicted class, of two folders of masks."""
    total = np.zeros(n_classes**2, dtype=np.int64)
    for path in sorted(truth.iterdir()):
        mask, own = read(path).astype(np.int64), read(predicted / path.name)
        known = mask < n_classes
        total += np.bincount((mask * n_classes + own)[known], minlength=total.size)
    return total.reshape(n_classes, n_classes)


# -- models ----------------------------------------------------------------------------------------


def predict(train: xr.Dataset, test: xr.Dataset, rounds: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPGC(rounds=rounds).fit(train)
        model.review(train)
    return np.asarray(model.predict(test))


def regressions(train: xr.Dataset, test: xr.Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """Labels of the test rows: the most likely ones, and those with the largest P/√frequency."""
    own = train["weight"].values > 0
    labels = train["label"].values[own]
    for cost in COSTS:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=cost, max_iter=300))
        with threadpool_limits(1):
            model.fit(train["features"].values[own], labels)
        scores = model.predict_log_proba(test["features"].values)
        yield f"LR, C={cost:g}", model.classes_[scores.argmax(1)]
        _, counts = np.unique(labels, return_counts=True)
        yield f"LR, C={cost:g}, P/√π", model.classes_[(scores - 0.5 * np.log(counts)).argmax(1)]


def run_other(python: str, job: Job, target: Path) -> None:
    """Predict masks by the commands of another installation."""
    data, model = (job.place / f"other-{name}.zarr" for name in ("data", "model"))
    options = [f"--{name}={value}" for name, value in (SMALL if job.small else {}).items()]
    if job.masks.classes:
        names = ",".join(f"{value}={name}" for value, name in job.masks.classes.items())
        options += [f"--classes={names}", f"--void={','.join(map(str, job.masks.void))}"]
    train, test = job.folder / "train", job.folder / "test"
    for command in (
        ["ingest", train / "images", train / "masks", "-o", data, *options],
        ["fit", data, "-o", model],
        ["predict", model, test / "images", "-o", target],
    ):
        run = [python, "-I", "-m", "gpgc_dask", *map(str, command)]
        done = subprocess.run(run, cwd=job.place, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(run)} failed:\n{done.stderr}")


# -- sets ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A folder with train/ and test/, each with images/ and masks/, and how its masks are read."""

    folder: Path
    place: Path
    masks: MaskOptions
    small: bool
    other: str | None

    def open(self, images: str, masks: str) -> xr.Dataset:
        path = self.place / f"{masks.replace('/', '-')}.zarr"
        recipe = Recipe(**SMALL) if self.small else Recipe()
        folders = (self.folder / images, self.folder / masks)
        ingest(*folders, path, recipe=recipe, masks_as=self.masks)
        return open_dataset(path)

    def predictions(self) -> Iterator[tuple[str, Path]]:
        """Names of the models, and folders of the masks that they predict."""
        train = self.open("train/images", "train/masks")
        test = self.open("test/images", "test/masks")
        for rounds in ROUNDS:
            name = f"rounds={rounds}"
            write_masks(test, predict(train, test, rounds), self.place / name)
            yield name, self.place / name
        for number, (name, labels) in enumerate(regressions(train, test)):
            write_masks(test, labels, self.place / f"regression {number}")
            yield name, self.place / f"regression {number}"
        if self.other:
            run_other(self.other, self, self.place / "other")
            yield "other installation", self.place / "other"
        if (self.folder / "train/truth").exists():
            truth = self.open("train/images", "train/truth")
            write_masks(test, predict(truth, test, 0), self.place / "truth")
            yield "true masks, rounds=0", self.place / "truth"

    def results(self) -> dict[str, float]:
        """{model: mean IoU of several classes, or average class accuracy of two}."""
        several = bool(self.masks.classes)
        n_classes = len(self.masks.classes) if several else 2
        read, score = (read_values, mean_iou) if several else (read_object, class_accuracy)
        found = {}
        for name, masks in self.predictions():
            found[name] = score(confusion(masks, self.folder / "test/masks", read, n_classes))
            log = f"{time.strftime('%H:%M:%S')} {self.place.name}, {name}: {found[name]:.2f}"
            print(log, file=sys.stderr, flush=True)
        return found


def split_street(folder: Path, place: Path, seed: int) -> str:
    """Write test/, true masks of one video, and train/, partly corrupted ones of the others."""
    rng = np.random.default_rng([seed, 2])
    photos = photos_in(folder / "images")
    videos = sorted({photo.name.split("_")[0] for photo in photos})
    video = videos[seed % len(videos)]
    own = [photo for photo in photos if photo.name.split("_")[0] != video]
    kinds = dict(zip(own, choose_kinds(len(own), 1 / 3, list(STREET), rng), strict=True))
    for photo in photos:
        target = place / ("train" if photo in kinds else "test")
        for part in ("images", "masks"):
            (target / part).mkdir(parents=True, exist_ok=True)
        (target / "images" / photo.name).symlink_to(photo.resolve())
        mask = read_values(folder / "masks" / f"{photo.stem}.png")
        if kinds.get(photo):
            mask, _ = corrupt(mask, kinds[photo], STREET, rng)
        save_mask(mask, target / "masks" / f"{photo.stem}.png")
    return video


def draw(folder: Path) -> None:
    """Small sets of the same structure, to check that the script runs."""
    draw_folder(folder)
    shutil.copytree(folder / "horses/train/images", folder / "horses/test/images")
    shutil.copytree(folder / "horses/train/truth", folder / "horses/test/masks")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="horses and camvid")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument(
        "--other", metavar="PYTHON", help="program of another installation; small: of this one"
    )
    args = options.parse_args()
    section = Section(args, __file__, "accuracy.md")
    small = args.smoke or args.folder is None
    other = args.other or (sys.executable if small else None)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = place / "drawn" if small else args.folder
        if small:
            draw(folder)
        job = Job(
            folder / "horses", place / "horses", MaskOptions(), small, None if small else other
        )
        results["horses, average class accuracy"] = job.results()
        for seed in range(1 if small else args.seeds):
            own = place / f"street {seed}"
            video = split_street(folder / "camvid", own, seed)
            job = Job(own, own, SETS["street"].options, small, other)
            results[f"street scenes, seed {seed}, video {video}, mean IoU"] = job.results()
    street = list(results.values())[1:]
    results["street scenes, mean"] = {
        model: float(np.mean([each[model] for each in street])) for model in street[0]
    }
    models = list(dict.fromkeys(model for each in results.values() for model in each))
    section.add("Percent, in pixels of the test photos:")
    section.table(
        ("test", *models),
        [
            (name, *(f"{each[model]:.2f}" if model in each else "" for model in models))
            for name, each in results.items()
        ],
    )
    section.finish()


if __name__ == "__main__":
    main()
