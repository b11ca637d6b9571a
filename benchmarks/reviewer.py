"""What looks of a reviewer are worth: masks are corrected in several orders, and models fitted.

Takes a folder with ``horses``, ``camvid`` and ``kvasir`` (see ``ranking.py``), or draws photos.
Masks are corrupted as in ``ranking.py``; test photos have true ones: those of the horses, one video
of the street scenes, three tenths of the medical photos. A simulated reviewer corrects every mask
that it is shown. After each tenth of the images the model is fitted again with these verdicts,
and the order follows the new fit. The distance is that between the first fit (``rounds=0``, no
verdicts) and the same fit to true masks, in percent: average class accuracy of two classes, mean
IoU of several, in pixels of the test photos. Along the run, the estimated number of bad masks among
those not yet seen is compared with the true one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import Section, parser
from ranking_errors import STREET_VOID
from ranking_scores import BAD_BELOW
from ranking_sets import (
    SETS,
    Job,
    SetKind,
    draw_folder,
    photos_in,
    read_object,
    read_values,
    write_examples,
)
from second_look import SMALL, class_accuracy, confusion, mean_iou, split_street

from gpgc_dask import GPGC, Recipe, connect, ingest, open_dataset, update, write_masks
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.models.review import rank
from gpgc_dask.review.estimates import estimate_outlook
from gpgc_dask.storage.location import Location

STEP, LAST = 0.1, 0.2
SHOWN = (0.1, 0.2)
TEST_SHARE = 0.3
KINDS = ("horses", "street", "medical")


# -- orders ----------------------------------------------------------------------------------------


def rows_wrong(model: GPGC, dataset: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Image of each row, and its weight times the probability that its label is wrong."""
    shares = model.calibration_.probabilities(model.leave_out_.values)
    label, image = dataset["label"].values, dataset["image"].values
    weight = dataset["weight"].values
    right = shares[np.arange(label.size), np.minimum(label, shares.shape[1] - 1)]
    return image, weight * (1 - right)


def by_quality(model: GPGC, dataset: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    names = dataset["image_name"].values.astype(str)
    place = pd.Series(np.arange(names.size), index=names)
    return place[rank(model.review_, "quality")["image"].to_numpy(str)].to_numpy()


def by_wrong_rows(model: GPGC, dataset: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    image, wrong = rows_wrong(model, dataset)
    return np.argsort(-np.bincount(image, wrong, dataset.sizes["photo"]), kind="stable")


def at_random(model: GPGC, dataset: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(dataset.sizes["photo"])


Order = Callable[[GPGC, xr.Dataset, np.random.Generator], np.ndarray]
ORDERS: dict[str, Order] = {
    "worst quality first": by_quality,
    "most wrong superpixels first": by_wrong_rows,
    "random": at_random,
}


# -- sets ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReviewSet:
    """Folders train/ (images, masks, truth) and test/ (images, masks) of a set and seed."""

    name: str
    folder: Path
    small: bool

    @property
    def kind(self) -> SetKind:
        return SETS[self.name]

    def read(self, path: Path) -> np.ndarray:
        return read_values(path) if self.kind.classes else read_object(path)

    def codes(self, path: Path) -> np.ndarray:
        mask = self.read(path)
        return np.where(mask == STREET_VOID, VOID, mask) if self.kind.classes else mask

    def open(self) -> tuple[Path, xr.Dataset, xr.Dataset]:
        """Path of the dataset to review, the same with true masks, and the test photos."""
        recipe = Recipe(**SMALL) if self.small else Recipe()
        paths = [self.folder / f"{name}.zarr" for name in ("data", "clean", "test")]
        for path, part in ((paths[0], "train"), (paths[2], "test")):
            own = self.folder / part
            masks_as = self.kind.options
            ingest(own / "images", own / "masks", path, recipe=recipe, masks_as=masks_as)
        shutil.copytree(paths[0], paths[1])
        update(paths[1], self.folder / "train/images", self.folder / "train/truth")
        return paths[0], open_dataset(paths[1]), open_dataset(paths[2])

    def qualities(self, names: list[str]) -> np.ndarray:
        """True quality of the given masks."""
        train, found = self.folder / "train", []
        for name in names:
            file = f"{Path(name).stem}.png"
            given, truth = (self.read(train / part / file) for part in ("masks", "truth"))
            found.append(self.kind.quality(given, truth))
        return np.array(found)


def split_medical(folder: Path, place: Path, seed: int) -> Path:
    """Write test/, and a folder with the other photos and their true masks, which is returned."""
    rng = np.random.default_rng([seed, 5])
    photos = photos_in(folder / "images")
    tests = set(rng.permutation(len(photos))[: round(TEST_SHARE * len(photos))].tolist())
    source = place / "source"
    for number, photo in enumerate(photos):
        target = place / "test" if number in tests else source
        for part in ("images", "masks"):
            (target / part).mkdir(parents=True, exist_ok=True)
        (target / "images" / photo.name).symlink_to(photo.resolve())
        mask = folder / "masks" / f"{photo.stem}.png"
        (target / "masks" / mask.name).symlink_to(mask.resolve())
    return source


def prepare(name: str, folder: Path, place: Path, seed: int, small: bool) -> ReviewSet:
    kind, train = SETS[name], place / "train"
    if name == "street":
        split_street(folder / kind.folder, place, seed)
        (train / "truth").mkdir()
        for mask in sorted((train / "masks").iterdir()):
            true = folder / kind.folder / "masks" / mask.name
            (train / "truth" / mask.name).symlink_to(true.resolve())
        return ReviewSet(name, place, small)
    if name == "medical":
        source = split_medical(folder / kind.folder, place, seed)
        truth = source / "masks"
    else:
        source = folder / kind.folder
        truth = source / "train/truth"
        tests = source / ("train" if small else "test")
        (place / "test").mkdir(parents=True)
        (place / "test/images").symlink_to((tests / "images").resolve())
        masks = "truth" if small else "masks"
        (place / "test/masks").symlink_to((tests / masks).resolve())
    cluster = nullcontext if small else connect
    write_examples(kind, Job(source, train, seed, kind.share, cluster))
    (train / "truth").symlink_to(truth.resolve())
    return ReviewSet(name, place, small)


# -- runs ------------------------------------------------------------------------------------------


@dataclass
class Simulation:
    """A reviewer at work on one set."""

    own: ReviewSet
    log: Callable[[str], None]

    def __post_init__(self) -> None:
        self.path, self.clean, self.test = self.own.open()
        dataset = open_dataset(self.path)
        self.names = [str(name) for name in dataset["image_name"].values]
        self.quality = self.own.qualities(self.names)
        self.verdicts = [self._verdict(dataset, number) for number in range(len(self.names))]
        journal = VerdictLog(Location.of(self.path))
        for verdict in self.verdicts:
            journal.append(verdict)

    def _verdict(self, dataset: xr.Dataset, photo: int) -> Verdict:
        name = self.names[photo]
        truth = self.own.folder / "train/truth" / f"{Path(name).stem}.png"
        correction = make_correction(dataset, photo, self.own.codes(truth))
        return Verdict(name, "corrected", by="simulated", correction=correction)

    def measure(self, model: GPGC) -> float:
        target = self.own.folder / "predicted"
        shutil.rmtree(target, ignore_errors=True)
        write_masks(self.test, np.asarray(model.predict(self.test)), target)
        kind = self.own.kind
        table = confusion(target, self.own.folder / "test/masks", self.own.read, kind.n_classes)
        return mean_iou(table) if kind.classes else class_accuracy(table)

    def fit(self, seen: list[int], rounds: int | None = None) -> tuple[GPGC, xr.Dataset]:
        dataset = open_dataset(self.path, verdicts=[self.verdicts[n].id for n in seen])
        model = GPGC() if rounds is None else GPGC(rounds=rounds)
        return fitted(model, dataset), dataset

    def run(self, order: Order, start: GPGC, rng: np.random.Generator) -> dict[str, Any]:
        """Scores by share of the images seen, and whether the number of bad masks was right."""
        n, seen = len(self.names), list[int]()
        model, dataset = start, open_dataset(self.path, verdicts=False)
        scores, inside = {0.0: self.measure(start)}, list[bool]()
        found = {}
        for share in np.arange(STEP, LAST + STEP / 2, STEP).round(3).tolist():
            numbers = order(model, dataset, rng)
            fresh = [number for number in numbers.tolist() if number not in set(seen)]
            seen += fresh[: round(share * n) - len(seen)]
            model, dataset = self.fit(seen)
            scores[share] = self.measure(model)
            kinds = dict.fromkeys(seen, "corrected")
            left = estimate_outlook(model.review_, numbers.tolist(), kinds).left
            bad = int(sum(self.quality[k] < BAD_BELOW for k in range(n) if k not in kinds))
            found[share] = 1 - bad / max((self.quality < BAD_BELOW).sum(), 1)
            if left is not None:
                inside.append(left.low <= bad <= left.high)
        return {"scores": scores, "inside": inside, "found": found}


def fitted(model: GPGC, dataset: xr.Dataset) -> GPGC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(dataset)
        model.review(dataset)
    return model


def simulate(own: ReviewSet, orders: list[str], seed: int) -> dict[str, Any]:
    title = f"{own.name}, seed {seed}"

    def log(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {title}: {text}", file=sys.stderr, flush=True)

    work = Simulation(own, log)
    start, _ = work.fit([], 0)
    low, high = work.measure(start), work.measure(fitted(GPGC(rounds=0), work.clean))
    refined, _ = work.fit([])
    log(f"first fit {low:.2f}, true masks {high:.2f}")
    runs = {}
    for name in orders:
        runs[name] = work.run(ORDERS[name], refined, np.random.default_rng([seed, 6]))
        shown = ", ".join(f"{100 * k:.0f} % {v:.2f}" for k, v in runs[name]["scores"].items())
        inside = runs[name]["inside"]
        log(f"{name}: {shown}; interval right in {sum(inside)} of {len(inside)} steps")
    return {"low": low, "high": high, "runs": runs}


def report(section: Section, results: dict[str, list[dict[str, Any]]], orders: list[str]) -> None:
    rows = []
    gains: dict[tuple[str, float], list[float]] = {}
    distances = []
    for name, each in results.items():
        apart = np.array([one["high"] - one["low"] for one in each])
        low, high = (float(np.mean([one[side] for one in each])) for side in ("low", "high"))
        distances.append(high - low)
        # Shares of a distance that may as well be none mean nothing.
        known = high - low > 2 * apart.std() / np.sqrt(apart.size)
        for order in orders:
            cells = []
            for share in (0.0, *SHOWN):
                score = float(np.mean([one["runs"][order]["scores"][share] for one in each]))
                gains.setdefault((order, share), []).append(score - low)
                gained = f"{100 * (score - low) / (high - low):.0f} %" if known else "no distance"
                cells.append(f"{score:.2f} ({gained})")
            rows.append((SETS[name].title, order, f"{low:.2f}", *cells, f"{high:.2f}"))
    total = sum(distances)
    for order in orders:
        shares = [
            f"{100 * sum(gains[order, share]) / total:.0f} %" if total > 0 else "no distance"
            for share in (0.0, *SHOWN)
        ]
        rows.append(("all sets", order, "", *shares, ""))
    columns = [f"{100 * share:.0f} % seen" for share in (0.0, *SHOWN)]
    section.add(
        "Percent; in brackets the share of the distance that is closed. A distance of less than "
        "two standard errors over the seeds is none. All sets: the sum of what is gained, divided "
        "by the sum of the distances."
    )
    section.table(("set", "order", "first fit", *columns, "true masks"), rows)
    for order in orders:
        runs = [one["runs"][order] for each in results.values() for one in each]
        inside = [right for run in runs for right in run["inside"]]
        section.add(
            f"Along the runs in the order “{order}”, the true number of bad masks not yet seen was "
            f"in the estimated interval in {sum(inside)} of {len(inside)} steps."
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="horses, camvid and kvasir")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--sets", default=",".join(KINDS))
    options.add_argument("--orders", default=",".join(ORDERS))
    args = options.parse_args()
    section = Section(args, __file__, "review.md")
    small = args.smoke or args.folder is None
    results: dict[str, list[dict[str, Any]]] = {}
    orders = args.orders.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = place / "drawn" if small else args.folder
        if small:
            draw_folder(folder, 20)
        for name in args.sets.split(",")[: 1 if small else None]:
            for seed in range(1 if small else args.seeds):
                own = prepare(name, folder, place / f"{name}-{seed}", seed, small)
                results.setdefault(name, []).append(simulate(own, orders, seed))
    report(section, results, orders)
    section.finish()


if __name__ == "__main__":
    main()
