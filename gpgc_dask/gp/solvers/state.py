"""What a solver remembers from step to step besides its point: enough to go on unchanged."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.solvers.problem import Certificate
from gpgc_dask.gp.solvers.redundancy import RedundancySearch

__all__ = ["Course", "Promise"]


@dataclass(frozen=True)
class Promise:
    """What is expected of a point before the data is read at it.

    mean : (k, t) weights to judge rows by in the next sweep; None: the posterior's own
    certificate : the expected one; None: nothing is known
    """

    mean: Array | None = None
    certificate: Certificate | None = None


@dataclass
class Course:
    """Where a solver is.

    phase : "fixed-point" or "lbfgs";  slow : slow steps in a row
    doubt : share of the tolerance below which an expected gain is worth a certificate
    exactly : whether leverages must be exact from now on
    last_gain : predicted gain of the last step, nats
    finished : the certificate of a point that was found to be the optimum
    """

    search: RedundancySearch
    doubt: float
    phase: str = "fixed-point"
    slow: int = 0
    exactly: bool = False
    last_gain: float = float("inf")
    promise: Promise = Promise()
    finished: Certificate | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON holds it, all but the promise's mean."""
        values = asdict(self)
        values["promise"] = values["promise"]["certificate"]
        return values

    @classmethod
    def of(cls, values: dict[str, Any], mean: Array | None) -> Course:
        """The inverse of :meth:`plain`."""
        search = dict(values["search"])
        search["last"] = None if search["last"] is None else tuple(search["last"])
        known = {name: values[name] for name in ("doubt", "phase", "slow", "exactly", "last_gain")}
        return cls(
            search=RedundancySearch(**search),
            promise=Promise(mean, _certificate(values["promise"])),
            finished=_certificate(values["finished"]),
            **known,
        )


def _certificate(values: dict[str, Any] | None) -> Certificate | None:
    return None if values is None else Certificate(**values)
