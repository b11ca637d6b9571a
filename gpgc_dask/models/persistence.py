"""Saved models: a Zarr v3 group of plain arrays and JSON. No pickle is written or read.

A reader finds a complete model or none. In a local folder a new model replaces the old one by a
rename. At a URL objects are replaced one by one: there the attribute that marks the group as a
model is removed first and written last.
"""

from __future__ import annotations

import json
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import (
    CorruptedError,
    ExistsError,
    InputError,
    InputTypeError,
    MissingFileError,
)
from gpgc_dask.data.schema import check_plain, check_version
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.models.objects import empty_table
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.registry import MODELS, model_class
from gpgc_dask.quality.calibration import Calibration
from gpgc_dask.quality.scorer import QualityScorer
from gpgc_dask.storage.integrity import (
    DIGESTS,
    check_digests,
    digests,
    read_attributes,
    read_metadata,
)
from gpgc_dask.storage.location import MAX_CONCURRENT, Location, write_error
from gpgc_dask.storage.verified import VerifiedArray, checksum_options, open_verified

__all__ = ["load", "save", "state"]

FORMAT = "gpgc_dask model"
UNFINISHED = f"{FORMAT}, unfinished"
FORMAT_VERSION = 3

SAVED_LABELS = ("classes_", "groups_", "noise_groups_", "feature_names_in_")
"""Attributes that hold labels of any type."""

LEAVE_OUT = "leave_out"
"""The array that is read when it is needed."""

SCORER = "scorer_"
"""Arrays whose names start with this are those of the quality of other masks."""

LEAVE_OUT_ROWS = 1 << 20
"""Rows per chunk of it."""

WAY_OUT = "restore it from a copy, or fit it again (gpgc fit --overwrite)"


def save(
    model: FittedModel, path: str | PathLike[str], storage_options: dict[str, Any] | None = None
) -> None:
    """Write a fitted model to a path or URL, completely or not at all.

    Parameters
    ----------
    model : FittedModel
        The model. An older one at the same place is replaced.
    path : str or path-like
        A local folder or any fsspec URL.
    storage_options : dict, optional
        Options of fsspec for a URL.
    """
    location = Location.of(path, storage_options)
    name = type(model).__name__
    if model_class(name) is not type(model):
        known = ", ".join(MODELS[method].__name__ for method in MODELS)
        raise InputTypeError(
            f"{name} cannot be saved: only {known} can; a subclass needs a format of its own"
        )
    if state(location) == "foreign":
        raise ExistsError(
            f"{location} exists and is not a gpgc_dask model: choose another path or remove it"
        )
    if location.is_local:
        _save_folder(model, Path(location.url).resolve())
    else:
        _save_objects(model, location)


def _save_folder(model: FittedModel, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        _write(model, Location.of(new))
        if target.exists():
            shutil.rmtree(target)
        new.rename(target)
    except OSError as error:
        raise write_error(error, target) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _save_objects(model: FittedModel, location: Location) -> None:
    """Write to memory, then upload each object once: Zarr itself would request each repeatedly."""
    drafts, name = Location.of("memory://gpgc-drafts"), uuid.uuid4().hex
    draft = Location.of(f"{drafts}/{name}")
    try:
        _write(model, draft)
        objects = {key: draft.read(key) for key in draft.files()}
    finally:
        drafts.remove(name)
    mark = {"zarr_format": 3, "node_type": "group", "attributes": {"format": UNFINISHED}}
    location.write("zarr.json", json.dumps(mark).encode())
    finished = objects.pop("zarr.json")
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        list(pool.map(location.write, objects.keys(), objects.values()))
    # Arrays of an older model must not be taken for those of the new one.
    for key in location.files() - objects.keys() - {"zarr.json"}:
        location.remove(key)
    location.write("zarr.json", finished)


def load(path: str | PathLike[str], storage_options: dict[str, Any] | None = None) -> FittedModel:
    """Read a model that ``save`` wrote to a path or URL.

    Parameters
    ----------
    path : str or path-like
        A local folder or any fsspec URL.
    storage_options : dict, optional
        Options of fsspec for a URL.

    Returns
    -------
    FittedModel
        A fitted ``GPGC``, ``GP`` or ``MarginSVM``.

    Raises
    ------
    CorruptedError
        If what is stored is not what was written.

    Examples
    --------
    >>> from gpgc_dask import load
    >>> model = load("model.zarr")
    >>> model.converged_, model.groups_.size
    (True, 12)
    """
    source = Location.of(path, storage_options)
    meta = read_attributes(source)
    there = _state(source, meta)
    if there == "absent":
        raise MissingFileError(
            f"{source} does not exist: make a model with gpgc fit, or in Python with save()"
        )
    if there == "unfinished":
        raise InputError(
            f"{source} is not finished: wait until it is saved, or resume the same gpgc fit with "
            "--resume"
        )
    if there == "foreign" or meta is None:
        raise InputError(
            f"{source} is not a gpgc_dask model: pass what gpgc fit has written, or in Python "
            "save()"
        )
    check_version(source, meta, FORMAT_VERSION)
    stored = _read_arrays(source, meta)
    try:
        return _read_model(stored, meta["estimator"])
    except CorruptedError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptedError(f"{source} is corrupted ({error}): {WAY_OUT}") from error


@dataclass(frozen=True)
class _Stored:
    """Arrays of a model by name, the attributes of each, and the array that is read lazily."""

    arrays: dict[str, Labels]
    attributes: dict[str, dict[str, Any]]
    leave_out: VerifiedArray | None

    def __contains__(self, name: str) -> bool:
        return name in self.arrays


def _read_arrays(location: Location, meta: dict[str, Any]) -> _Stored:
    """All arrays of the model at a location, checked."""
    described = check_digests(location, meta, WAY_OUT)
    check_plain(described, str(location))
    group = open_verified(location, described, complete=described, compressed=described)

    def read(name: str) -> tuple[Labels, dict[str, Any]]:
        array = VerifiedArray(group, name, str(location), WAY_OUT)
        return array[...], dict(array.array.attrs)

    names = [name for name in described if name != LEAVE_OUT]
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        arrays = dict(zip(names, pool.map(read, names), strict=True))
    lazy = (
        VerifiedArray(group, LEAVE_OUT, str(location), WAY_OUT) if LEAVE_OUT in described else None
    )
    return _Stored(
        {name: values for name, (values, _) in arrays.items()},
        {name: attributes for name, (_, attributes) in arrays.items()},
        lazy,
    )


def _read_model(stored: _Stored, estimator: str) -> FittedModel:
    kind = model_class(estimator)
    if kind is None:
        raise InputError(f"it is of an unknown kind, {estimator}")
    model = kind(**_parameters(_read_json(stored, "parameters")))
    for name in kind.saved_arrays:
        if name in stored:
            value = stored.arrays[name]
            setattr(model, name, value if value.ndim else value[()])
    for name in SAVED_LABELS:
        if name in stored or f"{name}json" in stored:
            setattr(model, name, _read_labels(stored, name))
    values = _read_json(stored, "values")
    for name in kind.saved_values:
        if name in values:
            setattr(model, name, values[name])
    if "datasetjson" in stored:
        model.dataset_ = _read_json(stored, "dataset")
    if "reviewjson" in stored:
        model.review_ = _read_table(stored, "review")
    if "objectsjson" in stored:
        model.reviewed_objects_ = _read_table(stored, "objects")
    if "calibration" in stored:
        model.calibration_ = Calibration.from_array(stored.arrays["calibration"])
    scorer = {
        name.removeprefix(SCORER): values
        for name, values in stored.arrays.items()
        if name.startswith(SCORER)
    }
    if scorer:
        model.scorer_ = QualityScorer.from_arrays(scorer)
    if stored.leave_out is not None:
        attributes = stored.leave_out.array.attrs
        model.leave_out_ = KeptPredictions(
            attributes["rows"], stored.leave_out, attributes["content"]
        )
    if "historyjson" in stored:
        model.history_ = _read_json(stored, "history")
        names = _read_labels(stored, "feature_groups").tolist()
        scales = stored.arrays["scales"].tolist()
        model.feature_scales_ = dict(zip(names, scales, strict=True))
    return model


def _write(model: FittedModel, location: Location) -> None:
    group = location.group("a")
    for name in model.saved_arrays:
        if getattr(model, name, None) is not None:
            _write_array(group, name, np.asarray(getattr(model, name)))
    for name in SAVED_LABELS:
        if hasattr(model, name):
            _write_labels(group, name, np.asarray(getattr(model, name)))
    if model.feature_scales:
        _write_labels(group, "feature_groups", np.array(list(model.feature_scales)))
        _write_array(group, "scales", np.array(list(model.feature_scales.values())))
        _write_json(group, "history", model.history)
    values = {name: getattr(model, name) for name in model.saved_values if hasattr(model, name)}
    _write_json(group, "values", values)
    _write_json(group, "parameters", _plain_parameters(model))
    if model.dataset_info is not None:
        _write_json(group, "dataset", model.dataset_info)
    if model.review_table is not None:
        _write_table(group, "review", model.review_table)
    if model.objects_table is not None:
        _write_table(group, "objects", model.objects_table)
    if model.calibration is not None:
        _write_array(group, "calibration", model.calibration.to_array())
    if model.scorer is not None:
        for name, array in model.scorer.to_arrays().items():
            _write_array(group, f"{SCORER}{name}", array)
    if model.leave_out is not None:
        _write_leave_out(group, model.leave_out)
    # Last, and all at once: a group without these attributes is not a model.
    attributes: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "estimator": type(model).__name__,
    }
    attributes[DIGESTS] = digests(attributes, read_metadata(location, sorted(group.array_keys())))
    group.update_attributes(attributes)


def _write_leave_out(group: zarr.Group, leave_out: KeptPredictions) -> None:
    values = leave_out.values
    group.create_array(
        LEAVE_OUT,
        data=values,
        chunks=(min(LEAVE_OUT_ROWS, len(values)), *values.shape[1:]),
        attributes={"rows": leave_out.rows, "content": leave_out.content},
        **checksum_options(compressed=True),
    )


def state(location: Location) -> str:
    """What is at a location: "absent", "complete", "unfinished" (being saved) or "foreign"."""
    return _state(location, read_attributes(location))


def _state(location: Location, meta: dict[str, Any] | None) -> str:
    """What is at a location whose group has these attributes; None: there is no group."""
    if meta is None:
        return "foreign" if location.exists() else "absent"
    mark = meta.get("format")
    return {FORMAT: "complete", UNFINISHED: "unfinished"}.get(str(mark), "foreign")


def _plain_parameters(model: FittedModel) -> dict[str, Any]:
    """Parameters as JSON holds them, without those of the session."""
    parameters = model.get_params(deep=False)
    session = set(model.session_parameters) & parameters.keys()
    parameters |= dict.fromkeys(session)
    if isinstance(parameters["class_weight"], dict):
        parameters["class_weight"] = list(parameters["class_weight"].items())
    return parameters


def _parameters(stored: dict[str, Any]) -> dict[str, Any]:
    if isinstance(stored["class_weight"], list):
        stored["class_weight"] = dict(stored["class_weight"])
    if "redundancy" in stored:
        stored.setdefault("rounds", 0)  # Models of earlier versions had no second look.
    return stored


def _write_array(group: zarr.Group, name: str, value: Labels) -> None:
    data = np.ascontiguousarray(value) if value.ndim else value
    group.create_array(name, data=data, **checksum_options(compressed=True))


def _write_json(group: zarr.Group, name: str, value: Any) -> None:
    text = json.dumps(value, default=_plain).encode()
    _write_array(group, f"{name}json", np.frombuffer(text, dtype=np.uint8))


def _read_json(stored: _Stored, name: str) -> Any:
    return json.loads(bytes(stored.arrays[f"{name}json"]))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InputTypeError(f"cannot save a {type(value).__name__} in a model: {value!r}")


def _write_table(group: zarr.Group, name: str, table: pd.DataFrame) -> None:
    columns = list(table)
    _write_json(group, name, columns)
    if table.empty:
        return
    for key, column in zip(_column_keys(name, columns), columns, strict=True):
        _write_labels(group, key, np.array(table[column].tolist()))


def _read_table(stored: _Stored, name: str) -> pd.DataFrame:
    columns = _read_json(stored, name)
    keys = _column_keys(name, columns)
    if not any(key in stored or f"{key}json" in stored for key in keys):
        return empty_table()
    pairs = zip(keys, columns, strict=True)
    return pd.DataFrame({column: _read_labels(stored, key) for key, column in pairs})


def _column_keys(name: str, columns: list[str]) -> list[str]:
    """Names of the arrays of a table: columns that are no plain names, such as those of classes,
    are numbered."""
    return [
        f"{name}_{column if column.isidentifier() and column.isascii() else number}"
        for number, column in enumerate(columns)
    ]


def _write_labels(group: zarr.Group, name: str, labels: Labels) -> None:
    """Numbers as an array of their own type, dates as integers with their type, text as JSON."""
    if labels.dtype.kind in "biuf":
        _write_array(group, name, labels)
    elif labels.dtype.kind in "mM":
        _write_array(group, name, labels.astype(np.int64))
        group[name].attrs["dtype"] = str(labels.dtype)
    elif all(isinstance(label, str) for label in labels.tolist()):
        _write_json(group, name, labels.tolist())
    else:
        raise InputTypeError(
            f"{name} holds labels of type {type(labels.tolist()[0]).__name__}, which cannot be "
            "saved: fit with numbers, text or dates"
        )


def _read_labels(stored: _Stored, name: str) -> Labels:
    if name in stored:
        values, attributes = stored.arrays[name], stored.attributes[name]
        return values.astype(attributes["dtype"]) if "dtype" in attributes else values
    labels = _read_json(stored, name)
    return np.array(labels, dtype=object if name == "feature_names_in_" else None)
