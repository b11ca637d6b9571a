"""What a sweep costs the scheduler and the driver with many workers that do no arithmetic.

The graph is that of a fit of HDSeg dogs, the largest dataset of the paper: its rows, groups, chunks
and tasks. The workers are real ones of Dask that communicate over TCP, many in each process. Their
tasks receive everything that tasks of a fit receive, read nothing, multiply nothing and return
partial sums of the right structure, which are merged as a tree.

CPU seconds count, not wall time: here all workers share a few cores. The driver and the scheduler
are charged all of theirs, although most of it is spent while workers of a real cluster compute.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import zarr
from common import Section, parser
from dask.utils import format_bytes
from distributed import Client, Scheduler, Worker
from distributed.comm.tcp import TCP
from paper import FEATURES, IMAGES, SUPERPIXELS

from gpgc_dask.clusters.local import DASK_SETTINGS
from gpgc_dask.data.writing import chunk_shape
from gpgc_dask.gp import evidence
from gpgc_dask.gp.oracle.base import Rows, TermsRequest
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic, MomentSums
from gpgc_dask.gp.oracle.tasks import Partial, Sweep
from gpgc_dask.planning.machine import Machine

DEFAULT_FEATURES = 489
SMALL_STATE = 64
"""Features of partial sums and of the posterior where those of the paper would fill the memory."""

DIRECTIONS = 32
BAR = 0.1
GIGABYTE = 1e9

sent = 0
"""Bytes that this process has sent."""


SETTINGS = DASK_SETTINGS | {
    # All workers share a few cores.
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "600s",
    "distributed.scheduler.worker-ttl": None,
}


def prepare() -> None:
    """In each process: count bytes, and do not log every worker that comes and goes."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    write = TCP.write

    async def counted(self: TCP, *args: Any, **kwargs: Any) -> int:
        global sent
        size = await write(self, *args, **kwargs)
        sent += size
        return size

    TCP.write = counted


def run_scheduler(pipe: Any) -> None:
    async def run() -> None:
        prepare()
        with dask.config.set(SETTINGS):
            async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
                pipe.send(scheduler.address)
                await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


def run_workers(address: str, number: int, pipe: Any) -> None:
    async def run() -> None:
        prepare()
        with tempfile.TemporaryDirectory() as folder, dask.config.set(SETTINGS):
            workers = [
                Worker(address, nthreads=1, memory_limit=0, dashboard=False, local_directory=folder)
                for _ in range(number)
            ]
            async with asyncio.TaskGroup() as tasks:
                for worker in workers:
                    tasks.create_task(start(worker))
            pipe.send(number)
            await asyncio.to_thread(pipe.recv)
            await asyncio.gather(*(worker.close() for worker in workers))

    async def start(worker: Worker) -> None:
        await worker

    asyncio.run(run())


@dataclass
class Cluster:
    """A client, the process of the scheduler, and those of the workers."""

    client: Client
    scheduler: psutil.Process
    hosts: list[psutil.Process]

    def cpu(self) -> np.ndarray:
        """CPU seconds of driver, scheduler, and all workers."""
        groups = [[psutil.Process()], [self.scheduler], self.hosts]
        times = [[each.cpu_times() for each in group] for group in groups]
        return np.array([sum(t.user + t.system for t in group) for group in times])

    def traffic(self) -> np.ndarray:
        """Bytes that driver, scheduler and workers have sent."""
        workers = self.client.run(_sent)
        # Workers of one process share a counter.
        by_process = dict(workers.values())
        return np.array([sent, self.client.run_on_scheduler(_sent)[1], sum(by_process.values())])


def _sent() -> tuple[int, int]:
    # The script is ``__mp_main__`` in these processes, where its module-level counter is.
    return os.getpid(), sys.modules["__mp_main__"].sent


@contextmanager
def many_workers(number: int, processes: int) -> Iterator[Cluster]:
    context = multiprocessing.get_context("spawn")
    pipes, started = [], []

    def begin(function: Any, *args: Any) -> Any:
        here, there = context.Pipe()
        process = context.Process(target=function, args=(*args, there), daemon=True)
        process.start()
        pipes.append(here)
        started.append(process)
        return here

    try:
        address = begin(run_scheduler).recv()
        shares = np.diff(np.linspace(0, number, processes + 1).astype(int))
        for pipe in [begin(run_workers, address, int(share)) for share in shares]:
            pipe.recv()
        scheduler, *hosts = (psutil.Process(process.pid) for process in started)
        with dask.config.set(SETTINGS), Client(address, timeout=300) as client:
            client.wait_for_workers(number)
            yield Cluster(client, scheduler, hosts)
    finally:
        for pipe in reversed(pipes):
            pipe.send("stop")
        for process in reversed(started):
            process.join(30)
            if process.is_alive():
                process.kill()


@dataclass(frozen=True)
class Idle:
    """A task of a sweep without its arithmetic; the real one and its constants are sent along."""

    sweep: Sweep

    def __call__(self, batches: Any, rows: Rows, first_row: int) -> Partial:
        k, t = self.sweep.projection.mu.shape
        starts = np.flatnonzero(np.diff(rows.groups, prepend=-1))
        groups = rows.groups[starts]
        wanted = groups[self.sweep.gradient_groups[groups]]
        packed = np.zeros(k * (k + 1) // 2)
        return Partial(
            groups,
            np.zeros((4, groups.size)),
            wanted,
            np.zeros((wanted.size, k * t), dtype=np.float32),
            MomentSums(packed, np.zeros((k, t + 1)), np.zeros(t + 1)),
        )


class IdleSweeps(DaskSweeps):
    """The sweeps of a fit with tasks that do no arithmetic."""

    def _run(self, name: str, function: Any, *, whole_groups: bool) -> Any:
        return super()._run(name, Idle(function.__self__), whole_groups=whole_groups)


def same_noise(log_noise: Any, weight: Any, residual: Any, leverage: Any) -> Any:
    return log_noise


@dataclass
class Work:
    """Sweeps over data of a size, with partial sums and posterior of ``state`` features."""

    folder: str
    images: int
    k: int
    state: int

    @cached_property
    def rows(self) -> Rows:
        groups = np.repeat(np.arange(self.images), SUPERPIXELS)
        codes = np.random.default_rng(0).integers(0, 2, groups.size)
        return Rows(codes, np.ones(groups.size), groups, 2, self.images)

    @cached_property
    def sweeps(self) -> DaskSweeps:
        shape = (self.images * SUPERPIXELS, self.k)
        path = os.path.join(self.folder, f"{self.k}-{self.images}.zarr")
        chunks = chunk_shape("features", shape, "float32")
        store = zarr.create_array(path, shape=shape, chunks=chunks, dtype="float32", overwrite=True)
        return IdleSweeps(da.from_zarr(store), self.rows, Arithmetic(np.dtype(np.float32)))

    def step(self) -> None:
        k, p = self.state, min(self.images, self.state)
        post = evidence.Posterior(np.eye(k), np.zeros((k, 1)), 0.0, np.empty(0), np.empty(0))
        wanted = np.zeros(self.images, dtype=bool)
        wanted[:: max(self.images // p, 1)] = True
        request = TermsRequest(directions=np.ones((k, DIRECTIONS)), gradient_groups=wanted)
        noise = np.zeros(self.images)
        self.sweeps.step(post, noise, 1.0, same_noise, leave_out=True, request=request)


@dataclass(frozen=True)
class Measured:
    """Per sweep: CPU seconds and bytes sent of driver, scheduler and workers; wall time; tasks."""

    cpu: np.ndarray
    traffic: np.ndarray
    wall: float
    tasks: int
    first: float


def measure(cluster: Cluster, work: Work, repeats: int) -> Measured:
    start = sum(cluster.cpu()[:2])
    work.step()
    first = sum(cluster.cpu()[:2]) - start
    cpu, traffic, begin = cluster.cpu(), cluster.traffic(), time.perf_counter()
    for _ in range(repeats):
        work.step()
    wall = (time.perf_counter() - begin) / repeats
    spent, shipped = cluster.cpu() - cpu, cluster.traffic() - traffic
    tasks = len(work.sweeps._tasks(whole_groups=True))
    return Measured(spent / repeats, shipped / repeats, wall, tasks, first)


def measure_speed(k: int, *, quick: bool) -> float:
    return (Machine.measure() if quick else Machine.calibrate(k)).products_per_second


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[50, 200])
    arguments.add_argument("--features", type=int, nargs="+", default=[DEFAULT_FEATURES, FEATURES])
    arguments.add_argument(
        "--speeds", type=float, nargs="+", help="multiply-adds per second, instead of measuring it"
    )
    arguments.add_argument("--processes", type=int, default=2, help="that share the workers")
    args = arguments.parse_args()
    section = Section(args, __file__)
    prepare()
    images = 2_000 if args.smoke else IMAGES["HDSeg dogs"]
    numbers = [4] if args.smoke else args.workers
    features = [FEATURES] if args.smoke else args.features
    sizes = [(k, SMALL_STATE if k == FEATURES else k) for k in features]
    known = dict(zip(features, args.speeds or [], strict=False))
    speeds = {k: known.get(k) or measure_speed(k, quick=args.smoke) for k in features}
    results = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for number in numbers:
            with many_workers(number, args.processes) as cluster:
                for k, state in sizes:
                    work = Work(folder, images, k, state)
                    print(f"{number} workers, {k} features", file=sys.stderr, flush=True)
                    results.append((number, k, state, measure(cluster, work, args.repeats)))
    report(section, images, speeds, results)
    section.finish()


def report(
    section: Section,
    images: int,
    speeds: dict[int, float],
    results: list[tuple[int, int, int, Measured]],
) -> None:
    n = images * SUPERPIXELS
    rates = ", ".join(f"{speed / 1e9:.0f} G at {k:,} features" for k, speed in speeds.items())
    section.add(
        f"{n:,} rows, {images:,} groups. Arithmetic: one Gram product, at the multiply-adds per "
        f"second of a core of this machine ({rates}), divided by the number of workers, of one "
        "core each."
    )
    rows = []
    for number, k, _state, found in results:
        arithmetic = n * k**2 / speeds[k] / number
        driver, scheduler, workers = found.cpu
        share = (driver + scheduler) / arithmetic
        rows.append(
            (
                number,
                f"{k:,}",
                f"{found.tasks:,} + {found.tasks - 1:,}",
                f"{driver:.2f}",
                f"{scheduler:.2f}",
                f"{1e3 * workers / number:.0f}",
                format_bytes(int(found.traffic[0])),
                f"{found.traffic[0] / n:.1f}",
                f"{arithmetic:.2f}",
                f"**{share:.1%}**",
            )
        )
    section.table(
        ["workers", "features", "tasks + merges", "driver, CPU s", "scheduler, CPU s",
         "each worker, CPU ms", "sent by the driver", "per row, bytes", "arithmetic, s",
         "driver + scheduler ÷ arithmetic"],
        rows,
    )  # fmt: skip
    section.add(
        f"Of {FEATURES:,} features only the graph is real: partial sums and posterior have "
        f"{SMALL_STATE} features. By arithmetic, at {FEATURES:,} features and 1 GB/s between two "
        "workers:"
    )
    k = FEATURES
    partial_bytes, posterior = 4 * k * (k + 1), 8 * k * k
    section.table(
        ["workers", "partial sum", "sent per worker by the tree", "seconds", "levels of the tree",
         "seconds on its longest path", "posterior sent to all, seconds by copies of copies"],
        [
            (
                number,
                format_bytes(partial_bytes),
                format_bytes(int(tree := partial_bytes * (found.tasks - 1) / number)),
                f"{tree / GIGABYTE:.2f}",
                levels := int(np.ceil(np.log2(max(found.tasks, 2)))),
                f"{levels * partial_bytes / GIGABYTE:.2f}",
                f"{np.ceil(np.log2(number)) * posterior / GIGABYTE:.2f}",
            )
            for number, features, _, found in results
            if features == FEATURES
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
