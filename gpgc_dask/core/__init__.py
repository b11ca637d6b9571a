"""Shared building blocks without Dask and without I/O."""

from __future__ import annotations

from gpgc_dask.core import errors

__all__ = ["errors"]
