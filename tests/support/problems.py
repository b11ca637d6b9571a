"""Random problems that tests share."""

from __future__ import annotations

from dataclasses import dataclass

import dask.array as da
import numpy as np
from hypothesis import strategies as st

from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.oracle.rows import RowSweeps

RTOL = {"float64": 1e-8, "float32": 1e-4}
"""Relative tolerance per dtype of the products."""


@dataclass(frozen=True)
class Data:
    """A dataset, and the share of labels per group that was flipped."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    flip_rate: np.ndarray


def classification(
    n: int,
    k: int,
    n_groups: int,
    seed: int = 0,
    *,
    corrupted: float = 0.3,
    n_classes: int = 2,
) -> Data:
    """ReLU-like features with a constant column; labels by a linear rule, flipped per group."""
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(n - 3 * n_groups, np.ones(n_groups) / n_groups) + 3
    groups = np.repeat(np.arange(n_groups), sizes)
    X = np.maximum(rng.standard_normal((n, k)) @ rng.standard_normal((k, k)) / np.sqrt(k) + 0.3, 0)
    X[:, -1] = 1.0
    f = (X - X.mean(0)) @ rng.standard_normal((k, n_classes - 1))
    f /= f.std(0)
    y = (f[:, 0] > 0).astype(int) if n_classes == 2 else np.c_[np.zeros(n), f].argmax(1)
    flip_rate = np.where(rng.random(n_groups) < corrupted, rng.uniform(0.2, 0.6, n_groups), 0.03)
    flipped = rng.random(n) < flip_rate[groups]
    y = np.where(flipped, (y + rng.integers(1, n_classes, n)) % n_classes, y)
    return Data(X, y, groups, flip_rate)


def repeated(data: Data, times: int) -> Data:
    """The data with each row repeated in its group."""
    index = np.repeat(np.arange(len(data.y)), times)
    return Data(data.X[index], data.y[index], data.groups[index], data.flip_rate)


@dataclass(frozen=True)
class Instance:
    """A small problem: features, rows and hyperparameters."""

    F: np.ndarray
    rows: Rows
    log_noise: np.ndarray
    log_scales: np.ndarray
    feature_index: np.ndarray
    redundancy: float

    @property
    def row_noise(self) -> np.ndarray:
        return np.exp(self.log_noise)[self.rows.groups] * self.redundancy / self.rows.weights

    @property
    def prior(self) -> np.ndarray:
        return np.exp(self.log_scales)[self.feature_index]

    @property
    def scales(self) -> np.ndarray:
        return np.sqrt(self.prior)


@st.composite
def instances(
    draw: st.DrawFn, unit_weights: bool = False, adjacent: bool | None = None
) -> Instance:
    """Random shapes, groups, weights, classes and hyperparameters."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(6, 50))
    k = draw(st.integers(1, 12))
    n_groups = draw(st.integers(1, min(6, n // 2)))
    n_classes = draw(st.sampled_from([2, 2, 3]))
    n_scales = draw(st.integers(1, min(k, 3)))
    groups = np.sort(np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n - n_groups)]))
    if not (draw(st.booleans()) if adjacent is None else adjacent):
        groups = rng.permutation(groups)
    codes = rng.integers(0, n_classes, n)
    weights = np.ones(n) if unit_weights else rng.uniform(0.1, 3.0, n)
    feature_index = np.concatenate([np.arange(n_scales), rng.integers(0, n_scales, k - n_scales)])
    return Instance(
        F=rng.standard_normal((n, k)) + rng.normal(size=k),
        rows=Rows(codes.astype(np.intp), weights, groups.astype(np.intp), n_classes, n_groups),
        log_noise=rng.uniform(-2, 1, n_groups),
        log_scales=rng.uniform(-2, 1, n_scales),
        feature_index=feature_index.astype(np.intp),
        redundancy=1.0 if unit_weights else float(rng.uniform(1, 5)),
    )


def sweeps(instance: Instance, kind: str, block: int = 7) -> RowSweeps:
    """The instance's rows behind a NumPy or a Dask oracle, in float64."""
    arithmetic = Arithmetic(np.dtype(np.float64))
    if kind == "numpy":
        return NumpySweeps(instance.F, instance.rows, arithmetic)
    X = da.from_array(instance.F, chunks=(block, -1))
    return DaskSweeps(X, instance.rows, arithmetic)
