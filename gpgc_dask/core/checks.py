"""Checks of arguments; each error names the argument and the allowed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError, InputTypeError, NotFiniteError

__all__ = ["check_choice", "check_finite", "check_positive"]


def check_finite(F: Features, first_row: int = 0) -> None:
    """Raise a NotFiniteError with rows and columns if a batch contains NaN or infinity."""
    # One product is enough: NaN and infinity survive in it. Overflow is no error.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite((F @ np.ones(F.shape[1], dtype=F.dtype)).sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(F)
    if not bad.any():
        return
    rows = np.flatnonzero(bad.any(1)) + first_row
    raise NotFiniteError(rows.tolist(), np.flatnonzero(bad.any(0)).tolist())


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return the value; raise an InputError that lists the allowed ones if it is not allowed."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def check_positive(name: str, value: Any) -> float:
    """Return the value as a float; raise an error if it is not positive and finite."""
    if isinstance(value, bool) or not isinstance(value, (float, int, np.number)):
        raise InputTypeError(f"{name} must be a number, got {value!r}")
    if not (value > 0 and np.isfinite(value)):
        raise InputError(f"{name} must be positive and finite, got {value!r}")
    return float(value)
