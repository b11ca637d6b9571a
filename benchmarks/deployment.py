"""Plan for the paper's largest dataset on Kubernetes: sizes, traffic, time, node-hours.

Planned, not run: for cores and stores of stated speed, as ``gpgc plan --calibrate`` measures them.
"""

from __future__ import annotations

from dataclasses import replace

from common import Section, parser
from dask.utils import format_bytes
from paper import FEATURES, IMAGES

from gpgc_dask.clusters.kubernetes import Settings
from gpgc_dask.clusters.kubernetes.sizes import ROUNDS, Sizes
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.plan import Plan, duration, plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape

GUIDE = "../deploy/README.md"
"""The page to write to, relative to docs/."""

WORKERS, THREADS = 20, 16

CASES = [(100e9, 2e9), (100e9, 1e9), (50e9, 1e9), (50e9, 0.25e9)]
"""Multiply-adds per second and core, and bytes per second from the store to a node."""


def planned(shape: Shape, products: float, store: float) -> Plan:
    machine = replace(Machine.typical(products), read_bytes_per_second=store / THREADS)
    return plan(
        shape,
        estimate_redundancy=True,
        separable=True,
        resources=Resources(WORKERS, THREADS, None, True),
        machine=machine,
        rounds=ROUNDS,
    )


def main() -> None:
    section = Section(parser(__doc__).parse_args(), __file__, GUIDE)
    name, images = max(IMAGES.items(), key=lambda item: item[1])
    shape = Shape.from_images(images, FEATURES)
    sizes = Sizes.of(Settings(image="gpgc_dask:1.0", shape=shape, workers=WORKERS, threads=THREADS))
    first = planned(shape, *CASES[0])
    section.add(
        f"{name}: {images:,} images, {shape.n_rows:,} × {shape.n_features:,} float32 "
        f"({format_bytes(4 * shape.n_rows * shape.n_features)}), read {first.reads:.1f} times "
        f"({format_bytes(first.bytes_read)} from the store); {format_bytes(first.network_bytes)} "
        "are sent between pods."
    )
    pods = [
        ("worker", WORKERS, THREADS, sizes.worker, first.worker_bytes),
        ("driver", 1, Settings.driver_threads, sizes.driver, first.driver_bytes),
        ("scheduler", 1, 1, sizes.scheduler, None),
    ]
    section.table(
        ["pod", "number", "cores", "memory requested", "of which planned"],
        [
            (role, count, cores, format_bytes(memory), "" if used is None else format_bytes(used))
            for role, count, cores, memory, used in pods
        ],
    )
    rows = []
    for products, store in CASES:
        found = planned(shape, products, store)
        hours = WORKERS * found.seconds / 3600
        rows.append(
            (
                f"{products / 1e9:.0f} G multiply-adds/s",
                f"{store / 1e9:g} GB/s",
                duration(found.seconds),
                f"{hours:.2g}",
                f"{hours * THREADS:.0f}",
            )
        )
    section.table(
        [
            "speed per core",
            "store bandwidth per node",
            "time",
            "node-hours of workers",
            "core-hours",
        ],
        rows,
    )
    section.finish()


if __name__ == "__main__":
    main()
