"""The redundancy c: how many rows of a group count as one.

Rows of one image are not independent facts. With r = y − f and q = y − f^(−j) (the residual when
the whole group is left out), the model is self-consistent where

    ratio = Σ p r (q − r) / Σ p v = 1,

because whitened q_j = (I − H_j)⁻¹ r_j and Cov(r_j) = I − H_j give E rᵀ(q − r) = tr H. Too large a
ratio says that rows repeat each other; c grows until it is 1. c = 1 is the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.oracle.base import GroupTerms

__all__ = ["MIN_GROUPS_FOR_REDUNDANCY", "RedundancySearch", "moment_ratio"]

MIN_GROUPS_FOR_REDUNDANCY = 10
"""With fewer groups the moment equation for c is mostly chance: c stays 1."""

MAX_STEP = math.log(4.0)
"""c changes by at most this factor a step."""


def moment_ratio(terms: GroupTerms, n_targets: int) -> float:
    """Σ p r (q − r) / Σ p v over the groups whose leave-out terms are known."""
    if terms.leave_out is None:
        raise InputError("the sweep was not asked for leave-out terms")
    known = ~np.isnan(terms.leave_out)
    leverage = n_targets * float(terms.leverage[known].sum())
    return float(terms.leave_out[known].sum()) / leverage if leverage > 0 else 1.0


SLOPE = -1.0
"""d ln ratio / d ln c, typically."""

WIDE = 0.1
"""A ln ratio beyond this that has changed its sign says that the last step went too far."""

SLOPES = (-2.0, -0.7)
"""What a slope between two trials may be for it to be believed."""


@dataclass
class RedundancySearch:
    """Root finding for ln ratio(ln c) = 0 from one value a sweep: secant, damped, bounded."""

    lower: float
    upper: float
    last: tuple[float, float] | None = None
    """ln c and ln ratio of the last trial at which the noise stood still."""
    before: float = 0.0
    """ln ratio of the last trial."""

    def next(self, redundancy: float, ratio: float, *, settled: bool = True) -> float:
        """The next c to try after ``ratio`` was found at ``redundancy``.

        While the noise still moves (not ``settled``) so does the ratio, and a slope would mislead.
        """
        x, y = math.log(redundancy), math.log(max(ratio, 1e-6))
        slope = SLOPE
        if settled and self.last is not None and abs(x - self.last[0]) > 1e-6:
            found = (y - self.last[1]) / (x - self.last[0])
            slope = found if SLOPES[0] < found < SLOPES[1] else SLOPE
        self.last = (x, y) if settled else None
        step = min(max(-y / slope, -MAX_STEP), MAX_STEP)
        if self.before * y < 0 and abs(y) > WIDE:
            step *= 0.5
        self.before = y
        return min(max(math.exp(x + step), self.lower), self.upper)
