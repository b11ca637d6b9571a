"""Labels and probabilities from decision values: NumPy arrays, or lazy dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import NotFiniteError
from gpgc_dask.execution.row_blocks import is_dask

__all__ = ["likelihood_logits", "to_labels", "to_probabilities"]


def to_labels(mean: Any, classes: Labels, block_info: Any = None) -> Any:
    """Labels (N,) of decision values: the class of the largest value.

    Parameters
    ----------
    mean : (N,) or (N, classes) array or dask array
        Decision values; of two classes, those of the second.
    classes : (classes,) array
        Labels.

    Raises
    ------
    NotFiniteError
        If values are NaN or infinite.
    """
    if is_dask(mean):
        chunks = mean.chunks[:1]
        drop = [1] if mean.ndim == 2 else None
        return mean.map_blocks(
            to_labels,
            classes,
            dtype=classes.dtype,
            chunks=chunks,
            drop_axis=drop,
            meta=np.empty(0, dtype=classes.dtype),
        )
    bad = np.flatnonzero(~np.isfinite(mean).all(axis=tuple(range(1, mean.ndim))))
    if bad.size:
        first = block_info[0]["array-location"][0][0] if block_info else 0
        if np.isnan(first):  # the sizes of the blocks before are unknown
            number = block_info[0]["chunk-location"][0]
            raise NotFiniteError([f"{row} of block {number}" for row in bad])
        raise NotFiniteError((bad + first).tolist())
    return classes[(mean > 0).astype(np.intp) if mean.ndim == 1 else mean.argmax(1)]


def likelihood_logits(mean: Any, std: Any, noise: float) -> Any:
    """Logits 2f/(v + ε²): Bayes' rule for N(y; f, v + ε²) at y = ±1, with mean f and variance v."""
    return (2.0 * mean.T / (std**2 + noise)).T


def to_probabilities(logits: Any, n_classes: int) -> Any:
    """Probabilities (N, classes) by softmax; (N,) logits are those of the second of two classes."""
    if is_dask(logits):
        return logits.map_blocks(
            to_probabilities,
            n_classes,
            dtype=np.float64,
            chunks=(logits.chunks[0], n_classes),
            new_axis=[1] if logits.ndim == 1 else None,
            meta=np.empty((0, 0)),
        )
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    return softmax(logits, axis=1) if len(logits) else np.empty((0, n_classes))
