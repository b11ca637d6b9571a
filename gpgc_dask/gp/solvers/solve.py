"""Choice of the solver: :func:`solve` is the entry point of this package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.oracle.base import GroupTerms
from gpgc_dask.gp.solvers.convergence import Certificate, certify, is_converged
from gpgc_dask.gp.solvers.fixed_point import solve_fixed_point
from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.lbfgs import solve_lbfgs
from gpgc_dask.gp.solvers.pooled import solve_pooled, with_positive_scales
from gpgc_dask.gp.solvers.problem import Point, Problem
from gpgc_dask.gp.solvers.run import Run, SaveState
from gpgc_dask.gp.solvers.state import SolverState

__all__ = ["SOLVERS", "Solution", "SolverName", "solve"]

SolverName = Literal["auto", "fixed-point", "lbfgs"]
SOLVERS: tuple[SolverName, ...] = ("auto", "fixed-point", "lbfgs")


@dataclass(frozen=True)
class Solution:
    """The point where a solver stopped.

    Attributes
    ----------
    point : Point
        The point.
    converged : bool
        Whether it is certified to be the optimum.
    terms : GroupTerms or None
        Exact terms at this point, if a read has computed them, with the predictions for each row
        without its group if they were asked for.
    """

    point: Point
    converged: bool
    terms: GroupTerms | None = None

    @property
    def left_out(self) -> Array | None:
        """(N, t) predictions for each row without its group, if they are known."""
        return None if self.terms is None else self.terms.left_out


def solve(
    problem: Problem,
    start: Point,
    history: History,
    solver: SolverName = "auto",
    *,
    state: SolverState | None = None,
    save_state: SaveState | None = None,
    predict: bool = False,
    near: bool = False,
) -> Solution:
    """Maximise the evidence.

    Parameters
    ----------
    problem : Problem
        The problem.
    start : Point
        Where to start, usually :func:`~gpgc_dask.gp.solvers.pooled.pooled_start`: from there the
        useful optimum is reached even if groups with one label make the evidence unbounded.
    history : History
        Collects one entry per iteration.
    solver : {"auto", "fixed-point", "lbfgs"}, default "auto"
        "auto" starts with the fixed point and continues with L-BFGS if that is slow.
    state : SolverState, optional
        State of a fit that was stopped at ``start``, to resume it.
    save_state : callable, optional
        Called with the point and the state after every read of the data.
    predict : bool, default False
        Whether to predict each row without its group in the read that certifies the optimum.
    near : bool, default False
        Whether ``start`` is probably near the optimum: the first read then is a certificate.
    """
    resumed = state is not None
    state = state or replace(SolverState.initial(problem), near=near)
    if state.optimum is not None and is_converged(problem, state.optimum):
        return Solution(start, True)
    state.optimum = None
    run = Run(problem, history, state, save_state, predict)
    if problem.noise.pooled:
        return _finish(run, *solve_pooled(run, start))
    begin = start if resumed else with_positive_scales(problem, start)
    if solver == "lbfgs" or (solver == "auto" and state.phase == "lbfgs"):
        point, certificate = solve_lbfgs(run, begin)
    else:
        point, certificate = solve_fixed_point(run, begin, patient=solver == "fixed-point")
        if solver == "auto" and not run.is_done(certificate):
            point, certificate = solve_lbfgs(run, point)
    if begin is not start and start.value < point.value and not problem.estimates_redundancy:
        point, certificate = start, certify(problem, start, None, None)
    return _finish(run, point, certificate)


def _finish(run: Run, point: Point, certificate: Certificate) -> Solution:
    converged = is_converged(run.problem, certificate)
    run.state.optimum = certificate if converged else None
    run.save(point)
    known = run.exact is not None and run.exact[0] is point
    return Solution(point, converged, run.exact[1] if known and run.exact is not None else None)
