"""Find unreliable annotation, and learn a model in which it does no harm: GP-GC on Dask."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpgc_dask.dataset import open_dataset
    from gpgc_dask.estimators import GP, GPGC
    from gpgc_dask.persistence import load
    from gpgc_dask.svm import MarginSVM

__all__ = ["GP", "GPGC", "MarginSVM", "__version__", "load", "open_dataset"]

__version__ = "0.1.0.dev0"

_HOMES = {
    "GP": "estimators",
    "GPGC": "estimators",
    "MarginSVM": "svm",
    "load": "persistence",
    "open_dataset": "dataset",
}


def __getattr__(name: str) -> Any:
    """Names are fetched from their modules when asked for: importing these takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
