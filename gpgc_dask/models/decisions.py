"""Labels and probabilities from decision values: NumPy arrays, or lazy dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import NotFiniteError
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.quality.calibration import Calibration

__all__ = ["class_probabilities", "decide", "likelihood_logits", "to_probabilities"]


def decide(
    mean: Any, classes: Labels, calibration: Calibration | None = None, block_info: Any = None
) -> Any:
    """Labels (N,) of decision values.

    Parameters
    ----------
    mean : (N,) or (N, classes) array or dask array
        Decision values; of two classes, those of the second.
    classes : (classes,) array
        Labels.
    calibration : Calibration, optional
        Of more than two classes its largest score decides, with classes between their natural and
        equal frequencies (:meth:`Calibration.scores`); by default the largest decision value does.
        Of two classes the sign of the decision value always decides: masks that are too small would
        make predictions by probability too small as well.

    Raises
    ------
    NotFiniteError
        If values are NaN or infinite.
    """
    if is_dask(mean):
        chunks = mean.chunks[:1]
        drop = [1] if mean.ndim == 2 else None
        return mean.map_blocks(
            decide,
            classes,
            calibration,
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
    if mean.ndim == 1:
        return classes[(mean > 0).astype(np.intp)]
    return classes[(mean if calibration is None else calibration.scores(mean)).argmax(1)]


def likelihood_logits(mean: Any, std: Any, noise: float) -> Any:
    """Logits 2f/(v + ε²): Bayes' rule for N(y; f, v + ε²) at y = ±1, with mean f and variance v."""
    return (2.0 * mean.T / (std**2 + noise)).T


def class_probabilities(
    mean: Any, std: Any, noise: float, n_classes: int, calibration: Calibration | None
) -> Any:
    """Probabilities (N, classes): calibrated ones, or those of the model's likelihood.

    Parameters
    ----------
    mean : (N,) or (N, classes) array or dask array
        Decision values.
    std : (N,) array, dask array or float
        Standard deviation of the decision values; not used with a calibration.
    noise : float
        Noise variance of a row; not used with a calibration.
    n_classes : int
        Number of classes.
    calibration : Calibration or None
        Probabilities of decision values. None: :func:`likelihood_logits`.
    """
    if calibration is None:
        return to_probabilities(likelihood_logits(mean, std, noise), n_classes)
    return to_probabilities(_calibrated_logits(mean, calibration), n_classes)


def _calibrated_logits(mean: Any, calibration: Calibration) -> Any:
    """Logits (N, classes) of decision values (N,) or (N, classes)."""
    if not is_dask(mean):
        return calibration.logits(mean)
    return mean.map_blocks(
        calibration.logits,
        dtype=np.float64,
        chunks=(mean.chunks[0], calibration.intercept.size),
        new_axis=[1] if mean.ndim == 1 else None,
        meta=np.empty((0, 0)),
    )


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
