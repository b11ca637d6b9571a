"""Time of an update with 20 new photos and 5 changed masks on 200, compared with a new ingest.

Draws the photos of the demo. The cluster is warm: its start and the imports of its workers are not
counted. The two datasets are compared image by image.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from common import Section, parser, seconds
from PIL import Image

from gpgc_dask import Recipe, RunOptions, ingest, open_dataset, update
from gpgc_dask.clusters.connect import connect
from gpgc_dask.data.schema import VARIABLES
from gpgc_dask.demo.folders import write_set

BAR = 0.2

NUMBERS = ("image", "object_image")
"""Arrays with numbers of images, which depend on their order."""


def add_photos(drawn: Path, folder: Path, names: list[str]) -> None:
    """Copy photos and masks by name."""
    for kind, ending in (("images", "jpg"), ("masks", "png")):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy2(drawn / kind / f"{name}.{ending}", folder / kind)


def change_masks(folder: Path, names: list[str]) -> None:
    for name in names:
        path = folder / f"masks/{name}.png"
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def count_differences(one: Path, other: Path) -> int:
    """Number of arrays of images that differ between two datasets, whatever their order."""
    datasets = [open_dataset(path).load() for path in (one, other)]
    orders = [np.argsort(data["image_name"].values) for data in datasets]
    different = 0
    for name in VARIABLES:
        if name in NUMBERS:
            continue
        first, second = (
            _by_image(data, name, order) for data, order in zip(datasets, orders, strict=True)
        )
        different += sum(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    return different


def _by_image(data, name: str, order: np.ndarray) -> list[np.ndarray]:
    values, dimension = data[name].values, data[name].dims[0]
    if dimension == "photo":
        return [values[number] for number in order]
    owners = {"superpixel": "image", "object": "object_image"}
    if dimension not in owners:
        return [values]
    owner = data[owners[dimension]].values
    return [values[owner == number] for number in order]


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    n, more, changed = (6, 2, 1) if args.smoke else (200, 20, 5)
    recipe = Recipe(backbone="colour", superpixels=30) if args.smoke else Recipe()
    with tempfile.TemporaryDirectory() as name, connect(workers=2):
        place = Path(name)
        write_set(place / "drawn", n + more)
        names = sorted(path.stem for path in (place / "drawn/images").iterdir())
        rng = np.random.default_rng(0)
        late = set(rng.choice(names, more, replace=False).tolist())
        early = [name for name in names if name not in late]
        folders = place / "set/images", place / "set/masks"
        add_photos(place / "drawn", place / "set", early)
        old, target, fresh = (place / f"{name}.zarr" for name in ("old", "updated", "fresh"))
        ingest(*folders, old, recipe=recipe)
        add_photos(place / "drawn", place / "set", sorted(late))
        change_masks(place / "set", rng.choice(early, changed, replace=False).tolist())
        times: dict[str, list[float]] = {"update": [], "ingest": []}
        again = RunOptions(overwrite=True)
        for _ in range(args.repeats):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(old, target)
            taken, report = seconds(lambda: update(target, *folders))
            times["update"].append(taken)
            assert (report.new, report.relabelled) == (more, changed), report
            taken, _ = seconds(lambda: ingest(*folders, fresh, recipe=recipe, run=again))
            times["ingest"].append(taken)
        idle, _ = seconds(lambda: update(target, *folders))
        different = count_differences(target, fresh)
        assert not different, f"{different} arrays differ"
    best = {name: min(taken) for name, taken in times.items()}
    ratio = best["update"] / best["ingest"]
    section.add(
        f"A dataset of {n} photos of the demo, to which {more} photos are added and in which "
        f"{changed} masks are changed; two workers, best of {args.repeats} runs. The updated "
        "dataset equals the new one: no array of an image differs."
    )
    section.table(
        ("", "seconds"),
        [
            ("`gpgc update`", f"{best['update']:.2f}"),
            (f"`gpgc ingest` of all {n + more} photos", f"{best['ingest']:.2f}"),
            ("ratio", f"{ratio:.2f} (bar {BAR})"),
            ("`gpgc update` if nothing has changed", f"{idle:.2f}"),
        ],
    )
    section.finish()


if __name__ == "__main__":
    main()
