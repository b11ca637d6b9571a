"""Cheaper sweeps: leverages estimated by random directions, gradients of a part of the groups."""

from __future__ import annotations

import numpy as np

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.solvers.problem import Point, Problem

__all__ = ["leverage_directions", "probe_directions", "select_gradient_groups"]

PROBES = 32
"""Number of random directions that estimate the leverages."""

MIN_FEATURES_PER_PROBE = 4
"""With fewer features per direction, exact leverages cost no more."""

MAX_PROBED_LEVERAGE = 0.3
"""Largest share of the leverages in the weight for which estimates are good enough."""

PROBE_ERROR = 0.06
"""Typical relative error of the leverage of a group with this number of directions."""

PROBE_MARGIN = 10.0
"""Smallest expected gain of a step for estimates, in units of the cost of their error."""


def leverage_directions(problem: Problem, point: Point, gain: float) -> Array | None:
    """Random directions that estimate the leverages; None if these should be exact.

    They are scaled so that the sum of all leverages, which is known, comes out exactly.

    Parameters
    ----------
    problem : Problem
        The problem.
    point : Point
        The point whose leverages are estimated.
    gain : float
        Expected gain of the step in nats.

    Returns
    -------
    array of shape (k, m) or None
        z ~ N(0, V)/√m.
    """
    weight = float(problem.group_weight(point.params.redundancy).sum())
    share = point.features.leverage / weight
    # An error of ln ε²ⱼ costs ¼ Wⱼ times its square.
    cost = 0.25 * weight * (PROBE_ERROR * share) ** 2
    if (
        problem.n_features < MIN_FEATURES_PER_PROBE * PROBES
        or share > MAX_PROBED_LEVERAGE
        or gain < PROBE_MARGIN * cost
    ):
        return None
    z = probe_directions(point.post)
    total = float(np.vdot(z, point.moments.gram @ z))
    return z * np.sqrt(point.features.leverage / total) if total > 0 else z


def probe_directions(post: Posterior) -> Array:
    """(k, m) random z ~ N(0, V)/√m, the same for the same posterior: fits are reproducible."""
    normal = np.random.default_rng(0).standard_normal((len(post.T), PROBES))
    return post.T.T @ normal / np.sqrt(PROBES)


def select_gradient_groups(problem: Problem) -> Mask:
    """(J,) groups whose gradients are computed: all, or evenly spaced ones if there are many.

    Their gradients then take no more memory than the moments.
    """
    limit = max(problem.n_features // problem.n_targets, 1)
    step = max(-(-problem.n_groups // limit), 1)
    return np.arange(problem.n_groups) % step == 0
