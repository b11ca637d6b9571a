"""Data and timing that the benchmarks share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr
from dask import array as da
from distributed import Client, LocalCluster

from gpgc_dask.clusters.local import DASK_SETTINGS

DOCS = Path(__file__).parent.parent / "docs"


def parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument(
        "--smoke", action="store_true", help="use a small size, to check that the script runs"
    )
    result.add_argument(
        "--repeats", type=int, default=3, help="number of runs; the best one counts"
    )
    result.add_argument("--write", action="store_true", help="insert the results into the page")
    return result


class Section:
    """Results of a script: printed and, with ``--write``, inserted into a page."""

    def __init__(self, args: argparse.Namespace, script: str, page: str = "performance.md") -> None:
        self.args = args
        self.page = DOCS / page
        self.name = Path(script).stem
        self.lines: list[str] = []

    def add(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.add()
        self.add("| " + " | ".join(columns) + " |")
        self.add("| --- " * len(columns) + "|")
        for row in rows:
            self.add("| " + " | ".join(str(cell) for cell in row) + " |")
        self.add()

    def finish(self) -> None:
        if not self.args.write:
            return
        begin, end = f"<!-- {self.name}.py -->", f"<!-- end of {self.name}.py -->"
        page = self.page.read_text()
        before, rest = page.split(begin)
        after = rest.split(end)[1]
        text = "\n".join(self.lines).strip()
        self.page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def relu_features(n: int, k: int, seed: int) -> np.ndarray:
    """(n, k) float32 features like those of a network: correlated, sparse, with a nonzero mean."""
    rng = np.random.default_rng(seed)
    rank = min(k, 64)
    mixing = np.random.default_rng(1).standard_normal((rank, k)).astype(np.float32)
    hidden = rng.standard_normal((n, rank), dtype=np.float32) @ mixing / np.sqrt(rank)
    hidden += 0.5 * rng.standard_normal((n, k), dtype=np.float32)
    return np.maximum(hidden, 0.0)


def open_features(path: Path) -> da.Array:
    return da.from_zarr(zarr.open_array(path, mode="r"))


@dataclass(frozen=True)
class Superpixels:
    """Generated data as from ingest: the rows of an image are adjacent.


    Attributes
    ----------
    X : (n, k) dask array
        Features; the last 17 are position (16) and a constant.
    """

    X: da.Array
    y: np.ndarray
    groups: np.ndarray
    feature_groups: np.ndarray
    corrupted: np.ndarray

    @property
    def fit_arguments(self) -> dict[str, Any]:
        """Further arguments of ``fit``."""
        return {"groups": self.groups, "feature_groups": self.feature_groups}


def write_superpixels(
    path: Path, n: int, k: int, n_groups: int, chunk: int | None = None, seed: int = 0
) -> Superpixels:
    """Write features like those of a network, chunk by chunk.

    Hidden factors differ by class, by image and by the object in the image. ReLU makes them sparse
    and gives them a mean. A third of the masks is corrupted to some degree, and some are empty.
    """
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), np.diff(np.linspace(0, n, n_groups + 1).astype(int)))
    truth = rng.random(n) < 0.35
    corrupted = rng.random(n_groups) < 1 / 3
    flip = rng.random(n) < np.where(corrupted, rng.uniform(0.1, 0.5, n_groups), 0.01)[groups]
    empty = rng.random(n_groups) < 0.02
    y = np.where(empty[groups], False, truth ^ flip)
    rank, shown = min(k - 17, 64), k - 17
    mixing = (rng.standard_normal((rank, shown)) / np.sqrt(rank)).astype(np.float32)
    side = 0.35 * rng.standard_normal(rank)
    looks = 0.7 * rng.standard_normal((n_groups, rank))
    sides = side + 0.3 * rng.standard_normal((n_groups, rank))
    chunk = chunk or max(min((16 << 20) // (4 * k), n), 1)
    store = zarr.create_array(
        path, shape=(n, k), chunks=(chunk, k), dtype="float32", compressors=None
    )
    for start in range(0, n, chunk):
        own = slice(start, min(start + chunk, n))
        g, sign = groups[own], np.where(truth[own], 1.0, -1.0)
        hidden = rng.standard_normal((g.size, rank)) + looks[g] + sign[:, None] * sides[g]
        block = np.empty((g.size, k), dtype=np.float32)
        block[:, :shown] = hidden.astype(np.float32) @ mixing + 0.2
        block[:, :shown] += 0.5 * rng.standard_normal((g.size, shown), dtype=np.float32)
        np.maximum(block[:, :shown], 0.0, out=block[:, :shown])
        block[:, shown:-1] = rng.dirichlet(np.full(16, 0.1), g.size)
        block[:, -1] = 1.0
        store[own] = block
    names = np.repeat(["appearance", "position", "constant"], [shown, 16, 1])
    return Superpixels(open_features(path), y, groups, names, corrupted)


@contextmanager
def cluster(workers: int = 2, threads: int = 1, memory: str = "4GB") -> Iterator[Client]:
    """Start a local cluster with the same settings as ``gpgc``."""
    with (
        dask.config.set(DASK_SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=memory,
            dashboard_address=":0",
        ) as local,
        Client(local) as client,
    ):
        yield client


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def best_seconds(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best wall time of each, run in alternation, after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            taken, _ = seconds(run)
            if turn:
                times[name].append(taken)
    return {name: min(taken) for name, taken in times.items()}
