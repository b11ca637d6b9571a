"""The rows of a task in few bytes, as every sweep sends them to the workers.

As they are, the class, weight and group of a row take 24 bytes, which the driver, the scheduler and
a worker write and read in every sweep. Groups come in runs, classes and most weights have few
values, and other weights are often exact in float32.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.layout import TaskRows

__all__ = ["PackedRows", "pack", "unpack"]

FEW_VALUES = 256
"""Distinct values that are sent as a table and one byte per row."""

SAMPLE = 4096
"""Number of values that are looked at to see whether there are few distinct ones."""


class PackedRows:
    """The rows of a task, which are packed once, when they are first sent, and unpacked on use.

    A scheduler, which reads and writes its tasks, never unpacks them.
    """

    __slots__ = ("_packed", "_task")

    def __init__(self, task: TaskRows) -> None:
        self._task: TaskRows | None = task
        self._packed: dict[str, Any] | None = None

    @property
    def value(self) -> TaskRows:
        """The rows of the task."""
        if self._task is None:
            packed = dict(self._packed or {})
            rows = {name: unpack(value) for name, value in packed.pop("rows").items()}
            values = {name: unpack(value) for name, value in packed.items()}
            self._task = TaskRows(rows=Rows(**rows), **values)
        return self._task

    def __getstate__(self) -> dict[str, Any]:
        if self._packed is None:
            task = self.value
            packed: dict[str, Any] = {
                field.name: pack(getattr(task, field.name)) for field in fields(task)
            }
            rows = task.rows
            packed["rows"] = {field.name: pack(getattr(rows, field.name)) for field in fields(rows)}
            self._packed = packed
        return self._packed

    def __setstate__(self, packed: dict[str, Any]) -> None:
        self._task, self._packed = None, packed


def pack(values: Any) -> tuple[Any, ...]:
    """What :func:`unpack` makes exactly the same array of: (kind, type, arrays). Others are kept.

    Parameters
    ----------
    values : array of shape (n,), or any other value
        Numbers or bools.
    """
    if not isinstance(values, np.ndarray) or not values.size:
        return ("same", values)
    kind, parts = _runs(values) or _table(values) or ("values", (_smallest(values),))
    return (kind, values.dtype.str, *parts)


def unpack(packed: tuple[Any, ...]) -> Any:
    """The value that was packed."""
    if packed[0] == "same":
        return packed[1]
    kind, dtype, first, *rest = packed
    if kind == "runs":
        result = np.repeat(first, rest[0])
    elif kind == "bits":
        result = first[np.unpackbits(rest[0], count=int(rest[1]))]
    elif kind == "table":
        result = first[rest[0]]
    else:
        result = first
    return result.astype(dtype, copy=False)


def _runs(values: np.ndarray[Any, Any]) -> tuple[str, tuple[Any, ...]] | None:
    """Each value with the length of its run, if they are an eighth of the values at most."""
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    if 8 * starts.size > values.size + 8:
        return None
    lengths = np.diff(starts, append=values.size)
    return "runs", (_smallest(values[starts]), _smallest(lengths))


def _table(values: np.ndarray[Any, Any]) -> tuple[str, tuple[Any, ...]] | None:
    """Few distinct values, and a bit or a byte for each row."""
    if values.size < SAMPLE // 8 or np.unique(values[:SAMPLE]).size > FEW_VALUES // 2:
        return None
    table, number = np.unique(values, return_inverse=True)
    if table.size > FEW_VALUES:
        return None
    if table.size <= 2:
        return "bits", (table, np.packbits(number.astype(bool)), values.size)
    return "table", (table, number.astype(np.uint8))


def _smallest(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values in the smallest type that holds them exactly."""
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        dtype = np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high))
        return values.astype(dtype) if dtype.itemsize < values.dtype.itemsize else values
    if values.dtype == np.float64:
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        return single if np.array_equal(single, values) else values
    return values
