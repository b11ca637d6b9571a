"""The redundancy c: how many rows of a group count as one.

Rows of one image are not independent facts. With r = y − f and q = y − f^(−j) (the residual when
the whole group is left out), the model is self-consistent where

    ratio = Σ p r (q − r) / Σ p v = 1,

because whitened q_j = (I − H_j)⁻¹ r_j and Cov(r_j) = I − H_j give E rᵀ(q − r) = tr H. Too large a
ratio says that rows repeat each other; c grows until it is 1. c = 1 is the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from gpgc_dask.oracle.base import GroupTerms

__all__ = ["MIN_GROUPS_FOR_REDUNDANCY", "RedundancySearch", "moment_ratio"]

MIN_GROUPS_FOR_REDUNDANCY = 10
"""With fewer groups the moment equation for c is mostly chance: c stays 1."""

MAX_STEP = math.log(4.0)
"""c changes by at most this factor a step."""


def moment_ratio(terms: GroupTerms, n_targets: int) -> float:
    """Σ p r (q − r) / Σ p v over the groups whose leave-out terms are known."""
    if terms.leave_out is None:
        raise ValueError("the sweep was not asked for leave-out terms")
    known = ~np.isnan(terms.leave_out)
    leverage = n_targets * float(terms.leverage[known].sum())
    return float(terms.leave_out[known].sum()) / leverage if leverage > 0 else 1.0


@dataclass
class RedundancySearch:
    """Root finding for ln ratio(ln c) = 0 from one value a sweep: secant, damped, bounded."""

    lower: float
    upper: float
    course: list[tuple[float, float]] = field(default_factory=list)

    def next(self, redundancy: float, ratio: float) -> float:
        """The next c to try after ``ratio`` was found at ``redundancy``."""
        x, y = math.log(redundancy), math.log(max(ratio, 1e-6))
        step = y
        if self.course:
            x0, y0 = self.course[-1]
            if abs(x - x0) > 1e-6:
                slope = (y - y0) / (x - x0)
                # The ratio falls as c grows; where the noise still moves the slope misleads.
                if -3.0 < slope < -0.3:
                    step = -y / slope
        self.course.append((x, y))
        step = min(max(step, -MAX_STEP), MAX_STEP)
        return min(max(math.exp(x + step), self.lower), self.upper)
