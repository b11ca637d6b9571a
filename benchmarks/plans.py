"""Cost of fits of several sizes, as planned by ``gpgc plan``, calibrated on this machine.

``--measure`` also runs what a plan covers, at sizes that take minutes, and divides planned by
measured time, reads and memory. ``--costs`` prints what ingest and review cost one core, as
``gpgc_dask/planning/stages.py`` has it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import Section, cluster, parser, seconds, write_superpixels
from dask.utils import format_bytes
from distributed import Client
from memory import forget_peak, peak_resident
from paper import FEATURES, IMAGES, SUPERPIXELS
from photos import save_set

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.models.review_cost import measure_review
from gpgc_dask.pipelines.ingest import RunOptions, ingest
from gpgc_dask.pipelines.ingest_cost import measure_ingest
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.plan import duration, plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.stages import TYPICAL_INGEST, TYPICAL_REVIEW
from gpgc_dask.planning.sweeps import ROUNDS

HERE = Resources(workers=2, threads=1, memory_limit=None, separate=True)
CLUSTER = Resources(workers=20, threads=16, memory_limit=None, separate=True)
DEFAULT_FEATURES = 489
"""Number of features of the default network, with position and constant."""

WITHIN = 0.25
MEASURED = ((58_000, 256, 200), (131_072, 512, 437), (131_072, 1_024, 437), (58_000, 2_048, 400))
"""(rows, features, images) of fits that take a minute or two."""

PHOTOS = 200


def plans(section: Section, *, smoke: bool) -> None:
    sizes = [
        *(
            (name, Shape.from_images(images, FEATURES, SUPERPIXELS))
            for name, images in IMAGES.items()
        ),
        *(
            (f"{name}, default network", Shape.from_images(images, DEFAULT_FEATURES))
            for name, images in (
                ("200 photos", 200),
                *((name, IMAGES[name]) for name in ("AutoSeg cats", "HDSeg dogs")),
            )
        ),
    ]
    if smoke:
        sizes = sizes[-3:-2]
    machines = {k: Machine.calibrate(k) for k in {shape.n_features for _, shape in sizes}}
    photo = TYPICAL_INGEST if smoke else measure_ingest(Recipe())
    review = TYPICAL_REVIEW if smoke else measure_review()
    rows = []
    for name, shape in sizes:
        k = shape.n_features
        here, there = (
            plan(
                shape,
                estimate_redundancy=True,
                separable=True,
                resources=resources,
                machine=machines[k],
                rounds=ROUNDS,
            )
            for resources in (HERE, CLUSTER)
        )
        before = photo.stage(shape.n_groups, HERE).seconds if k == DEFAULT_FEATURES else None
        rows.append(
            (
                name,
                f"{shape.n_groups:,}",
                format_bytes(4 * shape.n_rows * k),
                "" if before is None else duration(before),
                f"{here.reads:.1f}",
                format_bytes(here.worker_bytes),
                duration(here.seconds),
                duration(here.second_look_seconds),
                duration(review.stage(shape.n_groups, shape.n_rows, HERE).seconds),
                format_bytes(there.worker_bytes),
                format_bytes(there.network_bytes),
                duration(there.seconds),
            )
        )
    speeds = ", ".join(
        f"{machine.products_per_second / 1e9:.0f} G multiply-adds/s per core at {k:,} features"
        for k, machine in sorted(machines.items())
    )
    section.add(
        f"`gpgc plan --images … --calibrate`, redundancy estimated, {ROUNDS} rounds of the second "
        f"look, {SUPERPIXELS} superpixels per image, {sizes[-1][1].largest_group} with the default "
        f"network; on two workers of one core of this machine ({speeds}; one photo "
        f"{1e3 * photo.photo_seconds:.0f} ms of one core) and on 20 workers of 16 such cores that "
        "send 1 GB/s to each other."
    )
    section.table(
        ["dataset", "images", "data", "ingest here", "reads", "memory here", "fit here",
         "of it the second look", "review here", "memory, 1 of 20 workers", "network",
         "fit on 20 workers"],
        rows,
    )  # fmt: skip


def measured_fit(
    client: Client, n: int, k: int, images: int
) -> Iterator[tuple[str, str, float, float]]:
    """(what, of what, planned, measured) of a fit of generated rows."""
    with tempfile.TemporaryDirectory() as folder:
        data = write_superpixels(Path(folder) / "X.zarr", n, k, images)
        model = GPGC()
        found = model.plan(data.X, groups=data.groups, calibrate=True)
        client.run(forget_peak)
        taken, _ = seconds(lambda: model.fit(data.X, data.y, **data.fit_arguments))
        peak = max(client.run(peak_resident).values())
    name = f"fit, {n:,} × {k:,}"
    yield name, "time, s", found.seconds, taken
    yield name, "reads", found.reads, model.n_reads_
    yield name, "memory, MB", found.worker_bytes / 1e6, peak / 1e6


def measured_photos(
    client: Client, n: int, height: int, width: int, backbone: str
) -> Iterator[tuple[str, str, float, float]]:
    """The same of ingest, fit and review of drawn photos."""
    recipe, run = Recipe(backbone=backbone), RunOptions(overwrite=True)
    photo = measure_ingest(recipe)
    with tempfile.TemporaryDirectory() as place:
        folder, target = Path(place) / "drawn", Path(place) / "data.zarr"
        save_set(folder, n, height, width, wrong_share=0.2)
        client.run(measure_ingest, recipe)  # imports, and loads the network
        client.run(forget_peak)
        stage = photo.stage(n, HERE)
        taken, _ = seconds(
            lambda: ingest(folder / "images", folder / "masks", target, recipe=recipe, run=run)
        )
        peak = max(client.run(peak_resident).values())
        yield f"ingest, {n} photos", "time, s", stage.seconds, taken
        yield f"ingest, {n} photos", "memory, MB", stage.worker_bytes / 1e6, peak / 1e6
        dataset, model = open_dataset(str(target)), GPGC()
        found = model.plan(dataset, calibrate=True)
        taken, _ = seconds(lambda: model.fit(dataset))
        yield f"fit, {n} photos", "time, s", found.seconds, taken
        yield f"fit, {n} photos", "reads", found.reads, model.n_reads_
        (stage,) = found.stages
        client.run(forget_peak)
        taken, _ = seconds(lambda: model.review(dataset))
        peak = max(client.run(peak_resident).values())
        yield f"review, {n} photos", "time, s", stage.seconds, taken
        yield f"review, {n} photos", "memory, MB", stage.worker_bytes / 1e6, peak / 1e6


def measured(*, smoke: bool) -> Iterator[tuple[str, str, float, float]]:
    photos = (12, 60, 80, "colour") if smoke else (PHOTOS, 375, 500, "lite0")
    with cluster() as client:
        yield from measured_photos(client, *photos)
    for size in () if smoke else MEASURED:
        with cluster() as client:
            yield from measured_fit(client, *size)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--measure", action="store_true", help="run what is planned, too")
    arguments.add_argument("--costs", action="store_true", help="print the costs of one core only")
    args = arguments.parse_args()
    if args.costs:
        start = time.perf_counter()
        print(measure_ingest(Recipe()), measure_review(), sep="\n")
        print(f"measured in {time.perf_counter() - start:.1f} s")
        return
    section = Section(args, __file__)
    plans(section, smoke=args.smoke)
    if args.measure or args.smoke:
        found = list(measured(smoke=args.smoke))
        section.add("Planned and measured, two workers with one thread each:")
        section.table(
            ["what", "", "planned", "measured", f"planned ÷ measured (bar {WITHIN:.0%})"],
            [
                (what, of, f"{planned:.3g}", f"{taken:.3g}", f"**{planned / taken:.2f}**")
                for what, of, planned, taken in found
            ],
        )
    section.finish()


if __name__ == "__main__":
    main()
