"""The paper's experiments on a folder of photos: docs/experiments.md.

The folder holds train/images, train/masks (unreliable), train/truth and test/images, test/masks
(true ones). The script first makes the tables of that split. Then, for each seed, it splits the
photos at random, jitters boxes around the true objects (IoU 0.5 … 1; every seventh is moved to a
wrong place), makes masks by GrabCut, and makes all tables again. Without a folder it draws a small
set, to check that it runs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import DOCS, parser
from PIL import Image

from gpgc_dask import open_dataset
from gpgc_dask.clusters.connect import connect
from gpgc_dask.demo.folders import write_set
from gpgc_dask.experiments import Comparison, compare
from gpgc_dask.experiments.compare import SHARES
from gpgc_dask.experiments.files import markdown_table, to_markdown
from gpgc_dask.experiments.tables import table_1, table_2, table_3
from gpgc_dask.pipelines.autoseg import autoseg
from gpgc_dask.pipelines.ingest import Recipe, RunOptions, ingest

WRONG_SHARE, JITTER = 0.15, 0.5


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Size:
    """What depends on the size of the set: a small one needs no processes and few subsets."""

    backbone: str = "lite0"
    draws: int = 5
    shares: Sequence[float] = SHARES
    cluster: Callable[[], AbstractContextManager[Any]] = connect


def datasets(folder: Path, place: Path, size: Size) -> tuple[Path, Path]:
    """train.zarr and test.zarr of a folder."""
    with size.cluster():
        for kind in ("train", "test"):
            images, masks = folder / kind / "images", folder / kind / "masks"
            ingest(images, masks, place / f"{kind}.zarr", recipe=Recipe(backbone=size.backbone))
    return place / "train.zarr", place / "test.zarr"


def run_comparison(folder: Path, place: Path, size: Size) -> Comparison:
    train, test = map(open_dataset, datasets(folder, place, size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare(
            train,
            test,
            truth=folder / "train/truth",
            draws=size.draws,
            shares=size.shares,
            announce=log,
        )


# -- a new split with new noise ----------------------------------------------------------------


def true_box(mask: np.ndarray) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    return int(columns[0]), int(rows[0]), int(width), int(height)


def wrong_box(box: tuple[int, int, int, int], size: tuple[int, int], rng: np.random.Generator):
    """A box of half the size that hardly overlaps the true one, if possible."""
    height, width = size
    w, h = max(box[2] // 2, 2), max(box[3] // 2, 2)
    for _ in range(100):
        x, y = int(rng.integers(0, max(width - w, 1))), int(rng.integers(0, max(height - h, 1)))
        across = max(min(x + w, box[0] + box[2]) - max(x, box[0]), 0)
        down = max(min(y + h, box[1] + box[3]) - max(y, box[1]), 0)
        if across * down < 0.25 * w * h:
            break
    return x, y, w, h


def all_photos(folder: Path) -> list[tuple[Path, Path]]:
    """(photo, true mask) of both halves."""
    pairs = []
    for kind, truth in (("train", "truth"), ("test", "masks")):
        for photo in sorted((folder / kind / "images").iterdir()):
            pairs.append((photo, folder / kind / truth / f"{photo.stem}.png"))
    return pairs


def split_at_random(folder: Path, place: Path, seed: int, size: Size) -> None:
    """train/ with GrabCut masks and test/ with true ones, in another split of the same sizes."""
    rng = np.random.default_rng(seed)
    pairs = all_photos(folder)
    n_train = len(list((folder / "train/images").iterdir()))
    chosen = set(rng.permutation(len(pairs))[:n_train].tolist())
    boxes = {}
    for number, (photo, truth) in enumerate(pairs):
        half, kind = ("train", "truth") if number in chosen else ("test", "masks")
        for path, name in ((photo, "images"), (truth, kind)):
            target = place / half / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        if half == "train":
            mask = np.asarray(Image.open(truth).convert("L")) > 0
            box = true_box(mask)
            wrong = rng.random() < WRONG_SHARE
            boxes[photo.name] = [wrong_box(box, mask.shape, rng) if wrong else box]
    with size.cluster() as client:
        autoseg(
            place / "train/images",
            boxes,
            place / "train/masks",
            jitter=JITTER,
            seed=seed,
            run=RunOptions(client=client),
        )


def over_seeds(found: list[Comparison]) -> dict[str, pd.DataFrame]:
    """Mean and standard deviation of the accuracies over seeds, table by table."""
    tables: dict[str, pd.DataFrame] = {}
    keys = {"Table 1": ["model"], "Table 2": ["model", "rule"]}
    for title, make in (("Table 1", table_1), ("Table 2", table_2)):
        joined = pd.concat([make(one) for one in found])
        grouped = joined.groupby(keys[title], sort=False)["accuracy"]
        tables[title] = grouped.agg(mean="mean", std="std").reset_index()
    for seed, one in enumerate(found):
        tables["Table 1"][f"seed {seed}"] = table_1(one)["accuracy"].to_numpy()
    third = pd.concat([table_3(one).drop(columns="runs") for one in found])
    mean = third.groupby(["rule", "model"], sort=False).mean(numeric_only=True).reset_index()
    tables["Table 3"] = mean
    quality = pd.concat([one.quality for one in found if one.quality is not None])
    numbers = [name for name in quality if name not in ("rule", "images", "n", "bad")]
    ranking = quality.groupby(["rule", "images"], sort=False)[numbers].mean().reset_index()
    tables["The rankings"] = ranking
    return tables


def claims(found: Comparison) -> str:
    """The claims of the paper, and whether they hold on this split."""
    first, second, third = table_1(found), table_2(found), table_3(found)
    one = first.set_index("model")
    lines = []
    for rival in ("GP, c = 1", "SVM"):
        for model in ("GP-GC, c = 1", "GP-GC", "GP-GC, second look"):
            gain = one["accuracy"][model] - one["accuracy"][rival]
            lines.append(
                _claim(f"{model} is better than {rival}", gain, one[f"p against {model}"][rival])
            )
    for model in ("SVM", "GP, c = 1", "GP"):
        own = second[second["model"] == model].set_index("rule")
        for rule in ("confidence, c = 1", "agreement", "quality"):
            gain = own["accuracy"][rule] - own["accuracy"]["SVM margin"]
            p = own["p against SVM margin"][rule]
            lines.append(
                _claim(
                    f"{model} on the best 25 % by {rule} is better than on the best 25 % by SVM "
                    "margin",
                    gain,
                    p,
                )
            )
    shares = third.set_index(["rule", "model"]).drop(columns="runs")
    best = shares.loc[("confidence, c = 1", "GP, c = 1")].astype(float).idxmax()
    held = "holds" if best in ("25 %", "50 %") else "does not hold"
    lines.append(f"- Table 3 is best at 25 % to 50 % of the images: **{held}** (best at {best}).")
    return "\n".join(lines)


def _claim(text: str, gain: float, p: float) -> str:
    if gain > 0 and p < 1e-3:
        verdict = "holds"
    else:
        verdict = "holds, but not significantly" if gain > 0 else "does not hold"
    return f"- {text}: **{verdict}** ({gain:+.2f} points, p = {p:.2g})."


def document(first: Comparison, others: list[Comparison], command: str, name: str) -> str:
    parts = [
        "# Experiments",
        f"Written by `{command}` on {name}. The experiments are those of Kolesnikov & "
        "Lampert (ICCV 2015), Section 4. In models without `c = 1` the redundancy is estimated, "
        "which the paper does not do.",
        "## The claims of the paper on these photos",
        claims(first),
        "## The original split",
        to_markdown(first).strip(),
    ]
    if others:
        parts.append(
            f"## {len(others)} random splits\n\nThe photos are split at random, the boxes are "
            f"jittered (IoU {1 - JITTER:g} … 1; {100 * WRONG_SHARE:.0f} % are moved to a wrong "
            "place), and masks are made by GrabCut. The tables show means over the seeds and, "
            "where there is a column for it, the standard deviation."
        )
        for title, table in over_seeds(others).items():
            parts += [f"### {title}", markdown_table(table)]
    return "\n\n".join(parts) + "\n"


def draw_set(folder: Path) -> None:
    """Write a small set with the same folders."""
    for half, seed, n in (("train", 0, 18), ("test", 1, 6)):
        write_set(folder / half, n, seed=seed)
    shutil.rmtree(folder / "test/masks")
    (folder / "test/truth").rename(folder / "test/masks")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--seeds", type=int, default=5, help="number of random splits")
    arguments.add_argument("--draws", type=int, default=5, help="random selections in Table 2")
    arguments.add_argument("--name", default="a set of photos", help="description of the photos")
    arguments.add_argument(
        "--out", type=Path, help="a Markdown file; default stdout, or the page with --write"
    )
    args = arguments.parse_args()
    tiny = args.folder is None
    size = Size(draws=1 if args.smoke else args.draws)
    if tiny:
        size = replace(size, backbone="colour", shares=(0.1, 0.25, 0.5), cluster=nullcontext)
    seeds = 1 if args.smoke else args.seeds
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = args.folder or place / "set"
        if tiny:
            draw_set(folder)
        first = run_comparison(folder, place / "original", size)
        others = []
        for seed in range(seeds):
            log(f"seed {seed}: new split, GrabCut")
            split_at_random(folder, place / f"seed{seed}", seed, size)
            own = place / f"seed{seed}"
            others.append(run_comparison(own, own / "data", size))
        command = f"benchmarks/experiments.py FOLDER --seeds {seeds}"
        text = document(first, others, command, args.name)
    out = args.out or (DOCS / "experiments.md" if args.write else None)
    if out is None:
        print(text)
    else:
        out.write_text(text)


if __name__ == "__main__":
    main()
