"""The course of a fit as data: one dict an iteration. Progress and logs only read it."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from gpgc_dask.core.threads import algebra_threads
from gpgc_dask.gp.oracle.base import SweepOracle
from gpgc_dask.gp.solvers.problem import Certificate, Point, Problem
from gpgc_dask.gp.solvers.state import Course

__all__ = ["History"]

log = logging.getLogger("gpgc_dask")


@dataclass
class History:
    """Collects the entries of ``history_`` and hands each to the listeners.

    An entry has: ``iteration``, ``phase`` ("pooled", "fixed-point", "lbfgs"),
    ``log_evidence``, ``projected_gradient``, ``predicted_gain`` (nats), ``certified`` (are these
    two exact, or estimated), ``redundancy`` and
    ``redundancy_ratio``, ``reads`` so far, ``arithmetic`` of the products and its estimated error
    of the evidence ``precision_error`` (nats), ``seconds`` (by phase, of this entry).
    """

    oracle: SweepOracle
    arithmetic: str
    n_features: int
    earlier_reads: float = 0.0
    inherited: int = 0
    """Entries that were there before this attempt: of a resumed fit."""
    listeners: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    checkpoint: Callable[[Point, Course, History], None] | None = None
    """Called after every read with where the fit is."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def phase(self, name: Literal["sample", "sweep", "solve"]) -> Iterator[None]:
        """Add the time inside to ``seconds[name]`` of the next entry."""
        start = time.perf_counter()
        try:
            with algebra_threads(self.n_features) if name == "solve" else nullcontext():
                yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    def append(
        self,
        phase: str,
        problem: Problem,
        point: Point,
        certificate: Certificate,
    ) -> None:
        entry = {
            "iteration": len(self.entries),
            "phase": phase,
            "log_evidence": problem.log_evidence(point),
            "projected_gradient": certificate.projected_gradient,
            "predicted_gain": certificate.gain,
            "certified": certificate.exact,
            "gain_tolerance": problem.gain_tolerance,
            "redundancy": point.state.redundancy,
            "redundancy_ratio": certificate.ratio,
            "reads": self.reads,
            "arithmetic": self.arithmetic,
            "precision_error": certificate.precision_error,
            "seconds": dict(self._seconds),
        }
        self._seconds.clear()
        self.entries.append(entry)
        log.debug("%s", entry)
        for listener in self.listeners:
            listener(entry)

    def keep(self, point: Point, course: Course) -> None:
        """Here the fit can go on if it is stopped."""
        if self.checkpoint is not None:
            self.checkpoint(point, course, self)

    @property
    def reads(self) -> float:
        """Full reads of the data so far, also those of an attempt in another arithmetic."""
        return self.earlier_reads + self.oracle.reads

    def note(self, **facts: Any) -> None:
        """Add facts to the last entry."""
        self.entries[-1].update(facts)

    def left(self, problem: Problem) -> int:
        """Iterations that ``max_iter`` still allows."""
        return problem.max_iter - (len(self.entries) - self.inherited)
