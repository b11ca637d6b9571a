"""cleanlab: image scores, and out-of-sample probabilities of superpixels with their labels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.models.decisions import likelihood_logits, to_probabilities

__all__ = ["image_scores", "probabilities", "to_npz"]


def image_scores(table: pd.DataFrame) -> dict[str, Labels]:
    """``images`` and their ``image_scores`` in [0, 1], low = bad; 0 where nothing is known."""
    scores = table["agreement"].to_numpy(dtype=np.float64)
    names = np.array(table["image"].tolist(), dtype=str)
    return {"images": names, "image_scores": np.nan_to_num(scores)}


def probabilities(model: Any, dataset: xr.Dataset, photos: Labels) -> dict[str, Labels]:
    """Superpixels of some photos: ``labels``, ``pred_probs`` and which of the photos they are of.

    The probabilities are those of models that never saw the photo: softmax of 2f/ε̄², with the
    leave-group-out mean f and the typical noise ε̄²; the variance of f, small beside it, is left
    out. Superpixels without weight (void) are not among them.
    """
    if not hasattr(model, "typical_noise_"):
        raise InputError(
            f"a {type(model).__name__} gives no probabilities: export without the dataset, or fit "
            "a GPGC or GP"
        )
    given = training_arrays(dataset)
    (values,) = compute(model.leave_group_out(dataset))
    logits = likelihood_logits(values, 0.0, model.typical_noise_)
    place = np.full(dataset.sizes["photo"], -1)
    place[photos] = np.arange(photos.size)
    of = place[np.asarray(given.groups.codes)]
    used = (of >= 0) & (given.weight > 0)
    codes = np.searchsorted(model.classes_, given.y[used])
    found = to_probabilities(logits, model.classes_.size)[used]
    return {"labels": codes, "pred_probs": found, "image_of_label": of[used]}


def to_npz(arrays: dict[str, Any]) -> bytes:
    """The arrays as an .npz file, which numpy reads without pickle."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()
