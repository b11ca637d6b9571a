"""Solvers that maximise the evidence. They see the data through the contract of the oracle only."""

from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.pooled import pooled_start
from gpgc_dask.gp.solvers.problem import Hyperparameters, Point, Problem
from gpgc_dask.gp.solvers.solve import SOLVERS, Solution, SolverName, solve
from gpgc_dask.gp.solvers.state import SolverState

__all__ = [
    "SOLVERS",
    "History",
    "Hyperparameters",
    "Point",
    "Problem",
    "Solution",
    "SolverName",
    "SolverState",
    "pooled_start",
    "solve",
]
