"""How well careless annotators, best answers and errors of whole videos are found: docs/people.md.

The folder holds horses/train (images, truth) and camvid (images and masks). True masks are
corrupted in known ways: by annotators of known care, as several answers of known IoU per photo,
and in the same way in consecutive frames. The script fits and reviews each set as any user would.
Without a folder it draws small sets, to check that it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import DOCS, parser
from people_sets import (
    ANSWERS,
    CARELESS,
    ERRORS,
    KINDS,
    PEOPLE,
    RUN,
    SMALL,
    TrueSet,
    draw_answers,
    draw_people,
    draw_videos,
    ingest_truth,
    measure_ease,
)
from ranking_scores import auroc
from ranking_sets import draw_folder

from gpgc_dask import GPGC, Recipe
from gpgc_dask.experiments.ranking_quality import mask_iou
from gpgc_dask.quality.consensus import reliability_weights, vote
from gpgc_dask.results.answers import answer_scores
from gpgc_dask.results.people import people_records, rank_people

PAGE = DOCS / "people.md"
BEGIN, END = "<!-- people.py -->", "<!-- end of people.py -->"
PHOTOS = 60
"""Photos with several answers."""

SHARE = 0.25
"""Share of the runs of frames that are corrupted."""


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def cached(cache: Path, name: str, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a function, kept as JSON."""
    path = cache / f"{name}.json"
    if not path.exists():
        log(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function()
        path.write_text(json.dumps(result))
    return json.loads(path.read_text())


def run_people(true: TrueSet, ease: np.ndarray, seed: int) -> dict[str, Any]:
    """Rank annotators, three of whom are careless."""
    dataset, names = draw_people(true, ease, np.random.default_rng([seed, 7]))
    people = rank_people(GPGC().fit(dataset).review(dataset))
    careless = [f"annotator {number}" for number in names[:CARELESS]]
    return {"people": people_records(people), "careless": careless}


def run_answers(true: TrueSet, n: int, seed: int) -> dict[str, float]:
    """Choose the best of several answers per photo, and combine them."""
    rng = np.random.default_rng([seed, 9])
    photos = np.sort(rng.permutation(len(true.truth))[:n])
    dataset, answers, iou = draw_answers(true, photos, rng)
    table = GPGC().fit(dataset).review(dataset)
    weights = reliability_weights(table["noise_variance"].to_numpy(), table["quality"].to_numpy())
    votes = {"majority": np.ones(iou.shape), "consensus": weights.reshape(iou.shape)}
    result = {
        "random answer": float(iou.mean()),
        "best answer": pick(iou, answer_scores(table)),
        "answer of the highest quality": pick(iou, table["quality"].fillna(0.0).to_numpy()),
        "truly best answer": float(iou.max(1).mean()),
    }
    for name, own in votes.items():
        masks = [vote(each, weight, 2) for each, weight in zip(answers, own, strict=True)]
        result[name] = float(
            np.mean([mask_iou(m, true.truth[p], 2) for m, p in zip(masks, photos, strict=True)])
        )
    return result


def pick(iou: np.ndarray, scores: np.ndarray) -> float:
    """Mean IoU of the answers of the highest scores."""
    best = scores.reshape(iou.shape).argmax(1)
    return float(iou[np.arange(len(iou)), best].mean())


def run_videos(true: TrueSet, seed: int) -> dict[str, float]:
    """AUROC of corrupted frames, with and without groups."""
    dataset, bad = draw_videos(true, SHARE, np.random.default_rng([seed, 8]))
    names = dataset["image_name"].values
    result = {}
    for title, data in (
        ("without --group", dataset.assign(group=("photo", names))),
        ("with --group", dataset),
    ):
        table = GPGC().fit(data).review(data)
        result[title] = auroc(bad, -table["quality"].to_numpy())
        result[f"{title}, agreement"] = auroc(bad, -table["agreement"].to_numpy())
    return result


# -- the page ----------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def people_text(results: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for name, runs in results.items():
        right, by_mean, gaps = 0, 0, []
        for run in runs:
            people, careless = run["people"], set(run["careless"])
            right += {each["annotator"] for each in people[:CARELESS]} == careless
            plain = sorted(people, key=lambda each: each["quality"])
            by_mean += {each["annotator"] for each in plain[:CARELESS]} == careless
            excess = [each["excess"] for each in people]
            gaps.append(excess[CARELESS] - excess[CARELESS - 1])
        rows.append(
            [
                KINDS[name].title,
                f"{right} of {len(runs)}",
                f"{by_mean} of {len(runs)}",
                f"{np.mean(gaps):.3f} ({min(gaps):.3f} … {max(gaps):.3f})",
            ]
        )
    head = [
        "photos",
        f"the {CARELESS} careless are the {CARELESS} worst, in seeds",
        "by the mean quality alone",
        "distance in `excess` of the third and the fourth",
    ]
    intro = (
        f"{PEOPLE} annotators, {CARELESS} of them careless: {100 * ERRORS[True]:.0f} % of their "
        f"masks have a large error (of the kinds in [ranking](ranking.md)), "
        f"{100 * ERRORS[False]:.0f} % of the masks of the others are moved by {100 * SMALL:.0f} % "
        "of the side. The careless annotators got easy photos only, the difficult half went to the "
        "others."
    )
    return f"### Careless annotators\n\n{intro}\n\n{table(head, rows)}"


def answers_text(runs: list[dict[str, float]], n: int) -> str:
    names = (
        "random answer",
        "majority",
        "answer of the highest quality",
        "best answer",
        "consensus",
        "truly best answer",
    )
    rows = [[name, *(f"{run[name]:.3f}" for run in runs), mean(runs, name)] for name in names]
    head = ["mean IoU with the true mask", *(f"seed {seed}" for seed in range(len(runs))), "mean"]
    levels = ", ".join(map(str, ANSWERS))
    intro = (
        f"{len(ANSWERS)} answers for each of {n} photos of horses, with an IoU of about {levels}, "
        "in random order: moved, grown, shrunk, with a part missing, or with a part replaced by a "
        "box. The majority counts answers the same, the consensus is that of `--consensus`."
    )
    return f"### Several answers per photo\n\n{intro}\n\n{table(head, rows)}"


def mean(runs: list[dict[str, float]], name: str) -> str:
    return f"{np.mean([run[name] for run in runs]):.3f}"


def videos_text(runs: list[dict[str, float]]) -> str:
    rows = [[name, *(f"{run[name]:.3f}" for run in runs), mean(runs, name)] for name in runs[0]]
    head = ["AUROC", *(f"seed {seed}" for seed in range(len(runs))), "mean"]
    intro = (
        f"Street scenes, in groups of {RUN} consecutive frames. In {100 * SHARE:.0f} % of the "
        "groups, the same class is dropped or the same two classes are exchanged in all frames. "
        "Rows without a name of a column refer to `quality`."
    )
    return f"### The same error in frames of a video\n\n{intro}\n\n{table(head, rows)}"


def write_page(text: str) -> None:
    """Insert the results between the markers of the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def read_arguments() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--seeds", type=int, default=10, help="seeds of the annotators")
    arguments.add_argument("--few-seeds", type=int, default=3, help="seeds of the others")
    arguments.add_argument("--cache", type=Path, help="keep datasets and results here")
    args = arguments.parse_args()
    if args.write and (args.folder is None or args.smoke):
        arguments.error("--write needs a folder, and no --smoke")
    return args


def main() -> None:
    args = read_arguments()
    small = args.folder is None or args.smoke
    seeds, few = (1, 1) if small else (args.seeds, args.few_seeds)
    with tempfile.TemporaryDirectory() as temporary:
        cache, recipe, folder = args.cache or Path(temporary), Recipe(), args.folder
        cache.mkdir(exist_ok=True)
        if folder is None:
            folder = Path(temporary) / "sets"
            draw_folder(folder, 24)
            recipe = Recipe(backbone="colour", superpixels=30)
        n = 8 if small else PHOTOS
        people: dict[str, list[dict[str, Any]]] = {}
        sets = {name: ingest_truth(kind, folder, cache, recipe) for name, kind in KINDS.items()}
        for name, true in sets.items():
            ease = cached(cache, f"ease-{name}", lambda t=true: {"ease": measure_ease(t).tolist()})
            people[name] = [
                cached(
                    cache,
                    f"people-{name}-{seed}",
                    lambda t=true, e=ease, s=seed: run_people(t, np.array(e["ease"]), s),
                )
                for seed in range(seeds)
            ]
        answers = [
            cached(cache, f"answers-{s}", lambda s=s: run_answers(sets["horses"], n, s))
            for s in range(few)
        ]
        videos = [
            cached(cache, f"videos-{s}", lambda s=s: run_videos(sets["street"], s))
            for s in range(few)
        ]
    text = "\n\n".join([people_text(people), answers_text(answers, n), videos_text(videos)])
    print(text)
    if args.write:
        write_page(text)


if __name__ == "__main__":
    main()
