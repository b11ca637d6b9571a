"""Cost of fits of several sizes, as planned by ``gpgc plan``, calibrated on this machine."""

from __future__ import annotations

from common import Section, parser
from dask.utils import format_bytes
from paper import FEATURES, IMAGES, SUPERPIXELS

from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.plan import duration, plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape

HERE = Resources(workers=1, threads=2, memory_limit=None, separate=False)
CLUSTER = Resources(workers=20, threads=16, memory_limit=None, separate=True)
DEFAULT_FEATURES = 489
"""Number of features of the default network, with position and constant."""


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
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
    if args.smoke:
        sizes = sizes[-3:-2]
    machines = {k: Machine.calibrate(k) for k in {shape.n_features for _, shape in sizes}}
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
            )
            for resources in (HERE, CLUSTER)
        )
        rows.append(
            (
                name,
                f"{shape.n_groups:,}",
                format_bytes(4 * shape.n_rows * k),
                f"{here.reads:.1f}",
                format_bytes(here.worker_bytes),
                duration(here.seconds),
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
        "`gpgc plan --images … --calibrate`, redundancy estimated, "
        f"{SUPERPIXELS} superpixels per image, {sizes[-1][1].largest_group} with the default "
        f"network; on the two cores of this machine ({speeds}) and on 20 workers of 16 such cores "
        "that send 1 GB/s to each other."
    )
    section.table(
        ["dataset", "images", "data", "reads", "memory here", "time here",
         "memory, 1 of 20 workers", "network", "time on 20 workers"],
        rows,
    )  # fmt: skip
    section.finish()


if __name__ == "__main__":
    main()
