"""What a model has learned as a table of groups, and as arrays with named dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array
from gpgc_dask.models.protocol import FittedModel

__all__ = ["to_pandas", "to_xarray"]

OF_REVIEW = ("quality", "quality_low", "quality_high", "agreement")
OF_HISTORY = ("phase", "log_evidence", "predicted_gain", "gain_tolerance", "redundancy", "reads")


def to_pandas(model: FittedModel) -> pd.DataFrame:
    """Table of the groups, the least reliable first; the index is the group.

    Without a review the groups are in the order of their confidence. With one they are in the
    order of the quality, and images that were left out of the fit are included.
    """
    learned = pd.DataFrame(_of_groups(model), index=pd.Index(model.groups_, name="group"))
    if model.review_table is None:
        by = [name for name in ("confidence",) if name in learned]
        return learned.sort_values(by, kind="stable") if by else learned
    from gpgc_dask.models.review import rank

    table = rank(model.review_table).set_index("image").rename_axis("group")
    extra = [name for name in learned if name not in table]
    return table.join(learned[extra])


def to_xarray(model: FittedModel) -> xr.Dataset:
    """Learned values with dimensions group, feature, feature_group, target and iteration.

    ``coef`` has dimensions (target, feature); for two classes the only target is the second class.
    Numbers of the whole fit are attributes.
    """
    k = model.coef_.shape[1]
    targets = model.classes_ if len(model.coef_) > 1 else model.classes_[1:]
    variables: dict[str, Any] = {
        name: ("group", values) for name, values in _of_groups(model).items()
    } | {"coef": (("target", "feature"), model.coef_)}
    if model.feature_scales:
        scales = np.array(list(model.feature_scales.values()))
        variables["feature_scale"] = ("feature_group", scales)
    coordinates: dict[str, Any] = {
        "group": model.groups_,
        "target": targets,
        "feature": np.arange(k) if model.feature_names is None else model.feature_names,
    }
    if "feature_scale" in variables:
        coordinates["feature_group"] = list(model.feature_scales)
    for name in OF_HISTORY if model.history else ():
        variables[name] = ("iteration", np.array([entry[name] for entry in model.history]))
    if model.review_table is not None:
        review = model.review_table.set_index("image").reindex(model.groups_)
        for name in OF_REVIEW:
            if name in review:
                variables[name] = ("group", review[name].to_numpy())
    return xr.Dataset(variables, coordinates, _facts(model))


def _of_groups(model: FittedModel) -> dict[str, Array]:
    """{name: (J,) values} of what the model has for each group."""
    known = {
        "noise_variance": model.group_noise,
        "confidence": model.group_confidence,
        "margin": model.group_margin,
    }
    return {name: values for name, values in known.items() if values is not None}


def _facts(model: FittedModel) -> dict[str, Any]:
    known = {
        "log_evidence": model.log_evidence,
        "redundancy": model.learned_redundancy,
        "typical_noise": model.typical_noise,
        "C": model.cost,
        "n_iter": model.n_iter_,
        "n_reads": model.n_reads_,
    }
    facts = {name: value for name, value in known.items() if value is not None}
    return {"model": type(model).__name__, "converged": int(model.converged_), **facts}
