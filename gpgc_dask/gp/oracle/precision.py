"""Error of the evidence that the arithmetic of the products causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Array, Features
from gpgc_dask.core.threads import algebra_threads
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, Workspace

__all__ = ["PrecisionProbe"]

PROBES = 8
"""Random directions in which a batch's float32 Gram product is compared with float64."""


@dataclass(frozen=True)
class PrecisionProbe:
    """Estimate of the error of the evidence that rounding in the products causes.

    Attributes
    ----------
    sample : array of shape (n, k)
        Features of some rows.
    rows : Rows
        Classes, weights and groups of these rows.
    arithmetic : Arithmetic
        Arithmetic of the products.

    Notes
    -----
    Errors ΔG and Δb of the moments change ½ ln|B| by ½ tr(V ΔG) and the data fit by
    ½ μᵀΔGμ − μᵀΔb. A few z ~ N(0, V), and μ, give an estimate without a float64 Gram matrix.
    """

    sample: Features
    rows: Rows
    arithmetic: Arithmetic

    def sample_error(self, post: Posterior, log_noise: Array, redundancy: float) -> float:
        """Error of the evidence in nats from the products of the sample at a posterior."""
        if self.arithmetic.dtype == np.float64 or not len(self.sample):
            return 0.0
        precision = self.rows.precision(log_noise, redundancy)
        targets, exact = self.rows.targets(), self.sample.astype(np.float64)
        moments = self._moments(precision, targets)

        def gram_errors(columns: Array) -> Array:
            forms = np.einsum("ip,ip->p", columns, moments.gram @ columns)
            return np.abs(forms - precision @ (exact @ columns) ** 2)

        z = (np.random.default_rng(0).standard_normal((PROBES, exact.shape[1])) @ post.T).T
        cross = (moments.cross * post.mu).sum(0) - precision @ (targets * (exact @ post.mu))
        gram = gram_errors(z).mean() + gram_errors(post.mu).sum()
        return 0.5 * float(gram) + float(np.abs(cross).sum())

    def total_error(
        self, post: Posterior, log_noise: Array, redundancy: float, group_weight: Array
    ) -> float:
        """Error in nats for all rows: that of the sample, scaled by the sum of the precisions.

        ``group_weight`` is Wⱼ (J,) of all rows.
        """
        total = float(group_weight @ np.exp(-log_noise)) / redundancy
        sampled = float(self.rows.precision(log_noise, redundancy).sum())
        if sampled <= 0:
            return 0.0
        with algebra_threads(self.sample.shape[1]):
            return self.sample_error(post, log_noise, redundancy) * total / sampled

    def _moments(self, precision: Array, targets: Array) -> Moments:
        k, t = self.sample.shape[1], targets.shape[1]
        sums = Accumulator(k, t, self.arithmetic.dtype)
        sums.add(Workspace(self.arithmetic).load([self.sample]), precision, targets)
        return sums.sums().finish(self.arithmetic)
