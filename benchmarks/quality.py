"""What the second look and the estimated quality cost, relative to a fit and a review without them.

Features are generated; superpixels are the cells of a grid, and a mask has the class of its cells.
Without second look and quality, a review is the predictions for each image by the model without it.
``--other PYTHON`` also times fit and predictions of another installation, on the same data.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from common import Section, Superpixels, best_seconds, cluster, parser, write_superpixels

from gpgc_dask import GPGC
from gpgc_dask.quality.estimate import estimate_quality
from gpgc_dask.quality.predictions import Evidence

CELLS = (15, 20)
CELL = 12
"""Cells of the grid of an image, and pixels on the side of a cell, as in a photo of half size."""

TIME_TARGET, READS_TARGET = 1.6, 3

OTHER = """
import json, sys, time
import numpy as np, zarr
from dask import array as da
from distributed import Client, LocalCluster
from gpgc_dask import GPGC

def main(folder, repeats):
    data = np.load(folder + "/arrays.npz")
    X = da.from_zarr(zarr.open_array(folder + "/X.zarr", mode="r"))
    times = {"fit": [], "predictions": []}
    with LocalCluster(2, threads_per_worker=1, memory_limit="4GB", dashboard_address=":0") as local:
        with Client(local):
            for _ in range(repeats + 1):
                start = time.perf_counter()
                names = {"groups": data["groups"], "feature_groups": data["feature_groups"]}
                model = GPGC().fit(X, data["y"], **names)
                times["fit"].append(time.perf_counter() - start)
                start = time.perf_counter()
                model.leave_group_out(X, data["y"], data["groups"]).compute()
                times["predictions"].append(time.perf_counter() - start)
    best = {name: min(each[1:]) for name, each in times.items()}
    print(json.dumps(best | {"reads": model.n_reads_}))

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
"""


def time_other(python: str, data: Superpixels, folder: Path, repeats: int) -> dict[str, float]:
    """Seconds of fit and predictions of another installation, and the reads of its fit."""
    arrays = {"y": data.y, "groups": data.groups, "feature_groups": data.feature_groups}
    np.savez(folder / "arrays.npz", **arrays)
    (folder / "other.py").write_text(OTHER)
    command = [python, "-I", str(folder / "other.py"), str(folder), str(repeats)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def write_maps(data: Superpixels, path: Path) -> xr.Dataset:
    """Superpixel maps and masks of the images, from Zarr."""
    side = np.ones((CELL, CELL), dtype=np.uint16)
    segments = np.kron(np.arange(CELLS[0] * CELLS[1], dtype=np.uint16).reshape(CELLS), side)
    sizes = np.bincount(data.groups)
    numbers = [np.minimum(segments, size - 1) for size in sizes]
    first = np.cumsum(sizes) - sizes
    masks = [data.y[start + own] for start, own in zip(first, numbers, strict=True)]
    maps = xr.Dataset(
        {
            "segments": (("photo", "y", "x"), np.stack(numbers).astype(np.uint16)),
            "mask": (("photo", "y", "x"), np.stack(masks).astype(np.uint8)),
            "segment_height": ("photo", np.full(sizes.size, segments.shape[0])),
            "segment_width": ("photo", np.full(sizes.size, segments.shape[1])),
            "image_name": ("photo", [str(number) for number in range(sizes.size)]),
        },
        attrs={"classes": ["background", "object"]},
    )
    maps.chunk(photo=64).to_zarr(path)
    stored = xr.open_zarr(path)
    # As in a dataset: sizes and names are in memory.
    return stored.assign({name: each.load() for name, each in stored.items() if each.ndim == 1})


def estimate(model: GPGC, data: Superpixels, maps: xr.Dataset, values: Any) -> None:
    evidence = Evidence(
        np.asarray(values, dtype=np.float32),
        data.y.astype(np.intp),
        np.full(data.y.size, float(CELL**2)),
        data.groups,
        model.noise_variance_,
        np.arange(2),
    )
    estimate_quality(maps, evidence)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--other", metavar="PYTHON", help="program of another installation")
    args = options.parse_args()
    section = Section(args, __file__)
    n_images, k = (40, 64) if args.smoke else (437, 1024)
    n = n_images * CELLS[0] * CELLS[1] if args.smoke else 131_072
    with tempfile.TemporaryDirectory() as folder, cluster():
        data = write_superpixels(Path(folder) / "X.zarr", n, k, n_images)
        maps = write_maps(data, Path(folder) / "maps.zarr")
        models: dict[str, GPGC] = {}
        values: dict[str, Any] = {}

        def fit(name: str, rounds: int) -> None:
            models[name] = GPGC(rounds=rounds).fit(data.X, data.y, **data.fit_arguments)

        def predict(name: str) -> None:
            values[name] = models[name].leave_group_out(data.X, data.y, data.groups).compute()

        taken = best_seconds(
            {
                "fit, rounds=0": lambda: fit("without", 0),
                "predictions, rounds=0": lambda: predict("without"),
                "fit, rounds=2": lambda: fit("with", 2),
                "predictions, rounds=2": lambda: predict("with"),
                "quality": lambda: estimate(models["with"], data, maps, values["with"]),
            },
            args.repeats,
        )
        other = time_other(args.other, data, Path(folder), args.repeats) if args.other else None
    section.add(
        f"{n:,} × {k:,} float32, {n_images:,} images, two workers with one thread each; best of "
        f"{args.repeats} runs."
    )
    section.table(["step", "seconds"], [(name, f"{value:.1f}") for name, value in taken.items()])
    extra = sum(taken[name] for name in ("fit, rounds=2", "predictions, rounds=2", "quality"))
    reads = {name: model.n_reads_ for name, model in models.items()}
    rows = [("this version, rounds=0", taken["fit, rounds=0"] + taken["predictions, rounds=0"],
             reads["without"])]  # fmt: skip
    if other:
        rows.append(("the other installation", other["fit"] + other["predictions"], other["reads"]))
    section.table(
        ["second look and quality, relative to fit and predictions of", "seconds", "time",
         "target", "more reads of the data", "target"],
        [
            (name, f"{before:.1f}", f"{extra / before:.2f}", f"at most {TIME_TARGET}",
             f"{reads['with'] - read:.0f}", f"at most {READS_TARGET}")
            for name, before, read in rows
        ],
    )  # fmt: skip
    section.finish()


if __name__ == "__main__":
    main()
