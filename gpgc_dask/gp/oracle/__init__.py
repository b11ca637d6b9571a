"""Everything the mathematics asks of the feature matrix."""

from gpgc_dask.gp.oracle.base import FeatureOracle, GroupTerms, Rows, StepResult, SweepOracle

__all__ = ["FeatureOracle", "GroupTerms", "Rows", "StepResult", "SweepOracle"]
