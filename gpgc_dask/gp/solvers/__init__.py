"""Solvers that maximise the evidence. They see the data through the contract of the oracle only.

===============  =============================================================================
module           contents
===============  =============================================================================
``solve``        the entry point: choice of the solver
``fixed_point``  the default solver: one read per step
``lbfgs``        L-BFGS-B, as a reference and if the fixed point is slow
``pooled``       one noise variance for all groups
``problem``      the objective and its gradient at a point
``convergence``  certificates and tolerances: when a fit is done
``newton``       Newton's step for the weights, and expected terms
``polish``       better noise near the optimum, from cheap reads
``scales``       optimisation of the feature scales, without a read
``redundancy``   the search for the redundancy c
``probes``       leverages estimated by random directions
``state``        what a solver remembers between steps
``history``      one entry per iteration
``run``          what all solvers share: problem, history, state, checkpoint
===============  =============================================================================
"""

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
