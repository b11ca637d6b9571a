"""What looks of a reviewer are worth: masks are corrected in several orders, and models fitted.

Takes a folder with ``horses``, ``camvid`` and ``kvasir``, or draws photos; ``reviewer_sets.py`` has
the errors of the masks. Test photos have true masks: those of the horses, one video of the street
scenes, three tenths of the medical photos. A simulated reviewer corrects every mask that it is
shown. After each tenth of the images the model is fitted again with these verdicts (it starts at
the one before), and the order follows the new fit. The distance is that between the first fit
(``rounds=0``, no verdicts) and the same fit to true masks, in percent: average class accuracy of
two classes, mean IoU of several, in pixels of the test photos. Along the run, the estimated number
of bad masks among those not yet seen is compared with the true one.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import Section, parser
from ranking_scores import BAD_BELOW
from ranking_sets import draw_folder
from reviewer_sets import KINDS, Original, ReviewSet, prepare
from second_look import class_accuracy, confusion, mean_iou

from gpgc_dask import GPGC, open_dataset, write_masks
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.models.review import rank
from gpgc_dask.review.estimates import estimate_outlook
from gpgc_dask.storage.location import Location

STEP, LAST = 0.1, 0.2
SHOWN = (0.1, 0.2)


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
        self.wrong = self.own.is_wrong(self.names)
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
        kind = self.own.kind.set
        table = confusion(target, self.own.folder / "test/masks", self.own.read, kind.n_classes)
        return mean_iou(table) if kind.classes else class_accuracy(table)

    def fit(self, seen: list[int], start: GPGC | None = None) -> tuple[GPGC, xr.Dataset]:
        dataset = open_dataset(self.path, verdicts=[self.verdicts[n].id for n in seen])
        return fitted(GPGC(warm_start=start), dataset), dataset

    def run(self, order: Order, start: GPGC, rng: np.random.Generator) -> dict[str, Any]:
        """What is known after each step: scores, masks found, and the estimate of bad ones left."""
        n, seen = len(self.names), list[int]()
        model, dataset = start, open_dataset(self.path, verdicts=False)
        scores, inside, found = [self.measure(start)], list[bool](), list[int]()
        for share in np.arange(STEP, LAST + STEP / 2, STEP).tolist():
            numbers = order(model, dataset, rng)
            fresh = [number for number in numbers.tolist() if number not in set(seen)]
            seen += fresh[: round(share * n) - len(seen)]
            model, dataset = self.fit(seen, model)
            scores.append(self.measure(model))
            kinds = dict.fromkeys(seen, "corrected")
            left = estimate_outlook(model.review_, numbers.tolist(), kinds).left
            bad = int(sum(self.quality[k] < BAD_BELOW for k in range(n) if k not in kinds))
            found.append(int(self.wrong[seen].sum()))
            if left is not None:
                inside.append(bool(left.low <= bad <= left.high))
        return {"scores": scores, "inside": inside, "found": found}


def fitted(model: GPGC, dataset: xr.Dataset) -> GPGC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(dataset)
        model.review(dataset)
    return model


def simulate(own: ReviewSet, orders: list[str], seed: int) -> dict[str, Any]:
    title = f"{own.kind.name}, seed {seed}"

    def log(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {title}: {text}", file=sys.stderr, flush=True)

    work = Simulation(own, log)
    first = fitted(GPGC(rounds=0), open_dataset(work.path, verdicts=False))
    low, high = work.measure(first), work.measure(fitted(GPGC(rounds=0), work.clean))
    refined, _ = work.fit([])
    log(f"first fit {low:.2f}, true masks {high:.2f}, {work.wrong.sum()} masks to be found")
    runs = {}
    for name in orders:
        runs[name] = one = work.run(ORDERS[name], refined, np.random.default_rng([seed, 6]))
        shown = ", ".join(f"{score:.2f}" for score in one["scores"])
        log(f"{name}: {shown}; found {one['found']}; interval right: {one['inside']}")
    wrong = int(work.wrong.sum())
    return {"low": low, "high": high, "wrong": wrong, "images": len(work.names), "runs": runs}


# -- results ---------------------------------------------------------------------------------------


def spread(values: np.ndarray) -> float:
    """Standard error of the mean over the seeds."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def gains(each: list[dict[str, Any]], order: str) -> np.ndarray:
    """(seeds, steps) points that are gained since the first fit."""
    return np.array([np.array(one["runs"][order]["scores"]) - one["low"] for one in each])


def report(section: Section, results: dict[str, list[dict[str, Any]]], orders: list[str]) -> None:
    for name in results:
        section.add(f"- **{KINDS[name].set.title}** ({KINDS[name].score}): {KINDS[name].errors}.")
    section.add()
    section.add(
        "Points that are gained since the first fit, with the standard error over the seeds "
        "(differences of each seed). In brackets the share of the distance to true masks, where "
        "that is more than two standard errors:"
    )
    columns = [f"{100 * share:.0f} % seen" for share in (0.0, *SHOWN)]
    rows, shares = [], dict[tuple[str, int], list[float]]()
    for name, each in results.items():
        apart = np.array([one["high"] - one["low"] for one in each])
        known = apart.mean() > 2 * spread(apart)
        low = float(np.mean([one["low"] for one in each]))
        for order in orders:
            gained, cells = gains(each, order), []
            for step in range(len(columns)):
                own = gained[:, step]
                cell = f"{own.mean():+.2f} ± {spread(own):.2f}"
                if known:
                    shares.setdefault((order, step), []).append(own.mean() / apart.mean())
                    cell += f" ({100 * own.mean() / apart.mean():.0f} %)"
                cells.append(cell)
            distance = f"{apart.mean():+.2f} ± {spread(apart):.2f}"
            rows.append((KINDS[name].set.title, order, f"{low:.2f}", *cells, distance))
    for order in orders:
        means = [
            f"{100 * np.mean(shares[order, step]):.0f} %" if (order, step) in shares else ""
            for step in range(len(columns))
        ]
        count = len(shares.get((order, 0), []))
        rows.append((f"mean of {count} sets with a distance", order, "", *means, ""))
    section.table(("set", "order", "first fit", *columns, "true masks"), rows)
    section.add("Wrong masks among those that were seen (mean of the seeds):")
    rows = []
    for name, each in results.items():
        wrong, images = (np.mean([one[key] for one in each]) for key in ("wrong", "images"))
        for order in orders:
            found = np.mean([one["runs"][order]["found"] for one in each], axis=0)
            cells = [
                f"{n:.1f} of {share * images:.0f}" for n, share in zip(found, SHOWN, strict=True)
            ]
            rows.append((KINDS[name].set.title, order, *cells, f"{wrong:.0f} of {images:.0f}"))
    section.table(("set", "order", *columns[1:], "in all"), rows)
    for order in orders:
        runs = [one["runs"][order] for each in results.values() for one in each]
        inside = [right for run in runs for right in run["inside"]]
        section.add(
            f"Along the runs in the order “{order}”, the true number of bad masks (quality below "
            f"{BAD_BELOW:g}) not yet seen was in the estimated interval in {sum(inside)} of "
            f"{len(inside)} steps."
        )
        section.add()


def kept(folder: Path | None, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A result from its file, or computed and written there."""
    if folder is None:
        return compute()
    file = folder / f"{name}.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(compute()))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="horses, camvid and kvasir")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--sets", default=",".join(KINDS))
    options.add_argument("--orders", default=",".join(ORDERS))
    options.add_argument(
        "--results", type=Path, help="folder of the results by set and seed: those are not repeated"
    )
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
        originals: dict[str, Original] = {}

        def run(name: str, seed: int) -> dict[str, Any]:
            if name not in originals:
                originals[name] = Original.of(name, folder, place / name, small)
            own = prepare(originals[name], place / f"{name}-{seed}", seed)
            found = simulate(own, orders, seed)
            shutil.rmtree(own.folder)
            return found

        for name in args.sets.split(","):
            for seed in range(1 if small else args.seeds):
                one = kept(args.results, f"{name}-{seed}", lambda n=name, s=seed: run(n, s))
                results.setdefault(name, []).append(one)
    report(section, results, orders)
    section.finish()


if __name__ == "__main__":
    main()
