"""The weighted evidence of a linear-kernel GP, from k×k and k×t arrays only.

All functions are pure functions of small float64 arrays; no row of the data is needed.

Notation (N rows, k features, t target columns, J groups):

===========  ========  =====================================================================
symbol       shape     meaning
===========  ========  =====================================================================
``P``        (N,)      precision of a row, wᵢ / (c ε²ⱼ)
``G``        (k, k)    Fᵀ P F
``b``        (k, t)    Fᵀ P Y
``S``        (k,)      prior standard deviation σ of each weight
``B``        (k, k)    I + S G S = L Lᵀ  (Σ⁻¹ is never formed: σ may be 0)
``T``        (k, k)    L⁻¹ S, lower triangular, so that V = Tᵀ T
``V``        (k, k)    posterior covariance of the weights
``mu``       (k, t)    posterior mean of the weights, V b
===========  ========  =====================================================================

The objective is −ln p_w up to the constant ½ t ΣW ln 2π, which :func:`log_evidence` adds::

    ½ [ tr YᵀPY − tr bᵀμ + t ln|B| + t Σⱼ Wⱼ ln ε²ⱼ ]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from gpgc_dask.core.arrays import Array, Index, fill_upper, group_sums

__all__ = [
    "FeatureTerms",
    "Moments",
    "Posterior",
    "feature_terms",
    "log_evidence",
    "noise_gradient",
    "objective",
    "posterior",
    "posterior_moments",
    "scale_gradient",
    "scale_hessian",
]


@dataclass(frozen=True)
class Moments:
    """Result of one read of the data at row precisions P.

    Attributes
    ----------
    gram : array of shape (k, k)
        Fᵀ P F.
    cross : array of shape (k, t)
        Fᵀ P Y.
    yy : float
        tr YᵀPY.
    """

    gram: Array
    cross: Array
    yy: float

    @property
    def n_targets(self) -> int:
        """Number of target columns t."""
        return self.cross.shape[1]

    def scale(self, factor: float) -> Moments:
        """The moments with every precision multiplied by ``factor``, without a read of the data."""
        return Moments(self.gram * factor, self.cross * factor, self.yy * factor)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.cross + other.cross, self.yy + other.yy)


@dataclass(frozen=True)
class Posterior:
    """Gaussian posterior of the weights, N(mu, TᵀT) per target column.

    Attributes
    ----------
    T : array of shape (k, k)
        Lower triangular factor with V = TᵀT.
    mu : array of shape (k, t)
        Mean of the weights.
    log_det : float
        ln|B|.
    inverse_diagonal : array of shape (k,)
        diag(B⁻¹), that is Vᵢᵢ/σᵢ² without a division.
    whitened_mean : array of shape (k, t)
        μ/σ without a division.
    """

    T: Array
    mu: Array
    log_det: float
    inverse_diagonal: Array
    whitened_mean: Array

    @classmethod
    def from_factor(cls, T: Array, mu: Array, scales: Array) -> Posterior:
        """The posterior with a factor T (k, k) and mean (k, t), for prior deviations σ (k,)."""
        inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
        diagonal = np.where(scales > 0, np.diagonal(T) * inverse, 1.0)
        squares = np.where(scales > 0, np.einsum("ij,ij->j", T, T) * inverse**2, 1.0)
        return cls(T, mu, -2.0 * float(np.log(diagonal).sum()), squares, mu * inverse[:, None])


def posterior(moments: Moments, scales: Array) -> Posterior:
    """Posterior of the weights from one factorisation of B = I + SGS.

    Parameters
    ----------
    moments : Moments
        Moments of the data.
    scales : array of shape (k,)
        Prior standard deviation σ of each weight.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding in ``moments`` made B indefinite.
    """
    B = moments.gram * scales[:, None]
    B *= scales[None, :]
    B.flat[:: B.shape[0] + 1] += 1.0
    # B is symmetric, so its transpose is B in the order of LAPACK: nothing is copied.
    L, failed = linalg.lapack.dpotrf(B.T, lower=1, clean=1, overwrite_a=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        log_det = 2.0 * float(np.log(np.diagonal(L)).sum())
    if failed or not np.isfinite(log_det):
        raise np.linalg.LinAlgError("B = I + SGS is singular to working precision")
    inverse, _ = linalg.lapack.dtrtri(L, lower=1, overwrite_c=1)
    inverse_diagonal = np.einsum("ij,ij->j", inverse, inverse)
    whitened_mean = inverse.T @ (inverse @ (scales[:, None] * moments.cross))
    inverse *= scales[None, :]
    return Posterior(
        inverse, scales[:, None] * whitened_mean, log_det, inverse_diagonal, whitened_mean
    )


def posterior_moments(post: Posterior, scales: Array) -> Moments:
    """The moments that a posterior was computed from, the inverse of :func:`posterior`.

    Parameters
    ----------
    post : Posterior
        The posterior.
    scales : array of shape (k,)
        Prior standard deviation σ > 0 of each weight.

    Returns
    -------
    Moments
        G = V⁻¹ − Σ⁻¹ and b = V⁻¹ μ. ``yy`` does not follow from the posterior: it is NaN.
    """
    inverse, _ = linalg.lapack.dtrtri(post.T, lower=1)
    precision = inverse @ inverse.T
    cross = precision @ post.mu
    precision.flat[:: len(precision) + 1] -= scales**-2.0
    return Moments(precision, cross, float("nan"))


def objective(moments: Moments, post: Posterior, group_weight: Array, log_noise: Array) -> float:
    """−ln p_w up to a constant.

    Parameters
    ----------
    moments : Moments
        Moments of the data.
    post : Posterior
        Posterior from these moments.
    group_weight : array of shape (J,)
        Wⱼ/c of each group.
    log_noise : array of shape (J,)
        ln ε²ⱼ of each group.
    """
    t = moments.n_targets
    fit = moments.yy - float(np.vdot(moments.cross, post.mu))
    return 0.5 * (fit + t * post.log_det + t * float(group_weight @ log_noise))


def log_evidence(value: float, total_weight: float, n_targets: int = 1) -> float:
    """ln p_w from the objective.

    With unit weights it equals ln N(y; 0, K); with integer weights it equals the evidence of the
    data with duplicated rows.

    Parameters
    ----------
    value : float
        Value of :func:`objective`.
    total_weight : float
        Σ Wⱼ/c.
    n_targets : int, default 1
        Number of target columns t.
    """
    return -value - 0.5 * n_targets * total_weight * float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class FeatureTerms:
    """Sums over each feature group g, and over all rows, computed from the moments.

    Attributes
    ----------
    size : array of shape (n_g,)
        Number of features m_g.
    energy : array of shape (n_g,)
        Σ_t ‖μ_g‖²/σ²_g.
    remaining : array of shape (n_g,)
        tr (B⁻¹)_gg, the number of features of g that the data has not determined.
    residual : float
        Σ p ‖y − f‖² over all rows.
    leverage : float
        Σ p v over all rows.
    """

    size: Array
    energy: Array
    remaining: Array
    residual: float
    leverage: float


def feature_terms(moments: Moments, post: Posterior, feature_index: Index) -> FeatureTerms:
    """Sums over feature groups that the gradients need.

    Parameters
    ----------
    moments : Moments
        Moments of the data.
    post : Posterior
        Posterior from these moments.
    feature_index : array of int of shape (k,)
        Feature group of each feature.
    """
    n = int(feature_index.max()) + 1
    energy = group_sums(feature_index, (post.whitened_mean**2).sum(1), n)
    remaining = group_sums(feature_index, post.inverse_diagonal, n)
    fit = moments.yy - float(np.vdot(moments.cross, post.mu))
    return FeatureTerms(
        size=np.bincount(feature_index, minlength=n).astype(float),
        energy=energy,
        remaining=remaining,
        residual=fit - float(energy.sum()),
        leverage=feature_index.size - float(remaining.sum()),
    )


def scale_gradient(terms: FeatureTerms, n_targets: int) -> Array:
    """∂(−ln p_w)/∂ ln σ²_g = ½ (t m_g − ‖μ_g‖²/σ²_g − t tr V_gg/σ²_g), shape (n_g,)."""
    return 0.5 * (n_targets * (terms.size - terms.remaining) - terms.energy)


def scale_hessian(post: Posterior, scales: Array, feature_index: Index) -> Array:
    """∂²(−ln p_w)/∂ ln σ²_g ∂ ln σ²_h, shape (n_g, n_g), for σ > 0.

    Notes
    -----
    With A = B⁻¹ and a = μ/σ, dA = A D_h A − ½(A D_h + D_h A) and da = A D_h a − ½ D_h a for a
    change of ln σ²_h (D_h selects the features of h), so

        H_gh = ½ [ δ_gh (t tr A_gg + ‖a_g‖²) − t ‖A_gh‖² − 2 tr a_gᵀ A_gh a_h ].
    """
    A, _ = linalg.lapack.dlauum(post.T / scales[None, :], lower=1, overwrite_c=1)
    fill_upper(A)
    t = post.mu.shape[1]
    n = int(feature_index.max()) + 1
    member = np.zeros((feature_index.size, n))
    member[np.arange(feature_index.size), feature_index] = 1.0
    energy = member.T @ (post.whitened_mean**2).sum(1)
    hessian = np.diag(t * (member.T @ post.inverse_diagonal) + energy)
    for column in post.whitened_mean.T:
        own = member * column[:, None]
        hessian -= 2.0 * own.T @ (A @ own)
    np.square(A, out=A)
    hessian -= t * (member.T @ (A @ member))
    return 0.5 * hessian


def noise_gradient(group_weight: Array, residual: Array, leverage: Array, n_targets: int) -> Array:
    """∂(−ln p_w)/∂ ln ε²ⱼ = ½ (t Wⱼ/c − Rⱼ − t Γⱼ), shape (J,)."""
    return 0.5 * (n_targets * (group_weight - leverage) - residual)
