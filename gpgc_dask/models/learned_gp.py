"""What a Gaussian process has learned: its saved attributes and those of ``FittedModel``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gpgc_dask.core.arrays import Array, Features, Index, Labels, Mask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.fit import FitResult
from gpgc_dask.models.base import DatasetModel
from gpgc_dask.models.row_weights import Digests, RowWeights

__all__ = ["LOOK_ARRAYS", "LearnedGP"]

LOOK_ARRAYS = (
    "row_weight_",
    "row_class_",
    "group_rows_",
    "group_digests_",
    "fit_coef_",
    "fit_factor_",
)
"""Attributes of a second look: the arrays of :class:`RowWeights`, and what it has replaced."""


class LearnedGP(DatasetModel):
    """The learned attributes of :class:`gpgc_dask.models.linear_gp.LinearGP`."""

    saved_arrays: ClassVar = (
        "coef_",
        "covariance_factor_",
        "class_weight_",
        "noise_variance_",
        "noise_group_variance_",
        "confidence_",
        "leverage_share_",
        "trusted_",
        *LOOK_ARRAYS,
    )
    saved_values: ClassVar = (
        "redundancy_",
        "typical_noise_",
        "log_evidence_",
        "converged_",
        "n_iter_",
        "n_reads_",
        "n_features_in_",
        "look_age_",
    )
    leverage_share_: Array | None = None
    typical_noise_: float
    covariance_factor_: Array
    log_evidence_: float
    redundancy_: float
    feature_scales_: dict[Any, float]
    history_: list[dict[str, Any]]
    row_weight_: Features
    row_class_: Any
    trusted_: Mask
    group_rows_: Index
    group_digests_: Digests
    fit_coef_: Array
    fit_factor_: Features
    look_age_: float

    @property
    def typical_noise(self) -> float:
        """Weighted median noise variance of the training groups."""
        return self.typical_noise_

    @property
    def covariance_factor(self) -> Array:
        """(k, k) T with posterior covariance TᵀT of the weights."""
        return self.covariance_factor_

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the labels."""
        return self.log_evidence_

    @property
    def learned_redundancy(self) -> float:
        """How many rows of a group count as one."""
        return self.redundancy_

    @property
    def feature_scales(self) -> dict[Any, float]:
        """{feature group: prior standard deviation}."""
        return self.feature_scales_

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per iteration."""
        return self.history_

    @property
    def fit_summary(self) -> dict[str, Any]:
        """Evidence, iterations, reads, redundancy, feature scales and seconds of the fit."""
        return {
            "log_evidence": float(self.log_evidence_),
            "iterations": self.n_iter_,
            "reads": self.n_reads_,
            "redundancy": float(self.redundancy_),
            "feature_scales": self.feature_scales_,
            "seconds": sum(sum(entry["seconds"].values()) for entry in self.history_),
        }

    @property
    def looked_again(self) -> bool:
        """Whether a second look has changed the weights of the rows, and so the posterior."""
        return "row_weight_" in vars(self)

    @property
    def fit_posterior(self) -> tuple[Features, Array] | None:
        """(k, k) factor T and (k, t) mean of the weights of the fit, before any second look.

        None if an older version has saved the model without it.
        """
        if not self.looked_again:
            return self.covariance_factor_, self.coef_.T
        return (self.fit_factor_, self.fit_coef_.T) if "fit_coef_" in vars(self) else None

    def _learn_look(self, rows: RowWeights, fit: Posterior, age: float) -> None:
        """Keep the weights of the rows of a second look, and the posterior of the fit before it."""
        self.row_weight_, self.group_rows_ = rows.weights, rows.sizes
        self.group_digests_, self.row_class_ = rows.digests, rows.codes
        self.fit_coef_, self.fit_factor_ = fit.mu.T.copy(), fit.T.astype(np.float32)
        self.look_age_ = age

    def _learn_leverage(self, result: FitResult) -> None:
        """Keep the leverages of the groups if a read has computed them at the optimum."""
        terms, c = result.solution.terms, result.point.params.redundancy
        weight = result.problem.group_weight(c)
        self.__dict__.pop("leverage_share_", None)
        if terms is not None and terms.leverage.size == weight.size:
            zeros = np.zeros(weight.size)
            self.leverage_share_ = np.divide(terms.leverage, weight, out=zeros, where=weight > 0)

    @property
    def trusted_groups(self) -> Labels:
        """Labels of the groups of the fit that were trusted."""
        return self.groups_[self.trusted_] if "trusted_" in vars(self) else self.groups_[:0]

    @property
    def row_weights(self) -> RowWeights | None:
        """What a second look has learned about the rows; None without one."""
        if not self.looked_again:
            return None
        codes = vars(self).get("row_class_")
        return RowWeights(self.row_weight_, self.group_rows_, self.group_digests_, codes)
