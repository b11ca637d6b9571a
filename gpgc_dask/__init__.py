"""Find unreliable annotation, and learn a model in which it does no harm: GP-GC on Dask."""

from gpgc_dask.dataset import open_dataset
from gpgc_dask.estimators import GP, GPGC
from gpgc_dask.persistence import load
from gpgc_dask.svm import MarginSVM

__all__ = ["GP", "GPGC", "MarginSVM", "__version__", "load", "open_dataset"]

__version__ = "0.1.0.dev0"
