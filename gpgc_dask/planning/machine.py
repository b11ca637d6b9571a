"""How fast a machine does what a fit is made of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.threads import algebra_threads, map_threads, one_blas_thread
from gpgc_dask.execution.client import map_workers
from gpgc_dask.gp import evidence
from gpgc_dask.gp.oracle.dask import read_speed
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, Projection, Workspace, batch_rows
from gpgc_dask.gp.oracle.leave_out import leave_out_terms

__all__ = ["Machine"]

QUICK_FEATURES = 512
"""Features of the small product that tells the speed where nobody asked for a calibration."""

LARGEST_ALGEBRA = 4200
"""Features up to which the driver's algebra is timed as it is; beyond, it grows by the cube."""

ROWS_A_GROUP = 128
REPEATS = 3


@dataclass(frozen=True)
class Machine:
    """Speed of one core while all of them work, and of the driver's algebra.

    products_per_second : multiply-adds of a Gram product, of which there are N k²
    triangular_per_second : of whitening rows, N k² again
    linear_seconds : to load, judge and scale one number of a row
    leave_out_seconds : the leave-out terms, for one number of a row
    algebra_per_second : multiply-adds (k³) of the driver's factorisations
    read_bytes_per_second : of features, decoded
    network_bytes_per_second : from one worker to another
    """

    products_per_second: float
    triangular_per_second: float
    linear_seconds: float
    leave_out_seconds: float
    algebra_per_second: float
    read_bytes_per_second: float = 1e9
    network_bytes_per_second: float = 1e9
    name: str = "stated"

    @classmethod
    def typical(cls, products_per_second: float, name: str = "stated") -> Machine:
        """A machine whose other speeds stand to its products as they did where we looked."""
        p = products_per_second
        return cls(p, 1.05 * p, 80 / p, 250 / p, 0.3 * p, name=name)

    @classmethod
    def measure(cls, product_bytes: int = 4) -> Machine:
        """Time a small Gram product on one core of this machine (some 0.1 s); guess the rest."""
        rows, k = 2048, QUICK_FEATURES
        A = np.ones((rows, k), dtype=np.float32 if product_bytes == 4 else np.float64)
        with one_blas_thread():
            seconds = _best(lambda: A.T @ A)
        return cls.typical(rows * k * k / seconds, name="one product timed on this machine")

    @classmethod
    def calibrate(cls, n_features: int, product_bytes: int = 4, X: Any = None) -> Machine:
        """Run the fit's own parts on small blocks of this size, with all cores busy: some seconds.

        On the workers of the active Dask cluster, where there is one; the driver's algebra here.
        With a dask array X, a few of its blocks are read too.
        """
        found: list[Machine] = map_workers(_calibrate, n_features, product_bytes)
        slowest = min(found, key=lambda machine: machine.products_per_second)
        speed = None if X is None else read_speed(X)
        return replace(
            slowest,
            algebra_per_second=_algebra(n_features),
            read_bytes_per_second=speed or slowest.read_bytes_per_second,
        )


def _calibrate(n_features: int, product_bytes: int, threads: int | None) -> Machine:
    """The speeds of one core while ``threads`` (default: all cores) do the same."""
    cores = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    dtype = np.dtype(np.float32 if product_bytes == 4 else np.float64)
    found = map_threads(lambda seed: _one_core(n_features, dtype, seed), range(cores))
    slowest = {name: max(part[name] for part in found) for name in found[0]}
    rows = batch_rows(n_features, dtype.itemsize)
    square, numbers = float(rows) * n_features**2, float(rows) * n_features
    return Machine(
        products_per_second=square / slowest["gram"],
        triangular_per_second=square / slowest["whiten"],
        linear_seconds=slowest["linear"] / numbers,
        leave_out_seconds=slowest["leave-out"] / numbers,
        algebra_per_second=1.0,
        name="calibrated on this machine",
    )


def _one_core(k: int, dtype: np.dtype[Any], seed: int) -> dict[str, float]:
    """Seconds of each part of a sweep on one batch of ReLU-like rows."""
    rng = np.random.default_rng(seed)
    n = batch_rows(k, dtype.itemsize)
    stored = np.maximum(rng.standard_normal((n, k), dtype=np.float32), 0).astype(dtype)
    arithmetic = Arithmetic(dtype, stored.mean(0, dtype=np.float64))
    residual = rng.choice([-1.0, 1.0], (n, 1))
    precision, starts = np.full(n, 1.0), np.arange(0, n, ROWS_A_GROUP)
    # A posterior of which a group determines a fifth of one feature: as in a fit of many groups.
    factor = np.eye(k) * np.sqrt(0.2 / (ROWS_A_GROUP * np.square(stored[:64]).sum(1).mean()))
    post = evidence.Posterior(factor, np.zeros((k, 1)), 0.0, np.empty(0), np.empty(0))
    project = Projection(post, arithmetic, directions=rng.standard_normal((k, 32)))
    work, sums = Workspace(arithmetic), Accumulator(k, 1, dtype)

    def linear() -> Features:
        A = work.load([stored])
        project.judge(A)
        for start in starts:
            A[start : start + ROWS_A_GROUP].T @ residual[start : start + ROWS_A_GROUP].astype(dtype)
        return A

    def leave_out() -> None:
        leave_out_terms(
            work.load([stored]), precision, residual, starts, [stored], project, whitened=False
        )

    with one_blas_thread():
        seconds = {
            "linear": _best(linear),
            "gram": _best(lambda: sums.add(work.load([stored]), precision, residual)),
            "whiten": _best(lambda: project.whiten(work.load([stored]))),
            "leave-out": _best(leave_out),
        }
    loading = _best(lambda: work.load([stored]))
    return {
        name: max(value - loading, 1e-9) if name != "linear" else value
        for name, value in seconds.items()
    }


def _algebra(n_features: int) -> float:
    """k³ a second of the driver's factorisation."""
    k = min(n_features, LARGEST_ALGEBRA)
    A = np.random.default_rng(0).standard_normal((k + 8, k))
    moments = evidence.Moments(A.T @ A, A.T @ np.ones((k + 8, 1)), 1.0)
    with algebra_threads(k):
        return float(k) ** 3 / _best(lambda: evidence.posterior(moments, np.ones(k)))


def _best(call: Callable[[], Any]) -> float:
    """Seconds of the quickest of a few calls, after one to warm up."""
    call()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return max(min(seconds), 1e-9)
