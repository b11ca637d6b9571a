"""Speed of a machine at the parts of a fit."""

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
from gpgc_dask.gp.oracle.dask import measure_read_speed
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, Projection, Workspace, batch_rows
from gpgc_dask.gp.oracle.leave_out import leave_out_terms

__all__ = ["Machine"]

QUICK_FEATURES = 512
"""Features of the small product that is timed if no calibration is asked for."""

MAX_TIMED_FEATURES = 4200
"""Features up to which the driver's algebra is timed; beyond, it is taken to grow by the cube."""

ROWS_PER_GROUP = 128
REPEATS = 3
ENOUGH_SECONDS = 0.5
"""A call that takes longer is not timed a second time."""


@dataclass(frozen=True)
class Machine:
    """Speed of one core while all cores are busy, and of the driver's algebra.

    Attributes
    ----------
    products_per_second : float
        Multiply-adds per second of a Gram product, which takes N k² of them.
    triangular_per_second : float
        Multiply-adds per second of whitening rows, which takes N k² of them.
    linear_seconds : float
        Seconds per number of a row to load it, predict with it and scale it.
    leave_out_seconds : float
        Seconds per number of a row for the leave-out terms.
    algebra_per_second : float
        Multiply-adds (k³) per second of the driver's factorisations.
    read_bytes_per_second : float, default 1e9
        Bytes of features read per second, decoded.
    network_bytes_per_second : float, default 1e9
        Bytes per second from one worker to another.
    name : str, default "stated"
        Where the figures come from.
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
        """A machine with the given speed of products and typical ratios of the other speeds."""
        p = products_per_second
        return cls(p, 1.05 * p, 80 / p, 250 / p, 0.3 * p, name=name)

    @classmethod
    def measure(cls, product_bytes: int = 4) -> Machine:
        """Time a small Gram product on one core (about 0.1 s); take typical ratios for the rest.

        Parameters
        ----------
        product_bytes : {4, 8}, default 4
            Bytes per number in the products.
        """
        rows, k = 2048, QUICK_FEATURES
        A = np.ones((rows, k), dtype=np.float32 if product_bytes == 4 else np.float64)
        with one_blas_thread():
            seconds = _shortest(lambda: A.T @ A)
        return cls.typical(rows * k * k / seconds, name="one product timed on this machine")

    @classmethod
    def calibrate(cls, n_features: int, product_bytes: int = 4, X: Any = None) -> Machine:
        """Time the parts of a fit on small blocks with all cores busy, which takes some seconds.

        The parts run on the workers of the active Dask cluster if there is one. The driver's
        algebra runs in this process.

        Parameters
        ----------
        n_features : int
            Number of features of the fit.
        product_bytes : {4, 8}, default 4
            Bytes per number in the products.
        X : dask array, optional
            Array of which a few blocks are read to measure the speed of reading.
        """
        machines: list[Machine] = map_workers(_calibrate, n_features, product_bytes)
        slowest = min(machines, key=lambda machine: machine.products_per_second)
        speed = None if X is None else measure_read_speed(X)
        return replace(
            slowest,
            algebra_per_second=_time_algebra(n_features),
            read_bytes_per_second=speed or slowest.read_bytes_per_second,
        )


def _calibrate(n_features: int, product_bytes: int, threads: int | None) -> Machine:
    """Speed of one core while ``threads`` cores (None: all cores) do the same."""
    cores = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    dtype = np.dtype(np.float32 if product_bytes == 4 else np.float64)
    timings = map_threads(lambda seed: _time_parts(n_features, dtype, seed), range(cores))
    slowest = {name: max(part[name] for part in timings) for name in timings[0]}
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


def _time_parts(k: int, dtype: np.dtype[Any], seed: int) -> dict[str, float]:
    """Seconds of each part of a sweep on one batch of ReLU-like rows on one core."""
    rng = np.random.default_rng(seed)
    n = batch_rows(k, dtype.itemsize)
    stored = np.maximum(rng.standard_normal((n, k), dtype=np.float32), 0).astype(dtype)
    arithmetic = Arithmetic(dtype, stored.mean(0, dtype=np.float64))
    residual = rng.choice([-1.0, 1.0], (n, 1))
    precision, starts = np.full(n, 1.0), np.arange(0, n, ROWS_PER_GROUP)
    # A posterior as in a fit of many groups: one group determines a fifth of one feature.
    factor = np.eye(k) * np.sqrt(0.2 / (ROWS_PER_GROUP * np.square(stored[:64]).sum(1).mean()))
    post = evidence.Posterior(factor, np.zeros((k, 1)), 0.0, np.empty(0), np.empty(0))
    projection = Projection(post, arithmetic, directions=rng.standard_normal((k, 32)))
    work, sums = Workspace(arithmetic), Accumulator(k, 1, dtype)

    def linear() -> Features:
        A = work.load([stored])
        projection.predict(A)
        for start in starts:
            A[start : start + ROWS_PER_GROUP].T @ residual[start : start + ROWS_PER_GROUP].astype(
                dtype
            )
        return A

    def leave_out() -> None:
        leave_out_terms(
            work.load([stored]), precision, residual, starts, [stored], projection, whitened=False
        )

    with one_blas_thread():
        seconds = {
            "linear": _shortest(linear),
            "gram": _shortest(lambda: sums.add(work.load([stored]), precision, residual)),
            "whiten": _shortest(lambda: projection.whiten(work.load([stored]))),
            "leave-out": _shortest(leave_out),
        }
    loading = _shortest(lambda: work.load([stored]))
    return {
        name: max(value - loading, 1e-9) if name != "linear" else value
        for name, value in seconds.items()
    }


def _time_algebra(n_features: int) -> float:
    """Multiply-adds (k³) per second of the driver's factorisation."""
    k = min(n_features, MAX_TIMED_FEATURES)
    A = np.random.default_rng(0).standard_normal((k + 8, k))
    moments = evidence.Moments(A.T @ A, A.T @ np.ones((k + 8, 1)), 1.0)
    with algebra_threads(k):
        return float(k) ** 3 / _shortest(lambda: evidence.posterior(moments, np.ones(k)))


def _shortest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of a few calls, after one to warm up."""
    call()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        if sum(seconds) > ENOUGH_SECONDS:
            break
    return max(min(seconds), 1e-9)
