"""The dataset that a model was fitted on: recognising it, and opening it as it was."""

from __future__ import annotations

from os import PathLike
from typing import Any

import xarray as xr

from gpgc_dask.core.errors import InputError, InputTypeError
from gpgc_dask.data.dataset import check_same_features, is_dataset, open_dataset, provenance
from gpgc_dask.data.schema import UPDATES
from gpgc_dask.models.protocol import FittedModel

__all__ = ["check_fitted_on", "open_fitted", "require_dataset_info"]


def check_fitted_on(model: FittedModel, dataset: xr.Dataset) -> None:
    """Raise an InputError if a model was not fitted on this dataset."""
    if not is_dataset(dataset):
        raise InputTypeError(
            "pass the dataset that the model was fitted on, as open_dataset returns it"
        )
    fitted = require_dataset_info(model)
    check_same_features(dataset, fitted, model.coef_.shape[1])
    here = provenance(dataset)
    if fitted.get("files_digest") != here.get("files_digest"):
        _check_updates(str(fitted.get("files_digest")), dataset)
        if fitted.get("url") == here["url"]:
            raise InputError(
                f"{here['url']} has been created again since the model was fitted: fit it again "
                "(gpgc fit --overwrite)"
            )
        raise InputError(
            f"the model was fitted on another dataset ({fitted.get('url')}, of "
            f"{fitted.get('images')} images) than {here['url']}: pass that one, or fit a model on "
            "this one"
        )
    then, now = (set(each.get("verdicts", ())) for each in (fitted, here))
    if then != now:
        changes = [f"{len(now - then):,} more"] if now - then else []
        changes += [f"{len(then - now):,} fewer"] if then - now else []
        raise InputError(
            f"{here['url']} has {' and '.join(changes)} verdict(s) than at the fit: fit the model "
            "again (gpgc fit --overwrite), or pass open_dataset(url, verdicts=model.verdicts_)"
        )


def open_fitted(model: FittedModel, url: str | PathLike[str]) -> xr.Dataset:
    """Open the dataset of a model with the verdicts that it was fitted with, and no later ones.

    Parameters
    ----------
    model : FittedModel
        The model.
    url : path or URL
        The dataset.
    """
    return open_dataset(url, verdicts=(model.dataset_info or {}).get("verdicts", ()))


def _check_updates(fitted: str, dataset: xr.Dataset) -> None:
    """Raise an InputError if a dataset was updated since its files had this digest."""
    updates = list(dataset.attrs.get(UPDATES, []))
    first = [n for n, one in enumerate(updates) if one["files_digest"] == fitted]
    if not first:
        return
    counts = {
        name: sum(one[name] for one in updates[first[-1] :])
        for name in ("new", "relabelled", "removed")
    }
    what = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    raise InputError(
        f"{dataset.encoding.get('source')} has been updated since the model was fitted "
        f"({what or 'other groups or files'}): fit it again (gpgc fit --overwrite)"
    )


def require_dataset_info(model: FittedModel) -> dict[str, Any]:
    """Where the rows of the fit come from; raise an InputError if it was a fit on arrays."""
    if model.dataset_info is None:
        raise InputError(
            "the model was fitted on arrays, not on a dataset: fit one on the dataset (gpgc fit)"
        )
    return model.dataset_info
