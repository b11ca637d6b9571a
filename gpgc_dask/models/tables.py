"""What a model has learned, with names: a table a group, and arrays with dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

__all__ = ["to_pandas", "to_xarray"]

OF_GROUPS = {
    "noise_variance_": "noise_variance",
    "confidence_": "confidence",
    "group_margin_": "margin",
}
OF_HISTORY = ("phase", "log_evidence", "predicted_gain", "gain_tolerance", "redundancy", "reads")


def to_pandas(model: Any) -> pd.DataFrame:
    """A row a group, the least reliable first: what the model learned of it, and the review's.

    The index is the group. After a review the agreement decides the order, else the confidence;
    images that the fit left out are in it too.
    """
    learned = pd.DataFrame(_of_groups(model), index=pd.Index(model.groups_, name="group"))
    if not hasattr(model, "review_"):
        by = [name for name in ("confidence",) if name in learned]
        return learned.sort_values(by, kind="stable") if by else learned
    from gpgc_dask.models.review import rank

    table = rank(model.review_).set_index("image").rename_axis("group")
    extra = [name for name in learned if name not in table]
    return table.join(learned[extra])


def to_xarray(model: Any) -> xr.Dataset:
    """What the model learned, labelled: dimensions group, feature, target and iteration.

    ``coef`` (target, feature): of two classes, the one target is the second class. Numbers of the
    whole fit are attributes.
    """
    k = model.coef_.shape[1]
    targets = model.classes_ if len(model.coef_) > 1 else model.classes_[1:]
    found: dict[str, Any] = {
        name: ("group", values) for name, values in _of_groups(model).items()
    } | {"coef": (("target", "feature"), model.coef_)}
    if hasattr(model, "feature_scales_"):
        scales = model.feature_scales_
        found["feature_scale"] = ("feature_group", np.array(list(scales.values())))
    coordinates: dict[str, Any] = {
        "group": model.groups_,
        "target": targets,
        "feature": getattr(model, "feature_names_in_", np.arange(k)),
    }
    if "feature_scale" in found:
        coordinates["feature_group"] = list(model.feature_scales_)
    for name in OF_HISTORY if hasattr(model, "history_") else ():
        found[name] = ("iteration", np.array([entry[name] for entry in model.history_]))
    if hasattr(model, "review_"):
        agreement = model.review_.set_index("image")["agreement"].reindex(model.groups_)
        found["agreement"] = ("group", agreement.to_numpy())
    return xr.Dataset(found, coordinates, _facts(model))


def _of_groups(model: Any) -> dict[str, Any]:
    """{name: (J,) values} of what the model has for each group."""
    known: dict[str, Any] = {
        name: getattr(model, attribute, None) for attribute, name in OF_GROUPS.items()
    }
    return {name: values for name, values in known.items() if np.ndim(values) == 1}


def _facts(model: Any) -> dict[str, Any]:
    names = ("log_evidence_", "redundancy_", "typical_noise_", "C_", "n_iter_", "n_reads_")
    facts = {name[:-1]: getattr(model, name) for name in names if hasattr(model, name)}
    return {"model": type(model).__name__, "converged": int(model.converged_), **facts}
