"""What a solver remembers between steps in addition to its point: enough to resume it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.solvers.convergence import Certificate
from gpgc_dask.gp.solvers.problem import Problem
from gpgc_dask.gp.solvers.redundancy import RedundancySearch

__all__ = ["Expectation", "SolverState"]

CERTIFY_SHARE = 0.8
"""Share of the gain tolerance below which an expected gain is worth a certificate, at first."""


@dataclass(frozen=True)
class Expectation:
    """What the last sweep predicts for a point at which the data has not been read yet.

    Attributes
    ----------
    mean : array of shape (k, t) or None
        Weights that the next sweep should compute residuals with. None: the posterior mean.
    certificate : Certificate or None
        Expected certificate. None: nothing is known.
    """

    mean: Array | None = None
    certificate: Certificate | None = None


@dataclass
class SolverState:
    """What a solver remembers between steps.

    Attributes
    ----------
    search : RedundancySearch
        Search for the redundancy.
    phase : str
        "fixed-point" or "lbfgs".
    certify_share : float
        Share of the gain tolerance below which an expected gain is worth a certificate.
    slow_steps : int
        Number of slow steps in a row.
    exact_leverages : bool
        Whether leverages must be exact from now on.
    last_gain : float
        Predicted gain at the last step in nats.
    expectation : Expectation
        What is expected at the current point.
    optimum : Certificate or None
        Certificate of the current point if it is the optimum.
    near : bool
        Whether the fit has just started, probably near the optimum.
    """

    search: RedundancySearch
    phase: str = "fixed-point"
    certify_share: float = CERTIFY_SHARE
    slow_steps: int = 0
    exact_leverages: bool = False
    last_gain: float = float("inf")
    expectation: Expectation = Expectation()
    optimum: Certificate | None = None
    near: bool = False

    @classmethod
    def initial(cls, problem: Problem) -> SolverState:
        """The state at the start of a fit."""
        return cls(RedundancySearch(*problem.redundancy_bounds))

    def to_json(self) -> dict[str, Any]:
        """All values as JSON types, except for the mean of the expectation."""
        values = asdict(self)
        values["expectation"] = values["expectation"]["certificate"]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any], mean: Array | None) -> SolverState:
        """The inverse of :meth:`to_json`; ``mean`` is the mean of the expectation."""
        values = dict(values)
        search = dict(values.pop("search"))
        search["last"] = None if search["last"] is None else tuple(search["last"])
        return cls(
            search=RedundancySearch(**search),
            expectation=Expectation(mean, _certificate(values.pop("expectation"))),
            optimum=_certificate(values.pop("optimum")),
            **values,
        )


def _certificate(values: dict[str, Any] | None) -> Certificate | None:
    return None if values is None else Certificate(**values)
