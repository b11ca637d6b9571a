"""Fits of the paper's sizes, compared with their plans: minutes, reads and memory.

The data are written one after another into a folder, which needs 45 GB, and removed. All of it
takes about an hour on two cores. ``--only`` chooses one, ``--share`` writes and fits a share of the
rows.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Section, cluster, parser, seconds, write_superpixels
from dask.utils import format_bytes
from memory import forget_peak, peak_resident
from paper import FEATURES, IMAGES, SUPERPIXELS

from gpgc_dask import GPGC
from gpgc_dask.core.errors import InputError

WORKERS = 2
WITHIN = 0.25
PAPER = "a few hours on 20 machines"


@dataclass(frozen=True)
class Size:
    """A dataset, the memory of all workers together, and what the fit estimates."""

    name: str
    rows: int
    images: int
    features: int
    memory: int
    redundancy: float | str = "auto"
    rounds: int | None = None


SIZES = {
    "cats": Size("AutoSeg cats", 436_000, IMAGES["AutoSeg cats"], FEATURES, 3 * 10**9, 1.0, 0),
    "dogs": Size(
        "HDSeg dogs, default network", IMAGES["HDSeg dogs"] * SUPERPIXELS, IMAGES["HDSeg dogs"],
        489, 8 * 10**9,
    ),
    "horses": Size(
        "HDSeg horses", IMAGES["HDSeg horses"] * SUPERPIXELS, IMAGES["HDSeg horses"], FEATURES,
        3 * 10**9,
    ),
}  # fmt: skip
SMOKE = Size("small", 8_700, 60, 160, 3 * 10**9)


@dataclass(frozen=True)
class Run:
    """A fit that was planned and measured; times in seconds, memory in bytes."""

    size: Size
    writing: float
    planning: float
    plan: Any
    taken: float
    peaks: list[int]
    driver: int
    reads: float
    converged: bool


def fit(size: Size, folder: Path) -> Run:
    place = Path(tempfile.mkdtemp(prefix="gpgc-sizes-", dir=folder))
    n, k = size.rows, size.features
    if shutil.disk_usage(place).free < 1.1 * 4 * n * k:
        raise InputError(f"{place} has no room for {format_bytes(4 * n * k)}: name another folder")
    try:
        writing, data = seconds(lambda: write_superpixels(place / "X.zarr", n, k, size.images))
        with cluster(workers=WORKERS, memory=str(size.memory // WORKERS)) as client:
            model = GPGC(redundancy=size.redundancy, rounds=size.rounds, progress=True)
            planning, plan = seconds(lambda: model.plan(data.X, groups=data.groups, calibrate=True))
            print(plan, flush=True)
            forget_peak()  # of writing the data
            taken, _ = seconds(lambda: model.fit(data.X, data.y, **data.fit_arguments))
            peaks = list(client.run(peak_resident).values())
    finally:
        shutil.rmtree(place)
    converged = bool(model.converged_)
    return Run(
        size, writing, planning, plan, taken, peaks, peak_resident(), model.n_reads_, converged
    )


def report(section: Section, run: Run) -> None:
    size, plan = run.size, run.plan
    data = size.rows * size.features * 4
    section.add(
        f"{size.name}: {size.images:,} images, {size.rows:,} × {size.features:,} float32 "
        f"({format_bytes(data)}, written in {run.writing:.0f} s), {WORKERS} workers with one "
        f"thread and {size.memory / WORKERS / 1e9:.1f} GB each, redundancy {size.redundancy}. "
        f"{'Converged' if run.converged else 'NOT converged'}; planned in {run.planning:.0f} s. "
        f"The paper: {PAPER}."
    )
    rows = [
        _row("time, min", plan.seconds / 60, run.taken / 60, ".1f"),
        _row("reads of the data", plan.reads, run.reads, ".2f"),
        _row("peak memory per worker, MB", plan.worker_bytes / 1e6, max(run.peaks) / 1e6, ".0f"),
        _row("peak memory of the driver, MB", plan.driver_bytes / 1e6, run.driver / 1e6, ".0f"),
        (
            "peak memory of all workers, GB",
            "",
            f"**{sum(run.peaks) / 1e9:.2f}**",
            "",
            f"≤ {size.memory / 1e9:g}",
        ),
        ("features read, GB", "", f"{run.reads * data / 1e9:.1f}", "", ""),
    ]
    section.table(["", "planned", "measured", "planned ÷ measured", "target"], rows)


def _row(name: str, planned: float, measured: float, form: str) -> tuple[str, ...]:
    bar = f"{1 - WITHIN:g} to {1 + WITHIN:g}"
    return (
        name,
        f"{planned:{form}}",
        f"{measured:{form}}",
        f"**{planned / max(measured, 1e-9):.2f}**",
        bar,
    )


def part_of(size: Size, share: float) -> Size:
    """The size with a share of the images."""
    return Size(
        f"{size.name}, {share:.0%} of the images",
        int(size.rows * share),
        int(size.images * share),
        size.features,
        size.memory,
        size.redundancy,
        size.rounds,
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument(
        "--folder", type=Path, help="where to write the data, default: the temporary folder"
    )
    arguments.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES))
    arguments.add_argument("--share", type=float, help="share of the images, such as 0.1")
    args = arguments.parse_args()
    section = Section(args, __file__)
    sizes = [SMOKE] if args.smoke else [SIZES[name] for name in args.only]
    if args.share:
        sizes = [part_of(size, args.share) for size in sizes]
    for size in sizes:
        report(section, fit(size, args.folder or Path(tempfile.gettempdir())))
    section.finish()


if __name__ == "__main__":
    main()
