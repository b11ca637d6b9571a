"""Find unreliable annotation, and learn a model in which it does no harm: GP-GC on Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.dataset import open_dataset
    from gpgc_dask.estimators import GP, GPGC
    from gpgc_dask.persistence import load
    from gpgc_dask.svm import MarginSVM

__all__ = ["GP", "GPGC", "MarginSVM", "__version__", "load", "open_dataset"]

__version__ = "0.1.0.dev0"

# Importing what they are in takes seconds, which `gpgc --help` should not.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "dataset": ["open_dataset"],
        "estimators": ["GP", "GPGC"],
        "persistence": ["load"],
        "svm": ["MarginSVM"],
    },
)
