"""Validation of what users pass to models: from their arrays to those of the fit.

Messages name the argument, the place and the way out.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from dask import is_dask_collection
from dask.utils import is_dataframe_like, is_series_like
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gpgc_dask.core.arrays import Array, Index, Labels, Mask, group_sums
from gpgc_dask.core.checks import check_finite
from gpgc_dask.core.errors import InputError, InputTypeError, NotFiniteError
from gpgc_dask.core.labels import code_labels, find_labels, missing_labels
from gpgc_dask.core.text import preview
from gpgc_dask.data.dataset import is_dataset
from gpgc_dask.data.training import TrainingArrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask, select_rows
from gpgc_dask.gp.noise import NOISE_MODELS, NoiseModel
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.training import Training
from gpgc_dask.models.protocol import FittedModel

__all__ = [
    "check_features",
    "check_new_rows",
    "check_training",
    "check_weights",
    "class_weights",
    "load_vectors",
    "naming_groups",
    "to_vector",
    "without_empty_images",
]


AUTO_POWER = 0.25
"""Between equal totals (0), best at wrong rare classes, and square roots of their own."""

FLOATS = (np.float64, np.float32, np.float16)


def check_training(
    X: Any,
    y: Any,
    groups: Any,
    feature_groups: Any,
    sample_weight: Any,
    class_weight: Any,
    *,
    noise_model: str = "homoscedastic",
    noise_groups: Any = None,
    trusted: Any = None,
) -> Training:
    """Validate everything that is passed to a fit.

    Parameters
    ----------
    X, y, groups, feature_groups, sample_weight, class_weight
        As of :meth:`gpgc_dask.GPGC.fit`.
    noise_model : str
        Name of the noise model, one of ``gpgc_dask.gp.noise.NOISE_MODELS``.
    noise_groups : (N,) array or mapping, optional
        Owner of each row's group, or {group: owner}; needed by the noise model "tied".
    trusted : (J,) array of bool, or collection of groups, optional
        Groups whose labels are known to be right.
    """
    y, groups, sample_weight = load_vectors(y=y, groups=groups, sample_weight=sample_weight)
    with naming_groups(groups):
        X = check_features(X)
    n, k = X.shape
    if n < 2:
        raise InputError(f"X has n_samples = {n}: a fit needs 2 rows or more")
    if y is None:
        raise InputError(
            "y is missing: this estimator requires y to be passed, but the target y is None"
        )
    y = to_vector("y", y, n)
    classes, codes = code_labels("y", y)
    check_classification_targets(y if y.dtype.kind == "f" else codes)
    weights = check_weights("sample_weight", sample_weight, n)
    if not weights.any():
        raise InputError("sample_weight is zero everywhere: at least two rows must carry weight")
    present = np.bincount(codes, weights, classes.size) > 0
    if classes.size < 2 or present.sum() < 2:
        raise InputError(
            f"y has one class only ({preview(classes[present])}) among the rows with weight: "
            "a model needs 2 classes or more; add rows of another class"
        )
    weight_of_class = class_weights(class_weight, classes, codes, weights)
    names, index = _groups(groups, n)
    rows = Rows(codes, weights * weight_of_class[codes], index, classes.size, names.size)
    owner_names, owners = _owners(noise_groups, names, index)
    is_trusted = _trusted(trusted, names)
    noise = NoiseModel(NOISE_MODELS[noise_model](names.size, owners), is_trusted)
    if not noise.pooled:
        owner_of = None if owner_names is None else owner_names[owners]
        _check_noise_rows(rows, noise, names, owner_of)
    feature_names, feature_index = _feature_groups(feature_groups, k)
    return Training(
        X,
        rows,
        weights,
        classes,
        weight_of_class,
        names,
        noise,
        owner_names,
        owners,
        feature_index,
        feature_names,
        is_trusted,
    )


def check_new_rows(model: FittedModel, X: Any, *, counted: bool = False) -> Any:
    """Validate X for a prediction by a fitted model: finite, with the columns of the fit.

    Parameters
    ----------
    model : FittedModel
        The model.
    X : (N, k) array, dask array, DataFrame or dataset
        Features.
    counted : bool, default False
        Whether the numbers of rows in the blocks of a dask X must be known.
    """
    check_is_fitted(model)
    lazy = is_dask(X) or is_dataset(X)
    features = check_features(X, model.coef_.shape[1] if lazy else None, counted=counted)
    if not lazy:
        validate_data(model, X, skip_check_array=True, reset=False)
    return features


def check_features(X: Any, n_features: int | None = None, *, counted: bool = True) -> Any:
    """Convert X to a finite 2-D float NumPy array, or a dask array of blocks with whole rows.

    Parameters
    ----------
    X : (N, k) array, dask array, DataFrame or dataset
        Features.
    n_features : int, optional
        The number of columns that X must have.
    counted : bool, default True
        Whether the numbers of rows in the blocks of a dask X must be known.
    """
    if isinstance(X, (str, bytes, PathLike)):
        raise InputTypeError(
            f"X must be an array, got the path {X!r}: load it first, as NumPy or dask; a dataset "
            "of images with gpgc_dask.open_dataset"
        )
    if is_dataset(X):
        X = X["features"].data
    if isinstance(getattr(X, "_meta", X), np.ma.MaskedArray):
        raise InputError("X is a masked array: fill the masked values or drop their rows first")
    if isinstance(X, pd.DataFrame):
        _check_columns(X)
    elif is_dask_collection(X) and is_dataframe_like(X):
        raise InputTypeError(
            "X is a dask dataframe: pass X.to_dask_array(lengths=True), or X.compute() if it fits "
            "into memory"
        )
    if is_dask(X):
        X = _check_dask(X, counted=counted)
    else:
        X = check_array(
            X,
            dtype=list(FLOATS),
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
        )
        if 0 not in X.shape:
            check_finite(X)
    if X.shape[0] == 0:
        raise InputError(
            f"X is empty: 0 sample(s) (shape={X.shape}) while a minimum of 1 is required"
        )
    if X.shape[1] == 0:
        raise InputError(
            f"X is empty: 0 feature(s) (shape={X.shape}) while a minimum of 1 is required."
        )
    if n_features is not None and X.shape[1] != n_features:
        raise InputError(f"X has {X.shape[1]} features, but the model was fitted with {n_features}")
    return X


@contextmanager
def naming_groups(groups: Any, place: Index | None = None) -> Iterator[None]:
    """Context in which an error about NaN in X also names the groups (images) of those rows.

    Parameters
    ----------
    groups : (N,) array or None
        Labels of the rows' groups.
    place : (N,) array of int, optional
        Numbers of the rows in the caller's data, if X is a selection of them.
    """
    try:
        yield
    except NotFiniteError as error:
        if groups is None or np.ndim(groups) != 1 or len(groups) <= max(error.rows):
            raise
        named = np.unique(np.asarray(groups, dtype=object)[error.rows].astype(str))
        rows = error.rows if place is None else place[error.rows].tolist()
        raise NotFiniteError(rows, error.columns, named.tolist()) from None


def _check_dask(X: Any, *, counted: bool) -> Any:
    if X.ndim != 2:
        raise InputError(f"X must be 2-D (rows × features), got {X.ndim}-D with shape {X.shape}")
    if (counted and np.isnan(X.shape[0])) or np.isnan(X.shape[1]):
        raise InputError(
            "X has blocks of unknown size: call X = X.compute_chunk_sizes() before fitting"
        )
    if X.numblocks[1] > 1:
        raise InputError(
            f"X is cut along its columns into {X.numblocks[1]} blocks: a block must hold whole "
            "rows; use X.rechunk({1: -1}), or store the array with chunks that span all columns"
        )
    if X.dtype.kind not in "fiub":
        raise InputTypeError(
            f"X has dtype {X.dtype}: features must be numbers; convert with X.astype('float32')"
        )
    return X if X.dtype.type in FLOATS else X.astype(np.float64)


def _check_columns(X: pd.DataFrame) -> None:
    """Raise an InputError if columns of a DataFrame do not hold numbers."""
    bad = [f"{name!r} ({column.dtype})" for name, column in X.items() if not _holds_numbers(column)]
    if bad:
        raise InputError(
            f"X has column(s) that hold no numbers: {preview(bad)}; leave them out (X[features]), "
            "or encode them, for example with get_dummies"
        )


def _holds_numbers(column: pd.Series) -> bool:
    types = pd.api.types
    if column.dtype != np.dtype(object):
        return types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype)
    try:
        column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return True


def load_vectors(**vectors: Any) -> list[Any]:
    """The vectors in memory: those that are dask arrays are computed together."""
    for name, values in vectors.items():
        _reject_series(name, values)
    lazy = {name: values for name, values in vectors.items() if is_dask_collection(values)}
    loaded = dict(zip(lazy, compute(*lazy.values()), strict=True)) if lazy else {}
    return list((vectors | loaded).values())


def _reject_series(name: str, values: Any) -> None:
    if is_dask_collection(values) and (is_series_like(values) or is_dataframe_like(values)):
        raise InputTypeError(
            f"{name} is a dask series: pass {name}.compute(), one value per row in memory"
        )


def to_vector(name: str, values: Any, n: int) -> Any:
    """Convert values to a 1-D NumPy array, or pandas.Categorical, of length n."""
    (values,) = load_vectors(**{name: values})
    values = getattr(values, "array", values)  # the array of a pandas Series
    array = values if isinstance(values, pd.Categorical) else _as_labels(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim != 1:
        raise InputError(f"{name} must be 1-D, one value per row of X; got shape {array.shape}")
    if array.size != n:
        raise InputError(f"{name} has {array.size} values but X has {n} rows: pass one per row")
    return array


def _as_labels(values: Any) -> Labels:
    """The values unchanged: NumPy would convert NaN to text, and large integers to floats."""
    if not isinstance(values, (list, tuple)):
        return np.asarray(values)
    if len({type(value) for value in values}) <= 1:
        plain = np.asarray(values)
        if plain.dtype.kind != "f" or isinstance(values[0], (float, np.floating)):
            return plain
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    return labels


def check_weights(name: str, values: Any, n: int) -> Array:
    """Convert weights to (n,) finite numbers ≥ 0; None stands for ones, a number for all rows."""
    if values is None:
        return np.ones(n)
    if isinstance(values, numbers.Number):
        values = np.full(n, values)
    weights = to_vector(name, values, n)
    try:
        weights = weights.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            f"{name} must hold numbers, got dtype {weights.dtype}: convert it to float"
        ) from error
    bad = np.flatnonzero(~(weights >= 0) | ~np.isfinite(weights))
    if bad.size:
        raise InputError(
            f"{name} is negative, NaN or infinite at row(s) {preview(bad)}: "
            "it must be ≥ 0 (0 leaves a row out)"
        )
    return weights


def class_weights(class_weight: Any, classes: Labels, codes: Index, weights: Array) -> Array:
    """(classes,) factors.

    "balanced" gives classes equal totals, "auto" totals in proportion to their own to the power of
    1/4 if there are more than two. Both keep the sum of the weights.
    """
    if class_weight is None:
        return np.ones(classes.size)
    if isinstance(class_weight, str) and class_weight in ("auto", "balanced"):
        totals = np.bincount(codes, weights, classes.size)
        power = AUTO_POWER if class_weight == "auto" and classes.size > 2 else 0.0
        wanted = np.where(totals > 0, totals**power, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = wanted / totals * (totals.sum() / wanted.sum())
        return np.where(totals > 0, factors, 1.0)
    if not isinstance(class_weight, Mapping):
        raise InputError(
            'class_weight must be "auto", "balanced", None or a dict of class: weight, '
            f"got {class_weight!r}"
        )
    known = {label.item() if hasattr(label, "item") else label for label in classes}
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise InputError(
            f"class_weight names class(es) {preview(unknown)} that y does not have; "
            f"its classes are {preview(classes)}"
        )
    factors = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not np.all(factors > 0) or not np.all(np.isfinite(factors)):
        raise InputError("class_weight must be positive for every class")
    return factors


def _groups(groups: Any, n: int) -> tuple[Labels, Index]:
    if groups is None:
        return np.array(["all"]), np.zeros(n, dtype=np.intp)
    return code_labels("groups", to_vector("groups", groups, n))


def _owners(noise_groups: Any, groups: Labels, index: Index) -> tuple[Labels | None, Index | None]:
    """(labels of the owners, (J,) owner of each group); None, None without ``noise_groups``."""
    if noise_groups is None:
        return None, None
    if isinstance(noise_groups, Mapping):
        missing = [group for group in groups.tolist() if group not in noise_groups]
        if missing:
            raise InputError(
                f"noise_groups has no owner for group(s) {preview(missing)}: name one per group"
            )
        return code_labels("noise_groups", _as_labels([noise_groups[g] for g in groups.tolist()]))
    names, codes = code_labels("noise_groups", to_vector("noise_groups", noise_groups, index.size))
    owners = np.empty(groups.size, dtype=np.intp)
    owners[index] = codes
    torn = np.unique(index[owners[index] != codes])
    if torn.size:
        raise InputError(
            f"group(s) {preview(groups[torn])} have rows of several noise_groups: a group has one "
            "owner, so give all its rows the same noise group"
        )
    return names, owners


def _trusted(trusted: Any, groups: Labels) -> Mask | None:
    """(J,) groups whose labels are known to be right; None if there are none."""
    if trusted is None:
        return None
    if isinstance(trusted, (set, frozenset)):
        trusted = list(trusted)
    labels = np.asarray(trusted) if not len(trusted) else _as_labels(trusted)
    if labels.ndim != 1 or isinstance(trusted, (str, bytes)):
        raise InputTypeError(
            "trusted must be one truth value per group, in the order of the sorted groups, or a "
            f"list of groups; got {type(trusted).__name__}"
        )
    if labels.dtype == np.bool_ and groups.dtype != np.bool_:
        if labels.size != groups.size:
            raise InputError(
                f"trusted has {labels.size} truth values for {groups.size} groups: pass one per "
                "group, in the order of the sorted groups, or a list of groups"
            )
        return labels if labels.any() else None
    if not labels.size:
        return None
    place, known = find_labels(groups, labels)
    if not known.all():
        raise InputError(
            f"trusted names {preview(labels[~known])}, which are no groups of the fit "
            f"({preview(groups)}): name them as in groups"
        )
    mask = np.zeros(groups.size, dtype=np.bool_)
    mask[place] = True
    return mask


def _check_noise_rows(rows: Rows, noise: NoiseModel, groups: Labels, owners: Labels | None) -> None:
    """Raise an InputError if a noise variance has fewer than two rows with weight.

    groups, owners : (J,) labels of the groups, and of their owners
    """
    used = noise.sums(group_sums(rows.groups, rows.weights > 0, rows.n_groups))
    kind = "groups" if noise.separable else "noise groups"
    first = np.unique(noise.index, return_index=True)[1][-noise.n_parameters :]
    names = np.arange(first.size)
    if owners is not None or noise.separable:
        names = (groups if owners is None else owners)[first]
    empty, single = np.flatnonzero(used == 0), np.flatnonzero(used == 1)
    if empty.size:
        raise InputError(
            f"{kind} {preview(names[empty])} have no row with weight: their noise cannot be "
            "estimated; drop their rows or give them weight"
        )
    if single.size:
        raise InputError(
            f"{kind} {preview(names[single])} have one row with weight, too few to "
            "estimate noise; drop it, or give it to another group"
        )


def _feature_groups(feature_groups: Any, k: int) -> tuple[Labels, Index]:
    if feature_groups is None:
        return np.array(["all"]), np.zeros(k, dtype=np.intp)
    labels = np.asarray(feature_groups)
    if labels.ndim != 1 or labels.size != k:
        raise InputError(
            f"feature_groups has shape {labels.shape} but X has {k} columns: "
            "pass one label per column"
        )
    missing = missing_labels(labels)
    if missing.size:
        raise InputError(
            f"feature_groups has an unknown (None or NaN) feature group at column(s) "
            f"{preview(missing)}: name the group of every column"
        )
    return code_labels("feature_groups", labels)


def without_empty_images(arrays: TrainingArrays) -> TrainingArrays:
    """Leave out images with fewer than two superpixels that have weight.

    A warning names them, except for those that a person has rejected.
    """
    index = np.asarray(arrays.groups.codes)
    used = np.bincount(index, np.asarray(arrays.weight) > 0, len(arrays.groups.categories))
    present = np.bincount(index, minlength=used.size) > 0
    empty = present & (used < 2)
    if not empty.any():
        return arrays
    names = np.asarray(arrays.groups.categories)
    unexpected = np.flatnonzero(empty & ~np.isin(names, arrays.rejected))
    if unexpected.size:
        warnings.warn(
            f"{unexpected.size} image(s) have fewer than two labelled superpixels and are left out "
            f"of the fit: {preview(names[unexpected])}",
            stacklevel=3,
        )
    keep = used[index] >= 2
    rows = {name: np.asarray(getattr(arrays, name))[keep] for name in ("y", "weight", "area")}
    return replace(
        arrays,
        X=select_rows(arrays.X, keep),
        groups=arrays.groups[keep],
        together=None if arrays.together is None else arrays.together[keep],
        place=np.flatnonzero(keep),
        trusted=np.setdiff1d(arrays.trusted, names[empty]),
        **rows,
    )
