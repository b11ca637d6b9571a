"""Data and timing that the benchmarks share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask import array as da
from distributed import Client, LocalCluster


def parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--smoke", action="store_true", help="a tiny size, to see that it runs")
    result.add_argument("--repeats", type=int, default=3, help="runs of each; the best counts")
    return result


def relu_features(n: int, k: int, seed: int) -> np.ndarray:
    """(n, k) float32 like a network's layer: correlated, sparse, with a mean of its own."""
    rng = np.random.default_rng(seed)
    rank = min(k, 64)
    mixing = np.random.default_rng(1).standard_normal((rank, k)).astype(np.float32)
    hidden = rng.standard_normal((n, rank), dtype=np.float32) @ mixing / np.sqrt(rank)
    hidden += 0.5 * rng.standard_normal((n, k), dtype=np.float32)
    return np.maximum(hidden, 0.0)


def write_features(path: Path, n: int, k: int, chunk: int = 4096) -> da.Array:
    """ReLU-like features in an uncompressed Zarr array, as a dask array."""
    store = zarr.create_array(
        path, shape=(n, k), chunks=(min(chunk, n), k), dtype="float32", compressors=None
    )
    for start in range(0, n, chunk):
        rows = min(chunk, n - start)
        store[start : start + rows] = relu_features(rows, k, seed=start + 2)
    return open_features(path)


def open_features(path: Path) -> da.Array:
    return da.from_zarr(zarr.open_array(path, mode="r"))


def labels_and_groups(
    X: da.Array, n_groups: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels by a random linear rule, adjacent groups, and which third of them is spoilt."""
    rng = np.random.default_rng(seed)
    n, k = X.shape
    groups = np.sort(rng.integers(0, n_groups, n))
    rule = rng.standard_normal(k).astype(np.float32)
    f = np.asarray(X @ rule)
    spoilt = rng.random(n_groups) < 1 / 3
    flip = rng.random(n) < np.where(spoilt, 0.4, 0.05)[groups]
    return (f > np.median(f)) ^ flip, groups, spoilt


@contextmanager
def cluster(workers: int = 2, threads: int = 1, memory: str = "4GB") -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=memory,
            dashboard_address=None,
        ) as local,
        Client(local) as client,
    ):
        yield client


def best_seconds(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best wall time of each, taken in turns so that noise hits all alike; one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: min(seconds) for name, seconds in times.items()}
