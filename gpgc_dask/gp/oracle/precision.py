"""What the arithmetic of the products costs the evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgc_dask.core.arrays import Array, Features
from gpgc_dask.gp.evidence import Moments, Posterior
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, Workspace

__all__ = ["PrecisionProbe"]

PROBES = 8
"""Random directions in which a batch's float32 Gram product is compared with float64."""


@dataclass(frozen=True)
class PrecisionProbe:
    """What the arithmetic of the products costs the evidence, seen on a sample of rows.

    Errors ΔG and Δb of the moments change ½ ln|B| by ½ tr(V ΔG) and the fit by ½ μᵀΔGμ − μᵀΔb: so
    a few z ~ N(0, V), and μ, tell the cost without a Gram in float64.
    """

    sample: Features
    rows: Rows
    arithmetic: Arithmetic

    def nats(self, post: Posterior, log_noise: Array, redundancy: float) -> float:
        """Error of the evidence that the sample's products make at a posterior."""
        if self.arithmetic.dtype == np.float64 or not len(self.sample):
            return 0.0
        precision = self.rows.precision(log_noise, redundancy)
        targets, exact = self.rows.targets(), self.sample.astype(np.float64)
        found = self._moments(precision, targets)

        def gram_errors(columns: Array) -> Array:
            forms = np.einsum("ip,ip->p", columns, found.gram @ columns)
            return np.abs(forms - precision @ (exact @ columns) ** 2)

        z = (np.random.default_rng(0).standard_normal((PROBES, exact.shape[1])) @ post.T).T
        cross = (found.cross * post.mu).sum(0) - precision @ (targets * (exact @ post.mu))
        gram = gram_errors(z).mean() + gram_errors(post.mu).sum()
        return 0.5 * float(gram) + float(np.abs(cross).sum())

    def total_nats(
        self, post: Posterior, log_noise: Array, redundancy: float, group_weight: Array
    ) -> float:
        """The same for all rows: the sample's error, scaled by the sum of the precisions.

        group_weight : (J,) Wⱼ of all rows
        """
        total = float(group_weight @ np.exp(-log_noise)) / redundancy
        sampled = float(self.rows.precision(log_noise, redundancy).sum())
        return self.nats(post, log_noise, redundancy) * total / sampled if sampled > 0 else 0.0

    def _moments(self, precision: Array, targets: Array) -> Moments:
        k, t = self.sample.shape[1], targets.shape[1]
        sums = Accumulator(k, t, self.arithmetic.dtype)
        sums.add(Workspace(self.arithmetic).load([self.sample]), precision, targets)
        return sums.sums().finish(self.arithmetic)
