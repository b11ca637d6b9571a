"""One run of a solver: what all solvers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.threads import algebra_threads
from gpgc_dask.gp.oracle.base import GroupTerms, TermsRequest
from gpgc_dask.gp.solvers.convergence import Certificate, certify, is_converged
from gpgc_dask.gp.solvers.history import History
from gpgc_dask.gp.solvers.problem import Point, Problem
from gpgc_dask.gp.solvers.redundancy import moment_ratio
from gpgc_dask.gp.solvers.state import SolverState

__all__ = ["Run", "SaveState", "algebra"]

SaveState = Callable[[Point, SolverState], None]
"""Saves where a solver is, so that it can be resumed there."""


@contextmanager
def algebra(history: History, n_features: int) -> Iterator[None]:
    """Time k×k algebra at the driver, which runs with a suitable number of BLAS threads."""
    with history.timed("solve"), algebra_threads(n_features):
        yield


@dataclass
class Run:
    """One run of a solver.

    Attributes
    ----------
    problem : Problem
        The problem to solve.
    history : History
        Collects one entry per iteration.
    state : SolverState
        What the solver remembers between steps.
    save_state : callable or None
        Called with the point and the state after every read of the data.
    predict : bool
        Whether to predict each row without its group in the read that certifies the optimum.
    exact : tuple of Point and GroupTerms, or None
        The last exact terms, and the point that they belong to.
    """

    problem: Problem
    history: History
    state: SolverState
    save_state: SaveState | None = None
    predict: bool = False
    exact: tuple[Point, GroupTerms] | None = None

    def save(self, point: Point) -> None:
        """Save the point and the state: a stopped fit can be resumed here."""
        if self.save_state is not None:
            self.save_state(point, self.state)

    def sweep(self) -> AbstractContextManager[None]:
        """Time a read of the data."""
        return self.history.timed("sweep")

    def algebra(self) -> AbstractContextManager[None]:
        """Time k×k algebra, see :func:`algebra`."""
        return algebra(self.history, self.problem.n_features)

    def exact_terms(
        self, point: Point, *, final: bool = False, gradient_groups: Mask | None = None
    ) -> GroupTerms:
        """Exact group terms at a point, in one read.

        Predictions without the groups are part of the read only if the point is probably the
        ``final`` one: they cost half as much again. ``gradient_groups`` are those of
        :class:`TermsRequest`.
        """
        params = point.params
        with self.sweep():
            terms = self.problem.oracle.terms(
                point.post,
                params.log_noise,
                params.redundancy,
                leave_out=self.problem.estimates_redundancy,
                request=TermsRequest(
                    gradient_groups=gradient_groups, left_out=final and self.predict
                ),
            )
        self.exact = (point, terms)
        return terms

    def ratio(self, terms: GroupTerms) -> float | None:
        """Moment ratio of the redundancy from group terms; None if c is fixed."""
        if not self.problem.estimates_redundancy:
            return None
        return moment_ratio(terms, self.problem.n_targets)

    def certify(
        self, phase: str, point: Point, terms: GroupTerms, *, error: float | None = None
    ) -> Certificate:
        """The exact certificate of a point, which is added to the history.

        ``error`` is the precision error of the point if it is known, or does not matter.
        """
        certificate = certify(self.problem, point, terms, self.ratio(terms), error=error)
        self.history.append(phase, self.problem, point, certificate)
        return certificate

    @property
    def iterations_left(self) -> int:
        """Iterations that ``max_iter`` still allows."""
        return self.problem.max_iter - self.history.n_iterations

    def is_done(self, certificate: Certificate) -> bool:
        """Whether a point is the optimum, or no iteration is left."""
        return is_converged(self.problem, certificate) or self.iterations_left <= 0
