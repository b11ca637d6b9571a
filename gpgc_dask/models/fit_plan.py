"""The plan of a fit, and of the review that follows if its rows are those of images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpgc_dask.core.labels import code_labels
from gpgc_dask.data.dataset import is_dataset
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.models.review_cost import measure_review
from gpgc_dask.models.validation import check_features, to_vector
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.plan import Plan, plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.stages import TYPICAL_REVIEW

__all__ = ["plan_fit"]


def plan_fit(
    X: Any,
    groups: Any,
    *,
    n_classes: int,
    dtype: np.dtype[Any] | None,
    resources: tuple[int | None, int | str | None, int | None],
    calibrate: bool,
    **options: Any,
) -> Plan:
    """Plan a fit, see :meth:`GPGC.plan`; ``options`` are those of :func:`~gpgc_dask.planning.plan`.

    Parameters
    ----------
    X : (N, k) array, dask array or dataset
        Features.
    groups : (N,) array, optional
        Group of each row; by default those of the dataset, or one group.
    n_classes : int
        Number of classes.
    dtype : dtype or None
        Float type of the products, if it is chosen.
    resources : tuple
        Workers, memory limit and threads, as of :meth:`Resources.detect`.
    calibrate : bool
        Whether to run parts of the fit and the review to measure their speed.
    """
    of_images = is_dataset(X)
    if groups is None and of_images:
        groups = training_arrays(X).groups
    X = check_features(X)
    index = np.zeros(len(X), dtype=np.intp)
    if groups is not None:
        index = code_labels("groups", to_vector("groups", groups, len(X)))[1]
    shape = Shape.from_array(X, index, n_classes, dtype)
    machine = None
    if calibrate:
        blocks = X if is_dask(X) else None
        machine = Machine.calibrate(shape.n_features, shape.product_bytes, blocks)
    available = Resources.detect(is_dask(X), *resources)
    cost = plan(shape, resources=available, machine=machine, **options)
    if not of_images:
        return cost
    review = measure_review() if calibrate else TYPICAL_REVIEW
    return replace(cost, stages=(review.stage(shape.n_groups, shape.n_rows, available),))
