"""The reference: every quantity from the dense N×N matrix in float64, slow but short."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DenseGP:
    """y ~ N(0, K) with K = F Σ Fᵀ + diag(noise): a noise variance per row, a prior per feature."""

    F: np.ndarray
    Y: np.ndarray  # (N, t)
    noise: np.ndarray  # (N,)
    prior: np.ndarray  # (k,)

    @property
    def K(self) -> np.ndarray:  # noqa: N802
        return (self.F * self.prior) @ self.F.T + np.diag(self.noise)

    @property
    def log_evidence(self) -> float:
        n, t = self.Y.shape
        _, log_det = np.linalg.slogdet(self.K)
        fit = np.trace(self.Y.T @ np.linalg.solve(self.K, self.Y))
        return -0.5 * (fit + t * log_det + t * n * np.log(2 * np.pi))

    @property
    def weights(self) -> np.ndarray:
        """(k, t) posterior mean of the weights: Σ Fᵀ K⁻¹ Y."""
        return self.prior[:, None] * self.F.T @ np.linalg.solve(self.K, self.Y)

    def mean(self, X: np.ndarray) -> np.ndarray:
        return X @ self.weights

    def variance(self, X: np.ndarray) -> np.ndarray:
        cross = (X * self.prior) @ self.F.T
        explained = np.einsum("ij,ji->i", cross, np.linalg.solve(self.K, cross.T))
        return ((X * self.prior) * X).sum(1) - explained

    def gradient_noise(self, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """∂(−ln p)/∂ ln ε²ⱼ = −½ tr((ααᵀ − t K⁻¹) Eⱼ), from the paper's formula."""
        inverse = np.linalg.inv(self.K)
        alpha = inverse @ self.Y
        diagonal = (alpha**2).sum(1) - self.Y.shape[1] * np.diagonal(inverse)
        return -0.5 * np.bincount(groups, diagonal * self.noise, n_groups)

    def gradient_scales(self, index: np.ndarray) -> np.ndarray:
        """∂(−ln p)/∂ ln σ²_g."""
        inverse = np.linalg.inv(self.K)
        alpha = inverse @ self.Y
        t = self.Y.shape[1]
        per_feature = ((self.F.T @ alpha) ** 2).sum(1)
        per_feature -= t * np.einsum("ij,ij->j", self.F, inverse @ self.F)
        return -0.5 * np.bincount(index, per_feature * self.prior)

    def without(self, rows: np.ndarray) -> DenseGP:
        """The same model without some rows."""
        return DenseGP(self.F[~rows], self.Y[~rows], self.noise[~rows], self.prior)
