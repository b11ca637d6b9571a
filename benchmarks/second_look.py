"""What the second look is worth: predicted masks of fits with 0, 1 and 2 rounds.

Takes a folder with ``horses`` (train/images, train/masks, train/truth, test/images, test/masks) and
``camvid`` (images, masks; the part of a name before ``_`` is its video), or draws photos. Horses:
fitted to unreliable masks, and to true ones for comparison; average class accuracy in pixels of the
test photos. Street scenes: a third of the frames of all videos but one are corrupted as in
``ranking.py``; mean IoU on the frames of the video left out, next to that of a logistic regression
on the same rows. Masks are compared at the size of the superpixel maps.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from common import Section, parser
from ranking_errors import STREET, choose_kinds, corrupt
from ranking_sets import SETS, draw_folder, read_values, save_mask
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from gpgc_dask import GPGC, Recipe, ingest, open_dataset
from gpgc_dask.data.maps import image_maps
from gpgc_dask.imaging.painting import rows_of

ROUNDS = (0, 1, 2)


def confusion(dataset: xr.Dataset, predicted: np.ndarray) -> np.ndarray:
    """(classes, classes) pixels by true and by predicted class."""
    n_classes = len(dataset.attrs["classes"])
    image = dataset["image"].values
    total = np.zeros(n_classes**2, dtype=np.int64)
    for chunk in image_maps(dataset):
        for photo, segments, mask in chunk:
            known = mask < n_classes
            own = predicted[rows_of(image, photo)][segments]
            cells = mask[known].astype(np.int64) * n_classes + own[known]
            total += np.bincount(cells, minlength=total.size)
    return total.reshape(n_classes, n_classes)


def class_accuracy(table: np.ndarray) -> float:
    return 100 * float(np.mean(np.diagonal(table) / np.maximum(table.sum(1), 1)))


def mean_iou(table: np.ndarray) -> float:
    right = np.diagonal(table)
    union = table.sum(0) + table.sum(1) - right
    return 100 * float(np.mean(right[union > 0] / union[union > 0]))


def predict(train: xr.Dataset, test: xr.Dataset, rounds: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPGC(rounds=rounds).fit(train)
        model.review(train)
    return np.asarray(model.predict(test))


def regression(train: xr.Dataset, test: xr.Dataset) -> np.ndarray:
    own = train["weight"].values > 0
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e-2, max_iter=300))
    with threadpool_limits(1):
        model.fit(train["features"].values[own], train["label"].values[own])
    return np.asarray(model.predict(test["features"].values))


# -- sets ------------------------------------------------------------------------------------------


def horses(folder: Path, place: Path, recipe: Recipe) -> Iterator[tuple[str, float]]:
    sources = {"train": "train/masks", "truth": "train/truth", "test": "test/masks"}
    for name, masks in sources.items():
        images = folder / masks.split("/")[0] / "images"
        ingest(images, folder / masks, place / f"{name}.zarr", recipe=recipe)
    sets = {name: open_dataset(place / f"{name}.zarr") for name in sources}
    for rounds in ROUNDS:
        predicted = predict(sets["train"], sets["test"], rounds)
        yield f"rounds={rounds}", class_accuracy(confusion(sets["test"], predicted))
    predicted = predict(sets["truth"], sets["test"], 0)
    yield "true masks, rounds=0", class_accuracy(confusion(sets["test"], predicted))


def street_sets(folder: Path, place: Path, video: str, seed: int, recipe: Recipe) -> None:
    """train.zarr with corrupted masks of all other videos, test.zarr with true ones of this one."""
    rng = np.random.default_rng([seed, 2])
    photos = sorted((folder / "images").iterdir())
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
    for name in ("train", "test"):
        target = place / f"{name}.zarr"
        ingest(
            place / name / "images",
            place / name / "masks",
            target,
            recipe=recipe,
            masks_as=SETS["street"].options,
        )


def street(
    folder: Path, place: Path, video: str, seed: int, recipe: Recipe
) -> Iterator[tuple[str, float]]:
    street_sets(folder, place, video, seed, recipe)
    train, test = (open_dataset(place / f"{name}.zarr") for name in ("train", "test"))
    for rounds in ROUNDS:
        yield f"rounds={rounds}", mean_iou(confusion(test, predict(train, test, rounds)))
    yield "logistic regression", mean_iou(confusion(test, regression(train, test)))


def draw(folder: Path) -> None:
    """Small sets of the same structure, to check that the script runs."""
    draw_folder(folder)
    shutil.copytree(folder / "horses/train/images", folder / "horses/test/images")
    shutil.copytree(folder / "horses/train/truth", folder / "horses/test/masks")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="horses and camvid")
    options.add_argument("--seeds", type=int, default=3)
    args = options.parse_args()
    section = Section(args, __file__, "accuracy.md")
    results: dict[str, dict[str, list[float]]] = {}

    def keep(name: str, values: Iterator[tuple[str, float]]) -> None:
        for model, value in values:
            results.setdefault(name, {}).setdefault(model, []).append(value)

    small = args.smoke or args.folder is None
    recipe = Recipe(backbone="colour", superpixels=20) if small else Recipe()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = place / "drawn" if small else args.folder
        if small:
            draw(folder)
        keep("horses, average class accuracy", horses(folder / "horses", place, recipe))
        names = [path.name for path in (folder / "camvid/images").iterdir()]
        videos = sorted({name.split("_")[0] for name in names})
        for video in videos[:1] if small else videos:
            for seed in range(1 if small else args.seeds):
                own = place / f"{video}-{seed}"
                values = street(folder / "camvid", own, video, seed, recipe)
                keep(f"street scenes without {video}, mean IoU", values)
    models = list(dict.fromkeys(model for each in results.values() for model in each))
    rows = [
        (name, *(f"{np.mean(each[model]):.1f}" if model in each else "" for model in models))
        for name, each in results.items()
    ]
    section.add(f"Percent of the pixels; street scenes are means over {args.seeds} seeds")
    section.table(("test", *models), rows)
    section.finish()


if __name__ == "__main__":
    main()
