"""How well masks are ranked, on photos whose true masks are known: docs/ranking.md.

The folder holds horses/train (images, masks made by GrabCut, truth), camvid and kvasir (images and
true masks) and coco (images, instances.json). For each set and seed, some masks are corrupted in
known ways. The script ingests, fits and reviews the set as any user would, and measures how well
the columns of the review and the scores of other methods find the bad masks. Without a folder it
draws small sets, to check that it runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import DOCS, parser, seconds
from ranking_scores import (
    BAD_BELOW,
    COSTS,
    DEFAULT,
    ESTIMATE,
    FOLDS,
    LOGISTIC,
    RANDOM,
    measure,
    measure_estimates,
    other_scores,
    review_scores,
)
from ranking_sets import CLEAN, SETS, Job, SetKind, draw_folder, write_examples

import gpgc_dask
from gpgc_dask import GPGC, Recipe, RunOptions, connect, ingest, open_dataset

PAGE = DOCS / "ranking.md"
LABEL = "score"
INTERVAL = (0.75, 0.85)
"""Bounds for the share of true qualities in the intervals, which are of 80 %."""


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes
    ----------
    folder : Path
        Photos and true masks.
    cache : Path
        Folder in which sets and their datasets are kept.
    recipe : Recipe
    svm : bool
        Whether to rank by the margin of an SVM too.
    cluster : callable
        Context of ingests.
    """

    folder: Path
    cache: Path
    recipe: Recipe
    svm: bool
    cluster: Callable[[], AbstractContextManager[Any]]

    @property
    def digest(self) -> str:
        """Changes with all that datasets depend on: the folder, the recipe and the code."""
        package = Path(gpgc_dask.__file__).parent
        own = ("ranking_errors.py", "ranking_sets.py", "experiments.py")
        sources = [Path(__file__).with_name(name) for name in own]
        for name in ("imaging", "pipelines/ingest", "data"):
            sources += sorted((package / name).rglob("*.py"))
        content = hashlib.sha256(f"{self.folder.resolve()} {self.recipe}".encode())
        for path in sources:
            content.update(path.read_bytes())
        return content.hexdigest()[:12]


@dataclass(frozen=True)
class Run:
    """Outcome of one set and seed.

    Attributes
    ----------
    name : str
        Name of the set.
    measures : dict
        {score: {measure: value}}; empty if no mask is bad.
    estimates : dict
        See ``measure_estimates``.
    shape : dict
        Numbers of images, superpixels and features.
    times : dict
        Seconds per step.
    cost : float
        C of the logistic regression.
    """

    name: str
    measures: dict[str, dict[str, float]]
    estimates: dict[str, Any]
    shape: dict[str, int]
    times: dict[str, float]
    cost: float = float("nan")


# -- runs --------------------------------------------------------------------------------------


def load_set(
    name: str, kind: SetKind, seed: int, setting: Setting, *, clean: bool
) -> tuple[xr.Dataset, pd.DataFrame, float]:
    """The dataset of a set, what is known about its masks, and the seconds its ingest took."""
    label = f"{name}-{'clean' if clean else f'seed{seed}'}"
    place = setting.cache / f"{label}-{setting.digest}"
    target, known, done = place / "data.zarr", place / "masks.csv", place / "done.json"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        share = 0.0 if clean else kind.share
        job = Job(setting.folder / kind.folder, place, seed, share, setting.cluster)
        log(f"{label}: masks")
        write_examples(kind, job).to_csv(known, index=False)
        log(f"{label}: ingest")
        with setting.cluster() as client:
            taken, _ = seconds(
                lambda: ingest(
                    place / "images",
                    place / "masks",
                    target,
                    recipe=setting.recipe,
                    masks_as=kind.options,
                    run=RunOptions(client=client),
                )
            )
        done.write_text(json.dumps({"ingest": taken}))
    dataset = open_dataset(target)
    table = pd.read_csv(known, keep_default_na=False).set_index("image")
    truth = table.loc[dataset["image_name"].values.tolist()].reset_index()
    is_corrupted = (truth["kind"] != "").to_numpy()
    truth["bad"] = is_corrupted if kind.share else truth["quality"].to_numpy() < BAD_BELOW
    return dataset, truth, json.loads(done.read_text())["ingest"]


def run_set(name: str, seed: int, setting: Setting, *, clean: bool = False) -> Run:
    """Make, ingest, fit and review a set, and measure the rankings."""
    kind = SETS[name]
    dataset, truth, ingested = load_set(name, kind, seed, setting, clean=clean)
    log(f"{name}, {'clean' if clean else f'seed {seed}'}: fit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted, model = seconds(lambda: GPGC().fit(dataset))
        reviewed, table = seconds(lambda: model.review(dataset))
        times = {"ingest": ingested, "fit": fitted, "review": reviewed}
        measures, cost = {}, float("nan")
        if not clean:
            scores = review_scores(table)
            log(f"{name}, seed {seed}: other scores")
            others, cost, taken = other_scores(model, dataset, seed, setting.cache, svm=setting.svm)
            times["other scores"] = taken
            measures = {label: measure(s, truth) for label, s in (scores | others).items()}
            log(f"{name}, seed {seed}: AUROC {measures[DEFAULT]['AUROC']:.3f}")
    shape = {
        "images": dataset.sizes["photo"],
        "superpixels": dataset.sizes["superpixel"],
        "features": dataset.sizes["feature"],
    }
    return Run(name, measures, measure_estimates(table, truth), shape, times, cost)


# -- tables ------------------------------------------------------------------------------------


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are known; NaN if there is none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def cell(values: Sequence[float], form: str = ".3f") -> str:
    """Mean and, of several values, their standard deviation."""
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return ""
    if len(known) == 1:
        return f"{known[0]:{form}}"
    return f"{mean(known):{form}} ± {np.std(known, ddof=1):{form}}"


def percent(value: float, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f} %"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def of_score(runs: Sequence[Run], score: str, what: str) -> list[float]:
    """Values of a measure over seeds."""
    return [run.measures.get(score, {}).get(what, float("nan")) for run in runs]


def names_in(groups: Iterable[Iterable[str]]) -> list[str]:
    """All names, in the order in which they first appear."""
    return list(dict.fromkeys(name for group in groups for name in group))


def scores_table(runs: Sequence[Run]) -> str:
    """One row per score, for one set."""
    scores = names_in(run.measures for run in runs)
    columns = names_in(own for run in runs for own in run.measures.values())
    rows = ([score, *(cell(of_score(runs, score, c)) for c in columns)] for score in scores)
    return table([LABEL, *columns], rows)


def estimates_table(groups: dict[str, list[Run]]) -> str:
    """One row per set."""
    numbers = ("estimated below", "low", "high", "truly below")
    rows = []
    for title, runs in groups.items():
        own = [run.estimates for run in runs]
        rows.append(
            [
                title,
                cell([one["error"] for one in own]),
                cell([100 * one["coverage"] for one in own], ".0f"),
                *(cell([one[name] for one in own], ".0f") for name in numbers),
                cell([100 * one["count inside"] for one in own], ".0f"),
                *(cell([one[name] for one in own], ".0f") for name in ("suspect", "bad")),
                cell([100 * one["suspect share"] for one in own], ".1f"),
            ]
        )
    columns = ["set", "mean absolute error", "true quality within the interval, %"]
    columns += [f"estimated below {BAD_BELOW}", "at least", "at most", f"truly below {BAD_BELOW}"]
    columns += ["true number within the limits, % of the runs"]
    columns += ["suspect", "bad", "suspect, %"]
    return table(columns, rows)


def times_table(groups: dict[str, list[Run]]) -> str:
    steps = ("ingest", "fit", "review", "other scores")
    rows = []
    for title, runs in groups.items():
        shape = [f"{value:,}" for value in runs[0].shape.values()]
        taken = [cell([run.times.get(step, float("nan")) for run in runs], ".1f") for step in steps]
        rows.append([title, *shape, *taken])
    return table(["set", "images", "superpixels", "features", *steps], rows)


# -- targets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A target, the measured value as text, and whether it was reached (None: not measured)."""

    text: str
    measured: str = ""
    reached: bool | None = None


def best_other(runs: Sequence[Run]) -> tuple[str, float]:
    """The score with the largest mean AUROC that is neither the default nor part of it."""
    own = {DEFAULT, RANDOM, *(f"`{name}`" for name in ESTIMATE)}
    others = [score for score in names_in(run.measures for run in runs) if score not in own]
    values = {score: mean(of_score(runs, score, "AUROC")) for score in others}
    best = max(values, key=lambda score: values[score])
    return best, values[best]


def at_least(text: str, value: float, bound: float) -> Target:
    if np.isnan(value):
        return Target(text)
    return Target(text, f"{value:.3f}", value >= bound)


def ranking_targets(groups: dict[str, list[Run]]) -> list[Target]:
    """Targets for the AUROC of the default order, over the sets that were run."""

    def default(name: str, what: str = "AUROC") -> float:
        return mean(of_score(groups.get(name, []), DEFAULT, what))

    result = [at_least("street scenes: AUROC at least 0.955", default("street"), 0.955)]
    text = "street scenes: above the softmin score of a logistic regression"
    if "street" in groups:
        rival = mean(of_score(groups["street"], LOGISTIC, "AUROC"))
        gain = default("street") - rival
        result.append(Target(text, f"{default('street'):.3f} against {rival:.3f}", gain > 0))
    else:
        result.append(Target(text))
    result.append(at_least("medical photos: AUROC at least 0.87", default("medical"), 0.87))
    text = "medical photos: best of its table"
    if "medical" in groups:
        name, value = best_other(groups["medical"])
        is_best = default("medical") >= value
        text_measured = f"{default('medical'):.3f} against {value:.3f} ({name})"
        result.append(Target(text, text_measured, is_best))
    else:
        result.append(Target(text))
    empty = default("horses", "AUROC, not empty")
    result.append(at_least("horses: AUROC at least 0.99", default("horses"), 0.99))
    result.append(at_least("horses, masks that are not empty: AUROC at least 0.985", empty, 0.985))
    gains = [default(name) - best_other(runs)[1] for name, runs in groups.items()]
    text = "mean over sets of the default's AUROC minus that of the best other score: at least 0"
    result.append(Target(text, f"{mean(gains):+.3f}", mean(gains) >= 0))
    return result


def estimate_targets(groups: dict[str, list[Run]], clean: dict[str, list[Run]]) -> list[Target]:
    """Targets for the estimated quality and for sets without errors."""

    def by_set(what: str) -> list[float]:
        values = [mean(run.estimates[what] for run in runs) for runs in groups.values()]
        return [value for value in values if not np.isnan(value)]

    result = []
    errors, coverage = by_set("error"), by_set("coverage")
    result.append(
        Target(
            "mean absolute error of the estimated quality, mean over sets: at most 0.15",
            f"{mean(errors):.3f} ({min(errors):.3f} … {max(errors):.3f})",
            mean(errors) <= 0.15,
        )
    )
    low, high = INTERVAL
    text = "true quality within the estimated interval, mean over sets: "
    text += f"{percent(low)} … {percent(high)}"
    if coverage:
        measured = (
            f"{percent(mean(coverage))} ({percent(min(coverage))} … {percent(max(coverage))})"
        )
        result.append(Target(text, measured, low <= mean(coverage) <= high))
    else:
        result.append(Target(text))
    runs = [run for own in (*groups.values(), *clean.values()) for run in own]
    counts = [run.estimates["count inside"] for run in runs]
    inside = [value for value in counts if not np.isnan(value)]
    text = "true number of masks below 0.5 within its limits, in at least 80 % of all runs"
    if inside:
        measured = f"{sum(inside):.0f} of {len(inside)} runs"
        result.append(Target(text, measured, mean(inside) >= 0.8))
    else:
        result.append(Target(text))
    for name in CLEAN:
        text = f"{SETS[name].title.lower()}, nothing corrupted: at most 5 % suspect"
        if name in clean:
            share = mean(run.estimates["suspect share"] for run in clean[name])
            result.append(Target(text, percent(share, 1), share <= 0.05))
        else:
            result.append(Target(text))
    return result


def targets_table(targets: Iterable[Target]) -> str:
    verdict = {True: "yes", False: "**no**", None: "not measured"}
    rows = ([each.text, each.measured, verdict[each.reached]] for each in targets)
    return table(["target", "measured", "reached"], rows)


# -- the page ----------------------------------------------------------------------------------

INTRODUCTION = """\
# How well masks are ranked

Written by `{command}`. The photos are not part of this project. The
masks of the horses were made by a tool. In the other sets true masks were corrupted at random, in
known ways, and such errors are simpler than those of annotators. The seeds share the photos and
differ in the errors: the standard deviations do not include the choice of photos. The sets were
used during development, so on your own photos the numbers will differ.

All scores are computed from the same superpixels and features:

- the **default order** is that of `gpgc rank`; the names of columns are those of the ranking;
- **cleanlab softmin** is cleanlab's score for segmentation. One row uses the leave-image-out
  predictions of GP-GC, turned into probabilities by a logistic regression on the decision values.
  The other uses a multinomial logistic regression on the standardised features ({folds} folds by
  image, no class weights, C from {costs} by log loss in the first fold; chosen:
  {chosen});
- **SVM margin**, if present, is the mean margin of a linear SVM.

AUROC and average precision refer to bad masks. Kendall's τ refers to the true quality, which is the
IoU with the true mask (with more than two classes: the mean over the classes that occur in either
mask, without void pixels). The columns for single kinds of error compare masks that have this error
with those that have none. Values are means ± standard deviations over {seeds} seed(s)."""


def document(
    groups: dict[str, list[Run]], clean: dict[str, list[Run]], command: str, seeds: int
) -> str:
    """The page: introduction, targets, one table per set, estimates, times."""
    chosen = sorted({run.cost for runs in groups.values() for run in runs})
    parts = [
        INTRODUCTION.format(
            command=command,
            folds=FOLDS,
            costs=", ".join(f"{cost:g}" for cost in COSTS),
            chosen=", ".join(f"{cost:g}" for cost in chosen),
            seeds=seeds,
        ),
        "## Targets",
        targets_table(ranking_targets(groups) + estimate_targets(groups, clean)),
    ]
    for name, runs in groups.items():
        kind, first = SETS[name], runs[0]
        bad = cell([run.estimates["bad"] for run in runs], ".0f")
        parts.append(f"## {kind.title}")
        parts.append(f"{first.shape['images']} images, {bad} bad: {kind.errors}.")
        parts.append(scores_table(runs))
    titles = {SETS[name].title: runs for name, runs in groups.items()}
    titles |= {f"{SETS[name].title}, nothing corrupted": runs for name, runs in clean.items()}
    parts += [
        "## Estimated quality and suspect masks",
        "The error is that of the estimate against the true quality. The other columns are shares "
        "and numbers of masks. The interval is that of `quality_low` and `quality_high`. Where "
        "nothing is corrupted, every suspect mask is a false alarm.",
        estimates_table(titles),
        "## Times",
        "Seconds of wall time per set. The other scores are those of cleanlab and, if present, of "
        "the SVM.",
        times_table(titles),
    ]
    return "\n\n".join(parts) + "\n"


def read_arguments() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--seeds", type=int, default=3, help="number of seeds per set")
    arguments.add_argument(
        "--sets", default=",".join(SETS), help=f"some of {', '.join(SETS)}; default all"
    )
    arguments.add_argument("--svm", action="store_true", help="also rank by the margin of an SVM")
    arguments.add_argument(
        "--cache",
        type=Path,
        help="keep datasets, and scores of other methods, here; made again if ingest changes",
    )
    args = arguments.parse_args()
    args.sets = args.sets.split(",")
    unknown = [name for name in args.sets if name not in SETS]
    if unknown:
        arguments.error(f"no set {', '.join(unknown)}: choose from {', '.join(SETS)}")
    if args.write and (args.folder is None or args.smoke or set(args.sets) != set(SETS)):
        arguments.error("--write needs a folder and all sets, and no --smoke")
    return args


def main() -> None:
    args = read_arguments()
    seeds = min(args.seeds, 2) if args.smoke else args.seeds
    with tempfile.TemporaryDirectory() as temporary:
        place, recipe, cluster = Path(temporary), Recipe(), connect
        folder = args.folder or place / "sets"
        if args.folder is None:
            draw_folder(folder)
            recipe, cluster = Recipe(backbone="colour", superpixels=30), nullcontext
        setting = Setting(folder, args.cache or place, recipe, args.svm, cluster)
        groups = {
            name: [run_set(name, seed, setting) for seed in range(seeds)] for name in args.sets
        }
        clean = {
            name: [run_set(name, 0, setting, clean=True)] for name in args.sets if name in CLEAN
        }
    command = f"benchmarks/ranking.py FOLDER --seeds {seeds}{' --svm' if args.svm else ''} --write"
    text = document(groups, clean, command, seeds)
    print(text)
    if args.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
