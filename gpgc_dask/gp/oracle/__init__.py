"""Queries about the feature matrix: the only way the solvers get at the data."""

from gpgc_dask.gp.oracle.base import FeatureOracle, GroupTerms, Rows, StepResult, SweepOracle

__all__ = ["FeatureOracle", "GroupTerms", "Rows", "StepResult", "SweepOracle"]
