"""What fits of several sizes will cost, as ``gpgc plan`` tells it: the README's table."""

from __future__ import annotations

import argparse

import dask.array as da
import numpy as np
from dask.utils import format_bytes

from gpgc_dask.planning import Machine, Resources, Shape, plan

SUPERPIXELS = 140
"""An image, about what ingest makes."""

SIZES = ((200, 489), (3_006, 489), (111_668, 489), (3_006, 4_113), (111_668, 4_113))
"""(images, features): the default network's 489, the paper's 4,113; its smallest and largest."""

TWO_CORES = Resources(workers=1, threads=2, memory=None, separate=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="the smallest size alone")
    parser.add_argument("--repeats", type=int, help="accepted like everywhere; nothing is repeated")
    smoke = parser.parse_args().smoke
    machine = Machine.measure()
    print(f"{machine.products_per_second / 1e9:.0f} G multiply-adds/s a core, {machine.name}\n")
    print("| images | features | data | memory | reads of the data | time of the fit |")
    print("| --- " * 6 + "|")
    for images, k in SIZES[: 1 if smoke else None]:
        n = images * SUPERPIXELS
        rows = max(1 << ((16 << 20) // (4 * k)).bit_length() - 1, 64)
        X = da.empty((n, k), chunks=(rows, k), dtype=np.float32)
        groups = np.repeat(np.arange(images), SUPERPIXELS)
        shape = Shape.of(X, groups, 2, None)
        cost = plan(shape, redundancy=True, separable=True, resources=TWO_CORES, machine=machine)
        data, memory = format_bytes(4 * n * k), format_bytes(cost.worker_bytes)
        told = [f"{images:,}", f"{k:,}", data, memory, f"{cost.reads:.0f}"]
        print("|", " | ".join([*told, _duration(cost.seconds)]), "|")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    main()
