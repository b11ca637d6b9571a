"""Dask dataframes as dask arrays, and the checks that columns of any dataframe are numbers.

A partition becomes a block. Nothing is optimised but which columns are read, so that partitions
stay those that the user sees: results can be assigned to the dataframe they came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
from dask.utils import is_dataframe_like

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.text import listed
from gpgc_dask.execution.compute import compute

__all__ = ["check_columns", "described", "gathered", "is_lazy_frame", "to_array"]


def is_lazy_frame(X: Any) -> bool:
    """Whether X is a dask dataframe."""
    return dask.is_dask_collection(X) and is_dataframe_like(X)


def described(X: Any) -> Any:
    """X as far as names and number of its columns go: a dask dataframe's are those of its meta."""
    return X._meta if is_lazy_frame(X) else X


def check_columns(X: pd.DataFrame, *, lazy: bool = False) -> None:
    """Complain of columns that hold no numbers; of objects in memory, only if they are none."""
    bad = [
        f"{name!r} ({X.dtypes.iloc[place]})"
        for place, name in enumerate(X.columns)
        if not _is_number(X.dtypes.iloc[place])
        and (
            lazy or X.dtypes.iloc[place] != np.dtype(object) or not _holds_numbers(X.iloc[:, place])
        )
    ]
    if bad:
        raise InputError(
            f"X has column(s) that hold no numbers: {listed(bad)}; leave them out (X[features]), "
            "or encode them, for example with get_dummies"
        )


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))


def _holds_numbers(column: pd.Series) -> bool:
    try:
        column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return True


def gathered(X: Any, *vectors: Any) -> tuple[Any, ...]:
    """(X with its rows counted, the vectors in memory): all that is lazy is computed together."""
    lazy = [dask.is_dask_collection(vector) for vector in vectors]
    framed = is_lazy_frame(X)
    if not framed and not any(lazy):
        return X, *vectors
    waiting = [_lazy_parts(vector) for vector, waits in zip(vectors, lazy, strict=True) if waits]
    rows, *found = compute(_counts(X) if framed else [], *waiting)
    values = map(_joined, found)
    return (
        to_array(X, rows) if framed else X,
        *(next(values) if waits else vector for vector, waits in zip(vectors, lazy, strict=True)),
    )


def _lazy_parts(vector: Any) -> Any:
    """A dask series as its partitions, which can be computed together with arrays."""
    return _partitions(vector) if hasattr(vector, "simplify") else vector


def _joined(found: Any) -> Any:
    return pd.concat(found) if isinstance(found, list) else found


def _counts(X: Any) -> list[Any]:
    """Lazy numbers of rows of the partitions; one column tells them."""
    length = dask.delayed(len)
    return [length(part) for part in _partitions(X[list(X.columns[:1])])]


def _partitions(X: Any) -> list[Any]:
    return X.simplify().to_delayed(optimize_graph=False)


def to_array(X: Any, rows: Sequence[float] | None = None) -> da.Array:
    """(N, k) a dask dataframe as an array of floats: float32 if nothing in it is finer.

    rows : of the partitions; None: unknown, which will do for predictions
    """
    check_columns(X._meta, lazy=True)
    dtype = np.result_type(np.float16, *map(_plain, X._meta.dtypes))
    dtype = dtype if dtype in (np.float16, np.float32) else np.dtype(np.float64)
    parts, k = _partitions(X), len(X.columns)
    values, meta = dask.delayed(_values, pure=True), np.empty((0, 0), dtype)
    blocks = [
        da.from_delayed(values(part, dtype), (n, k), dtype=dtype, meta=meta)
        for part, n in zip(parts, rows or [np.nan] * len(parts), strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _plain(dtype: Any) -> np.dtype[Any]:
    """NumPy's type of a column, also of those that pandas or Arrow keep."""
    return np.dtype(getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype)))


def _values(part: pd.DataFrame, dtype: np.dtype[Any]) -> Features:
    """A partition's numbers, row by row; what is missing is NaN."""
    return np.ascontiguousarray(part.to_numpy(dtype=dtype, na_value=np.nan))
