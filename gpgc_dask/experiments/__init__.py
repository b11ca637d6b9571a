"""The paper's experiments on any data: baselines, filtering rules, tables and statistics."""

from gpgc_dask.experiments.compare import Comparison, compare

__all__ = ["Comparison", "compare"]
