"""The redundancy c: how many rows of a group count as one.

Rows of one image are not independent observations. With r = y − f and q = y − f^(−j) (the residual
with the whole group left out), the model is self-consistent if

    ratio = Σ p r (q − r) / Σ p v = 1,

because whitened q_j = (I − H_j)⁻¹ r_j and Cov(r_j) = I − H_j give E rᵀ(q − r) = tr H. A larger
ratio means that rows repeat each other; c grows until the ratio is 1. The paper has c = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.oracle.base import GroupTerms

__all__ = ["MIN_GROUPS_FOR_REDUNDANCY", "RedundancySearch", "moment_ratio"]

MIN_GROUPS_FOR_REDUNDANCY = 10
"""With fewer groups the moment equation for c is mostly chance: c is then 1."""

MAX_STEP = math.log(4.0)
"""Largest change of ln c in one step."""

TYPICAL_SLOPE = -1.0
"""Typical d ln ratio / d ln c."""

SLOPE_RANGE = (-2.0, -0.7)
"""Slopes between two trials that are used; others are replaced by the typical one."""

OVERSHOOT = 0.1
"""A ln ratio of the other sign and beyond this means that the last step was too long."""


def moment_ratio(terms: GroupTerms, n_targets: int) -> float:
    """Σ p r (q − r) / Σ p v over the groups whose leave-out terms are known."""
    if terms.leave_out is None:
        raise InputError("the sweep has no leave-out terms")
    known = ~np.isnan(terms.leave_out)
    leverage = n_targets * float(terms.leverage[known].sum())
    return float(terms.leave_out[known].sum()) / leverage if leverage > 0 else 1.0


@dataclass
class RedundancySearch:
    """Root finding for ln ratio(ln c) = 0 with one value per sweep: secant, damped, bounded.

    Attributes
    ----------
    lower, upper : float
        Bounds of c.
    last : tuple of float or None
        ln c and ln ratio of the last trial if the noise was settled there.
    last_log_ratio : float
        ln ratio of the last trial.
    """

    lower: float
    upper: float
    last: tuple[float, float] | None = None
    last_log_ratio: float = 0.0

    def next(self, redundancy: float, ratio: float, *, settled: bool = True) -> float:
        """The next c to try.

        Parameters
        ----------
        redundancy : float
            The last c.
        ratio : float
            Moment ratio at this c.
        settled : bool, default True
            Whether the noise has settled. While it changes, so does the ratio, and the slope
            between two trials would be misleading.
        """
        x, y = math.log(redundancy), math.log(max(ratio, 1e-6))
        slope = TYPICAL_SLOPE
        if settled and self.last is not None and abs(x - self.last[0]) > 1e-6:
            secant = (y - self.last[1]) / (x - self.last[0])
            slope = secant if SLOPE_RANGE[0] < secant < SLOPE_RANGE[1] else TYPICAL_SLOPE
        self.last = (x, y) if settled else None
        step = min(max(-y / slope, -MAX_STEP), MAX_STEP)
        if self.last_log_ratio * y < 0 and abs(y) > OVERSHOOT:
            step *= 0.5
        self.last_log_ratio = y
        return min(max(math.exp(x + step), self.lower), self.upper)
