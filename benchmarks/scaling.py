"""Speed-up of two workers, and the time of a read by rows and features."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from common import Section, Superpixels, best_seconds, cluster, parser, seconds, write_superpixels

from gpgc_dask import GPGC
from gpgc_dask.gp.evidence import posterior
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.oracle.base import Rows, TermsRequest
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.solvers.probes import probe_directions

TARGET = 1.7


def one_step(data: Superpixels):
    """A function that takes one step from one read, as a fit does."""
    n, k = data.X.shape
    n_groups = int(data.groups.max()) + 1
    rows = Rows(data.y.astype(np.intp), np.ones(n), data.groups, 2, n_groups)
    arithmetic = Arithmetic(np.dtype(np.float32), np.full(k, 0.5))
    sweeps = DaskSweeps(data.X, rows, arithmetic)
    log_noise = np.zeros(n_groups)
    post = posterior(sweeps.moments(log_noise, 1.0), np.full(k, 0.02))
    request = TermsRequest(
        directions=probe_directions(post), gradient_groups=np.ones(n_groups, dtype=bool)
    )
    rule = FixedPointRule(1, np.log(1e-4), np.log(1e4))
    return lambda: sweeps.step(post, log_noise, 1.0, rule, leave_out=False, request=request)


def pin(core: int) -> None:
    """Restrict all threads of this process, and those they start, to one core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def compare(data: Superpixels, repeats: int, pinned: bool) -> dict[str, float]:
    """Best seconds of a step and of a fit on one worker and on two, in alternation.

    One cluster at a time: an idle one takes a few per cent of a core, which would all be missed
    by the two workers and not by the one.
    """
    cores = sorted(os.sched_getaffinity(0))
    times: dict[str, list[float]] = {}
    for _, workers in product(range(repeats), (1, 2)):
        with cluster(workers=workers) as client:
            if pinned:
                for number, worker in enumerate(client.nthreads()):
                    client.run(pin, cores[number % len(cores)], workers=[worker])
            step = one_step(data)
            for _ in range(2):
                times.setdefault(f"one step {workers}", []).append(seconds(step)[0])
            times.setdefault(f"whole fit {workers}", []).append(seconds(partial(fit, data))[0])
    return {what: min(taken) for what, taken in times.items()}


def fit(data: Superpixels) -> None:
    GPGC(redundancy=1.0, rounds=0).fit(data.X, data.y, **data.fit_arguments)


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    n, k = (4096, 48) if args.smoke else (131_072, 512)
    sizes = [(n, k), (2 * n, k), (4 * n, k), (n, 2 * k), (8 * n, 2 * k)]
    with tempfile.TemporaryDirectory() as folder:
        data = {
            (rows, width): write_superpixels(
                Path(folder) / f"{rows}x{width}.zarr", rows, width, rows // 130
            )
            for rows, width in sizes
        }
        with cluster(workers=2):
            steps = {str(size): one_step(data[size]) for size in sizes}
            taken = best_seconds(steps, args.repeats)
        whole = data[sizes[-1]]
        ways = (True,) if args.smoke else (True, False)
        by_workers = {pinned: compare(whole, args.repeats, pinned) for pinned in ways}
    section.add(
        "One step (all four operations, one read) from Zarr on two workers with one thread each:"
    )
    first = taken[str(sizes[0])]
    section.table(
        ["rows", "features", "seconds", "÷ the first", "rows × features² ÷ the first"],
        [
            (
                f"{rows:,}",
                f"{width:,}",
                f"{taken[str((rows, width))]:.2f}",
                f"{taken[str((rows, width))] / first:.2f}",
                f"{rows * width**2 / (n * k**2):.0f}",
            )
            for rows, width in sizes
        ],
    )
    rows, width = sizes[-1]
    section.add(
        f"The same work, {rows:,} × {width:,}, on one worker and on two, in alternation. "
        '"One core per worker": each worker is restricted to one core, as on a machine of its own. '
        '"Both cores": a single worker can read ahead on the second core.'
    )
    section.table(
        ["", "one worker, s", "two workers, s", "speed-up", "target"],
        [
            (
                f"{what}, {'one core per worker' if pinned else 'both cores'}",
                f"{taken[f'{what} 1']:.2f}",
                f"{taken[f'{what} 2']:.2f}",
                f"**{taken[f'{what} 1'] / taken[f'{what} 2']:.2f}**",
                f"≥ {TARGET}",
            )
            for what in ("one step", "whole fit")
            for pinned, taken in by_workers.items()
        ],
    )
    section.finish()


if __name__ == "__main__":
    main()
