"""Reading ahead from a slow store, and BLAS threads with every way to run dask."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import dask
import zarr
from common import Section, best_seconds, cluster, parser, write_superpixels
from dask import array as da
from distributed import Client, LocalCluster
from scaling import one_step
from zarr.storage import LocalStore
from zarr.testing.store import LatencyStore


def in_turn(makers):
    """Read blocks one after another, without reading ahead."""
    return (make() for make in makers)


def slow(path: Path, latency: float) -> da.Array:
    """The array, with a delay in seconds added to each request."""
    store = LatencyStore(LocalStore(path, read_only=True), get_latency=latency)
    return da.from_zarr(zarr.open_array(store, mode="r"))


@contextlib.contextmanager
def way(name: str) -> Iterator[None]:
    if name == "threads of this process":
        with dask.config.set(scheduler="threads"):
            yield
    elif name == "one worker process with two threads":
        with cluster(workers=1, threads=2):
            yield
    elif name == "two worker processes with one thread each":
        with cluster(workers=2, threads=1):
            yield
    else:
        with (
            LocalCluster(
                n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
            ) as local,
            Client(local),
        ):
            yield


WAYS = (
    "threads of this process",
    "threads of a Dask client in this process",
    "one worker process with two threads",
    "two worker processes with one thread each",
)


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    n, k = (4096, 32) if args.smoke else (65_536, 1024)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.zarr"
        data = write_superpixels(path, n, k, n // 130)
        F = data.X.compute()
        by_way = {}
        for name in WAYS:
            with way(name):
                by_way[name] = best_seconds({"step": one_step(data)}, args.repeats)["step"]
        gram = best_seconds({"gram": lambda: F.T @ F}, args.repeats)["gram"]
        rows_told = []
        for latency in (0.0, 0.02 if args.smoke else 0.1):
            lazy = slow(path, latency)
            step = one_step(
                type(data)(lazy, data.y, data.groups, data.feature_groups, data.corrupted)
            )

            def waiting(step=step):
                with mock.patch("gpgc_dask.gp.oracle.dask.prefetch", in_turn):
                    step()

            taken = best_seconds({"ahead": step, "waiting": waiting}, args.repeats)
            rows_told.append(
                (
                    f"{1000 * latency:.0f} ms",
                    f"{taken['waiting']:.2f}",
                    f"{taken['ahead']:.2f}",
                    f"{taken['waiting'] / taken['ahead']:.2f}",
                )
            )
    section.add(f"One step of {n:,} × {k:,} float32 from Zarr; one Gram in memory: {gram:.2f} s.")
    section.table(
        ["executor", "s", "÷ one Gram"],
        [(name, f"{taken:.2f}", f"{taken / gram:.2f}") for name, taken in by_way.items()],
    )
    section.add("Threads of this process, with latency added to each request to the store:")
    section.table(
        ["added latency", "without reading ahead, s", "with reading ahead, s", "ratio"],
        rows_told,
    )
    section.finish()


if __name__ == "__main__":
    main()
