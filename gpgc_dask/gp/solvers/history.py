"""The history of a fit: one dict per iteration. Progress displays and logs only read it."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from gpgc_dask.gp.oracle.base import SweepOracle
from gpgc_dask.gp.solvers.convergence import Certificate, gain_tolerance
from gpgc_dask.gp.solvers.problem import Point, Problem

__all__ = ["History"]

log = logging.getLogger("gpgc_dask")


@dataclass
class History:
    """Collects the entries of ``history_`` and passes each of them to the listeners.

    An entry has the keys ``iteration``, ``phase`` ("pooled", "fixed-point", "lbfgs"),
    ``log_evidence``, ``projected_gradient``, ``predicted_gain`` and ``gain_tolerance`` (nats),
    ``certified`` (whether gradient and gain are exact), ``redundancy``, ``redundancy_ratio``,
    ``reads`` (so far), ``arithmetic`` (of the products), ``precision_error`` (estimated error of
    the evidence from it, nats) and ``seconds`` (by phase, of this entry). Rounds of the second look
    ("second look 1" and so on) have the values of the last entry before, except for ``iteration``,
    ``reads`` and ``seconds``.

    Attributes
    ----------
    oracle : SweepOracle
        Oracle whose reads are counted.
    arithmetic : str
        Name of the arithmetic of the products.
    reads_before : float
        Reads of earlier attempts and runs of the same fit.
    entries_before : int
        Number of entries of an earlier run that was stopped: they do not count as iterations.
    listeners : list of callable
        Called with each new entry.
    entries : list of dict
        The entries.
    """

    oracle: SweepOracle
    arithmetic: str
    reads_before: float = 0.0
    entries_before: int = 0
    listeners: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def timed(self, name: Literal["sample", "sweep", "solve"]) -> Iterator[None]:
        """Add the time inside to ``seconds[name]`` of the next entry."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    def append(self, phase: str, problem: Problem, point: Point, certificate: Certificate) -> None:
        """Add an entry for a point."""
        entry = {
            "iteration": len(self.entries),
            "phase": phase,
            "log_evidence": problem.log_evidence(point),
            "projected_gradient": certificate.projected_gradient,
            "predicted_gain": certificate.gain,
            "certified": certificate.exact,
            "gain_tolerance": gain_tolerance(problem),
            "redundancy": point.params.redundancy,
            "redundancy_ratio": certificate.ratio,
            "reads": self.reads,
            "arithmetic": self.arithmetic,
            "precision_error": certificate.precision_error,
        }
        self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        entry["seconds"] = dict(self._seconds)
        self._seconds.clear()
        self.entries.append(entry)
        log.debug("%s", entry)
        for listener in self.listeners:
            listener(entry)

    def append_round(self, phase: str) -> None:
        """Add an entry for another posterior at the hyperparameters of the last entry."""
        self._add(
            self.entries[-1] | {"iteration": len(self.entries), "phase": phase, "reads": self.reads}
        )

    def change_oracle(self, oracle: SweepOracle) -> None:
        """Count the reads of another oracle from now on, in addition to those so far."""
        self.reads_before = self.reads - oracle.reads
        self.oracle = oracle

    def annotate(self, **values: Any) -> None:
        """Add values to the last entry."""
        self.entries[-1].update(values)

    @property
    def reads(self) -> float:
        """Full reads of the data so far, including those of earlier attempts."""
        return self.reads_before + self.oracle.reads

    @property
    def n_iterations(self) -> int:
        """Number of iterations of this run."""
        return len(self.entries) - self.entries_before
