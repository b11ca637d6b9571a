"""How well wrong annotations and wrong parts of masks are found: docs/objects.md.

The folder holds coco (images, instances.json), horses/train (images, truth) and kvasir (images,
masks). Errors are drawn into true annotations and masks. The script ingests and fits each set as
any user would, and measures how well the scores of annotations and the proposed regions find the
errors. Without a folder it draws small sets, to check that it runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import DOCS, parser
from objects_runs import fit_set, log
from objects_sets import CORRUPTED, DELETED_AREA, MIN_IMAGES, PART
from pycocotools import mask as run_lengths
from ranking_errors import CATEGORIES
from ranking_sets import draw_folder, read_object
from sklearn.metrics import roc_auc_score

from gpgc_dask import Recipe
from gpgc_dask.data.dataset import text_values
from gpgc_dask.models.review import review_objects

PAGE = DOCS / "objects.md"
BEGIN, END = "<!-- objects.py -->", "<!-- end of objects.py -->"
SIZES = {"at least 2 %": 0.02, "at least 0.5 %": 0.005, "all that are judged": 0.0}
BARS = {"at least 2 %": 0.97, "at least 0.5 %": 0.90, "all that are judged": 0.80}
PER_IMAGE = 2
"""Proposed missing regions per image, on average."""
FOUND = 0.3
"""A deleted annotation is found if a proposed region covers this share of it."""
FOUND_BAR, PART_BAR = 0.7, 0.8
MIN_ERROR = 5
"""Errors of fewer superpixels are not counted."""


def paint(row: Any, height: int, width: int) -> np.ndarray:
    """Pixels of a region of the table of objects."""
    polygons = [each for each in json.loads(row.polygon) if len(each) >= 6]
    encoded = run_lengths.merge(run_lengths.frPyObjects(polygons, height, width))
    return run_lengths.decode(encoded).astype(bool)


def auroc(is_right: np.ndarray, score: np.ndarray) -> float:
    both = np.unique(is_right).size == 2
    return float(roc_auc_score(is_right, score)) if both else float("nan")


def measure_annotations(table: pd.DataFrame, truth: pd.DataFrame) -> dict[str, float]:
    """AUROC of the scores of annotations, by size and kind of error."""
    known = truth.set_index("id")
    given = table[(table["kind"] == "given") & table["judged"]]
    error = known["error"].reindex(given["annotation"]).to_numpy()
    score, area = given["score"].to_numpy(), given["area"].to_numpy()
    result = {}
    for kind in ("", "shifted", "wrong category"):
        for size, limit in SIZES.items():
            own = (area >= limit) & ((error == "") | (kind == "") | (error == kind))
            result[f"{kind} {size}".strip()] = auroc(error[own] == "", score[own])
    return result | {"judged": float(len(given)), "wrong": float((error != "").sum())}


def measure_deleted(
    table: pd.DataFrame, truth: pd.DataFrame, dataset: xr.Dataset
) -> dict[str, float]:
    """Share of the deleted annotations that are found among the proposed missing regions."""
    deleted = truth[truth["error"] == "deleted"]
    proposed = table[table["kind"] == "missing"].head(PER_IMAGE * dataset.sizes["photo"])
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for row in deleted.itertuples():
        region = run_lengths.decode(row.region).astype(bool)
        height, width = region.shape
        own = [
            each
            for each in proposed[proposed["image"] == row.image].itertuples()
            if (paint(each, height, width) & region).sum() >= FOUND * region.sum()
        ]
        # ``class`` is no name that itertuples keeps.
        names = set(proposed.loc[[each.Index for each in own], "class"])
        name = deleted.loc[row.Index, "class"]
        hits.setdefault(name, []).append((bool(own), name in names))
    everything = [hit for own in hits.values() for hit in own]
    found, right = np.mean(everything, axis=0) if everything else (np.nan, np.nan)
    result = {"found": float(found), "class right": float(right), "deleted": len(everything)}
    for name, own in hits.items():
        result[f"found: {name}"] = float(np.mean([hit for hit, _ in own]))
        result[f"deleted: {name}"] = float(len(own))
    return result


def measure_parts(
    table: pd.DataFrame, truth: pd.DataFrame, dataset: xr.Dataset
) -> dict[str, float]:
    """Share of the parts that were cut off or added that a proposed region overlaps."""
    names = text_values(dataset["image_name"]).tolist()
    counts = np.bincount(dataset["image"].values, minlength=len(names))
    masks = text_values(dataset["mask_path"]).tolist()
    regions = table[table["kind"] != "given"]
    hits: dict[str, list[bool]] = {"cut off": [], "added": []}
    first = regions.head(len(names))
    early = []
    for row in truth[truth["error"] != ""].itertuples():
        photo = names.index(row.image)
        wrong = read_object(Path(row.mask)) != read_object(Path(masks[photo]))
        if wrong.sum() < MIN_ERROR * wrong.size / counts[photo]:
            continue
        kind = "missing" if row.error == "cut off" else "spurious"
        for part, found in ((regions, hits[row.error]), (first, early)):
            own = part[(part["image"] == row.image) & (part["kind"] == kind)]
            found.append(any((paint(o, *wrong.shape) & wrong).any() for o in own.itertuples()))
    everything = [hit for own in hits.values() for hit in own]
    return {
        "found": float(np.mean(everything)) if everything else float("nan"),
        **{name: float(np.mean(own)) if own else float("nan") for name, own in hits.items()},
        "found, one per image": float(np.mean(early)) if early else float("nan"),
        "errors": float(len(everything)),
        "regions per image": len(regions) / len(names),
    }


def cell(values: Sequence[float], form: str = ".3f") -> str:
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return ""
    spread = f" ± {np.std(known, ddof=1):{form}}" if len(known) > 1 else ""
    return f"{np.mean(known):{form}}{spread}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(results: dict[str, list[dict[str, float]]], seeds: int, min_images: int) -> str:
    """The measured part of the page."""

    def of(name: str, what: str) -> list[float]:
        return [one.get(what, float("nan")) for one in results[name]]

    def reached(values: Sequence[float], bar: float) -> str:
        return "yes" if np.nanmean(values) >= bar else "**no**"

    def sizes(name: str) -> str:
        rows = [
            [size, *(cell(of(name, f"{kind} {size}".strip()))
                     for kind in ("", "shifted", "wrong category")),
             f"{BARS[size]:.2f}", reached(of(name, size), BARS[size])]
            for size in SIZES
        ]  # fmt: skip
        columns = ["all errors", "moved", "wrong category", "target", "reached"]
        return table_text(["share of the photo", *columns], rows)

    text = [
        f"Written by `benchmarks/objects.py FOLDER`; means and standard deviations of {seeds} "
        "seeds. The photos are not part of this project.",
        "### COCO: wrong annotations",
        f"The 158 photos and all categories with at least {min_images} of them; rarer ones cannot "
        f"be learned from so few photos. {100 * CORRUPTED:.0f} % of the annotations were moved by "
        "10 % of the side, or given another of these categories at random. AUROC of the score, "
        f"per annotation ({cell(of('corrupted', 'judged'), '.0f')} judged, "
        f"{cell(of('corrupted', 'wrong'), '.0f')} of them wrong):",
        sizes("corrupted"),
        f"The same with the {CATEGORIES} categories that occur in the most images, and the photos "
        f"with one of them ({cell(of('common', 'judged'), '.0f')} judged, "
        f"{cell(of('common', 'wrong'), '.0f')} wrong):",
        sizes("common"),
        "### COCO: deleted annotations",
        f"{100 * CORRUPTED:.0f} % of the annotations of at least {100 * DELETED_AREA:.0f} % of the "
        f"photo were deleted ({cell(of('deleted', 'deleted'), '.0f')}). One is found if a region "
        f"among the first {PER_IMAGE} missing ones per image, on average, covers at least "
        f"{100 * FOUND:.0f} % of it, whatever class it is proposed as; the last column requires "
        "its class.",
    ]
    names = sorted(
        {key[7:] for one in results["deleted"] for key in one if key.startswith("found: ")}
    )
    found = of("deleted", "found")
    rows = [["all", cell(found, ".2f"), f"{FOUND_BAR:.2f}", reached(found, FOUND_BAR),
             cell(of("deleted", "class right"), ".2f")]]  # fmt: skip
    rows += [
        [f"{name} ({int(np.nansum(of('deleted', f'deleted: {name}')))} in all)",
         cell(of("deleted", f"found: {name}"), ".2f"), "", "", ""]
        for name in names
    ]  # fmt: skip
    text.append(table_text(["category", "found", "target", "reached", "class is right"], rows))
    text += [
        "### Parts of masks",
        f"Masks of one object. In {100 * CORRUPTED:.0f} % of them a part of "
        f"{100 * PART[0]:.0f}–{100 * PART[1]:.0f} % of the object was cut off, or added next to "
        f"it. Share of the errors of at least {MIN_ERROR} superpixels that a region of the right "
        "kind (missing, spurious) overlaps in at least one pixel:",
    ]
    columns = ("found", "cut off", "added", "found, one per image")
    rows = [
        [name, *(cell(of(name, what), ".2f") for what in columns),
         cell(of(name, "errors"), ".0f"), cell(of(name, "regions per image"), ".1f"),
         f"{PART_BAR:.2f}", reached(of(name, "found"), PART_BAR)]
        for name in ("horses", "medical")
    ]  # fmt: skip
    text.append(
        table_text(
            ["set", "found", "cut off", "added", "among as many regions as images", "errors",
             "regions per image", "target", "reached"], rows,
        )
    )  # fmt: skip
    return "\n\n".join(text)


def measure(
    folder: Path, cache: Path, seeds: Sequence[int], recipe: Recipe, min_images: int
) -> dict[str, list[dict[str, float]]]:
    results: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        for name in ("corrupted", "common", "deleted", "horses", "medical"):
            model, dataset, truth = fit_set(name, seed, folder, cache, recipe, min_images)
            log(f"{name}, seed {seed}: objects")
            table = review_objects(model, dataset)
            if name in ("corrupted", "common"):
                one = measure_annotations(table, truth)
            elif name == "deleted":
                one = measure_deleted(table, truth, dataset)
            else:
                one = measure_parts(table, truth, dataset)
            log(f"{name}, seed {seed}: {one}")
            results.setdefault(name, []).append(one)
    return results


def main() -> None:
    arguments: argparse.ArgumentParser = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path, help="photos and true masks")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--cache", type=Path, help="folder for datasets and models")
    arguments.add_argument("--min-images", type=int, default=MIN_IMAGES)
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        cache, folder = args.cache or Path(temporary) / "cache", args.folder
        recipe, seeds, min_images = Recipe(), args.seeds, args.min_images
        if args.smoke or folder is None:
            folder = Path(temporary) / "photos"
            draw_folder(folder, 12)
            recipe, seeds, min_images = Recipe(backbone="colour", superpixels=60), 1, 1
        results = measure(folder, cache, range(seeds), recipe, min_images)
    text = page(results, seeds, min_images)
    print(text)
    if args.write:
        before, rest = PAGE.read_text().split(BEGIN)
        _, after = rest.split(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
