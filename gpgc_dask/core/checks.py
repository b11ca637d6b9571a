"""Checks of arguments; each error names the argument and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, InputTypeError, NotFiniteError

__all__ = ["check_finite"]


def check_finite(F: Features, first_row: int = 0) -> None:
    """Raise a NotFiniteError that names rows and columns where a batch has NaN or infinity."""
    # One product tells: NaN and infinity survive in it. Overflow of finite numbers is no error.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite((F @ np.ones(F.shape[1], dtype=F.dtype)).sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(F)
    if not bad.any():
        return
    rows = np.flatnonzero(bad.any(1)) + first_row
    raise NotFiniteError(rows.tolist(), np.flatnonzero(bad.any(0)).tolist())


def choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """The value, or a ValueError that lists what is allowed."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def positive(name: str, value: Any) -> float:
    """The value as a float, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, (float, int, np.number)):
        raise InputTypeError(f"{name} must be a number, got {value!r}")
    if not (value > 0 and np.isfinite(value)):
        raise InputError(f"{name} must be positive and finite, got {value!r}")
    return float(value)
