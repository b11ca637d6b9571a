"""Options of a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.solvers import Hyperparameters, SolverName
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY

__all__ = ["MAX_NOISE", "FitOptions", "Start"]

MAX_NOISE = 1e4
"""Largest noise variance, in units of the ±1 labels."""


@dataclass(frozen=True)
class Start:
    """Where a fit starts: at what another fit has learned.

    Attributes
    ----------
    params : Hyperparameters
        Its hyperparameters, for the groups of this fit.
    post : Posterior or None
        Its posterior of the weights, from its own labels, if it is known.
    post_noise : array of shape (J,) or None
        ln ε² that the groups have in this posterior; infinity for groups that it does not know.
    leverage_share : array of shape (J,) or None
        Leverage of each group in this posterior, as a share of its weight; NaN if it is not known.
    """

    params: Hyperparameters
    post: Posterior | None = None
    post_noise: Array | None = None
    leverage_share: Array | None = None


@dataclass(frozen=True)
class FitOptions:
    """Validated parameters of an estimator that a fit needs.

    Attributes
    ----------
    solver : {"auto", "fixed-point", "lbfgs"}
        Solver.
    tol : float
        Predicted gain in nats at which the fit is done.
    max_iter : int
        Maximum number of iterations.
    dtype : numpy.dtype or None
        Type of the products. None: the type of X, or float64 if float32 is not precise enough.
    redundancy : float or None
        Redundancy c. None: it is estimated.
    noise_floor : float
        Smallest noise variance.
    checkpoint : str, path or None
        Path or URL of the checkpoint.
    keep_checkpoint : bool
        Whether the checkpoint of a finished fit is kept: the caller removes it later.
    listeners : tuple of callable
        Called with each entry of the history.
    left_out : bool
        Whether the read that certifies the optimum predicts each row without its group too.
    start : Start or None
        Where to start, probably near the optimum. None: at a start that the data suggests.
    """

    solver: SolverName
    tol: float
    max_iter: int
    dtype: np.dtype[Any] | None
    redundancy: float | None
    noise_floor: float
    checkpoint: str | PathLike[str] | None = None
    keep_checkpoint: bool = False
    listeners: tuple[Callable[[dict[str, Any]], None], ...] = ()
    left_out: bool = False
    start: Start | None = None

    @property
    def noise_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of ln ε²."""
        return float(np.log(self.noise_floor)), float(np.log(MAX_NOISE))

    def redundancy_for(self, n_groups: int) -> float | None:
        """Redundancy c for this number of groups; None to estimate it."""
        few = n_groups < MIN_GROUPS_FOR_REDUNDANCY
        return 1.0 if self.redundancy is None and few else self.redundancy
