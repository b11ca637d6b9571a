"""GPGC and GP: Gaussian process classifiers with a linear kernel."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Literal

import numpy as np

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.text import preview
from gpgc_dask.gp.options import Start
from gpgc_dask.gp.solvers import SolverName
from gpgc_dask.gp.training import Training
from gpgc_dask.models.kept_look import KeptLook, keep_look
from gpgc_dask.models.linear_gp import LinearGP
from gpgc_dask.models.protocol import Listener
from gpgc_dask.models.starting import check_start, start_at

__all__ = ["GP", "GPGC"]


class GPGC(LinearGP):
    """Gaussian process classifier with groupwise confidences: one noise variance per group.

    A GP with a linear kernel that learns how reliable the labels of each group (image, annotator)
    are, so that unreliable groups do little harm. Inference is exact at any size, and all
    hyperparameters are estimated by maximising the evidence.

    Parameters
    ----------
    solver : {"auto", "fixed-point", "lbfgs"}, default "auto"
        "auto" is the fixed point, whose result L-BFGS-B certifies.
    tol : float, default 1e-4
        Predicted gain of the evidence at which the fit stops, in nats per 10,000 rows.
    max_iter : int, default 100
        Maximum number of iterations, which is the length of ``history_``.
    class_weight : {"auto", "balanced"}, dict or None, default "auto"
        "balanced" gives all classes the same total weight and keeps the sum of the weights. "auto"
        is the same with two classes; with more, the total weights of the classes are in proportion
        to the fourth roots of what they are without.
    dtype : {"auto", "float32", "float64"}, default "auto"
        Arithmetic of the products; "auto" is that of the data. float32 is replaced by float64 if
        a sample shows that it is not accurate enough.
    redundancy : float or "auto", default "auto"
        How many rows of a group count as one. "auto" estimates it (if there are 10 groups or
        more), 1.0 is the method of the paper.
    noise_floor : float, default 1e-4
        Minimum noise variance, in units of the ±1 labels.
    rounds : int, optional
        Rounds of the second look, by default 2 with two classes and 0 with more. Each weights every
        row by the probability of its label, judged by the model without the row's group, and every
        group by its agreement, and computes ``coef_`` and ``covariance_factor_`` again. The first
        round takes two reads of the data, each other one (two if groups are scattered). 0 is the
        method of the paper: then more than two classes are predicted by the largest decision value,
        not by calibrated probabilities. There is no second look with fewer than 10 groups, with
        groups of a dask array that are larger than 256 MB, or if a class would lose all its weight.
    checkpoint : str or path-like, optional
        File (a path, or a URL such as s3://…) that holds the state of the fit after every read of
        the data. A fit on the same data resumes from it, and removes it at its end.
    progress : bool or callable, optional
        True shows a live line in a notebook, and elsewhere prints one line per iteration to
        stderr. A callable gets each entry of ``history_``; its method ``reading``, if it has one,
        a :class:`~gpgc_dask.core.progress.Progress` of each read of a dask array.
    random_state : int or None, default None
        Accepted for scikit-learn; nothing in the fit is random.
    warm_start : GPGC, optional
        A model fitted to similar data, such as the same images before some were corrected. The fit
        starts at its noise variances (by group; new groups at its typical one), feature scales and
        redundancy, which takes fewer reads, and ends at the same optimum. Features, feature groups,
        classes and ``redundancy`` must be those of that model.

    Attributes
    ----------
    groups_ : (J,) array
        Labels of the groups, sorted.
    noise_variance_ : (J,) array
        Noise variance of each group; a large one means an unreliable group.
    noise_groups_, noise_group_variance_ : (M,) arrays
        Owners of the groups and their noise variances, after a fit with ``noise_groups``;
        ``noise_variance_`` is then that of each group's owner.
    confidence_ : (J,) array
        Share of the groups that are estimated less reliable.
    trusted_ : (J,) array of bool
        Groups whose labels are known to be right, after a fit with some.
    feature_scales_ : dict
        {feature group: prior standard deviation σ}.
    coef_ : (1, k) or (classes, k) array
        Posterior mean of the weights.
    covariance_factor_ : (k, k) array
        T with posterior covariance TᵀT.
    classes_, class_weight_ : (classes,) arrays
        Labels, and the weight of a row of each; after a second look, in its last round.
    redundancy_ : float
        How many rows of a group count as one, c.
    leverage_share_ : (J,) array or None
        Leverage of each group at the optimum as a share of its weight, if a read has computed it.
    typical_noise_ : float
        Weighted median of the noise variances.
    log_evidence_ : float
        ln p of the labels.
    converged_ : bool
        Whether ``log_evidence_`` was certified as the optimum.
    n_iter_, n_reads_ : int
        Iterations of the fit, and full reads of X.
    history_ : list of dict
        One entry per iteration, then one per round of the second look, which repeats the evidence
        of the fit.
    row_weight_ : (N,) array of float32
        Weights of the rows in the last round of the second look, without class weights: group by
        group in the order of ``groups_``.
    row_class_ : (N,) array of uint8 or uint16
        Their classes, by number.
    look_age_ : float
        Share of the rows whose groups have changed since the last complete second look.
    group_rows_, group_digests_ : (J,) arrays
        Number of rows of each group, and a digest of their labels and weights, by which
        :meth:`leave_group_out` finds the rows of ``row_weight_``.
    fit_coef_, fit_factor_ : (1, k) or (classes, k) array, (k, k) array of float32
        ``coef_`` and ``covariance_factor_`` before the second look, where a fit with
        ``warm_start`` starts.
    calibration_ : Calibration
        Probabilities of decision values, from a second look or a :meth:`review`.
    dataset_ : dict
        Where the rows come from, after a fit on a dataset.
    review_, leave_out_ : DataFrame, KeptPredictions
        Result of :meth:`review`, and the predictions that it was computed from.

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask import GPGC
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(np.arange(40), 25)
    >>> X = rng.standard_normal((1000, 8))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> careless = images < 4
    >>> y[careless] = rng.integers(0, 2, careless.sum())
    >>> model = GPGC().fit(X, y, groups=images)
    >>> [int(image) for image in sorted(model.groups_[np.argsort(model.confidence_)[:4]])]
    [0, 1, 2, 3]
    """

    _noise_model = "groupwise"

    def __init__(
        self,
        *,
        solver: SolverName = "auto",
        tol: float = 1e-4,
        max_iter: int = 100,
        class_weight: dict[Any, float] | Literal["auto", "balanced"] | None = "auto",
        dtype: str = "auto",
        redundancy: float | Literal["auto"] = "auto",
        noise_floor: float = 1e-4,
        rounds: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | Listener | None = None,
        random_state: int | None = None,
        warm_start: Any = None,
    ) -> None:
        super().__init__(
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            class_weight=class_weight,
            dtype=dtype,
            redundancy=redundancy,
            noise_floor=noise_floor,
            rounds=rounds,
            checkpoint=checkpoint,
            progress=progress,
            random_state=random_state,
        )
        self.warm_start = warm_start

    def _start(
        self, training: Training, bounds: tuple[float, float], n_rounds: int
    ) -> tuple[Start | None, KeptLook | None]:
        if not self._starts_at_a_model:
            return None, None
        model, n_classes = self.warm_start, training.rows.n_classes
        start = start_at(model, training, bounds)
        settings = (self.class_weight, n_rounds)
        same = settings == (model.class_weight, model._n_rounds(n_classes))
        return start, keep_look(model, training) if same and n_rounds else None

    def _check_start(self, X: Any) -> None:
        if self._starts_at_a_model:
            check_start(self.warm_start, self, X)

    @property
    def _starts_at_a_model(self) -> bool:
        # scikit-learn's own checks set this parameter to False.
        return self.warm_start is not None and self.warm_start is not False

    def _noise_of(self, names: Labels, rejected: Labels) -> Array:
        place, known = find_labels(self.groups_, names)
        if not known.any():
            raise InputError(
                f"groups {preview(names)} are none of the fit's groups ({preview(self.groups_)}): "
                "pass the groups that the model was fitted with, in the same type"
            )
        unexpected = ~known & ~np.isin(names, rejected)
        if unexpected.any():
            warnings.warn(
                f"{np.count_nonzero(unexpected)} of {names.size} groups were not in the fit "
                f"({preview(names[unexpected])}): their rows get the ordinary prediction",
                stacklevel=3,
            )
        return np.where(known, self.noise_variance_[place], np.nan)

    @property
    def group_noise(self) -> Array:
        """(J,) noise variance per group."""
        return self.noise_variance_

    @property
    def group_confidence(self) -> Array:
        """(J,) share of the groups that are estimated less reliable."""
        return self.confidence_

    def _learn_noise(self, variance: Array, weight: Array) -> None:
        self.noise_variance_ = variance
        order = np.sort(variance)
        self.confidence_ = 1.0 - np.searchsorted(order, variance, side="right") / variance.size
        by_noise = np.argsort(variance)
        cumulative = np.cumsum(weight[by_noise])
        middle = np.searchsorted(cumulative, 0.5 * cumulative[-1])
        self.typical_noise_ = float(variance[by_noise[middle]])


class GP(LinearGP):
    """The same Gaussian process with one noise variance for all rows: the baseline of the paper.

    Parameters and attributes are those of :class:`GPGC`, except that ``noise_variance_`` is one
    number and there is no ``confidence_``. ``groups`` are used for the estimate of the redundancy
    only: without them, or with ``redundancy=1.0``, the fit takes one read of the data. There is no
    second look by default (``rounds=0``).

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask import GP
    >>> X = np.random.default_rng(0).standard_normal((1000, 8))
    >>> model = GP(redundancy=1.0).fit(X, X[:, 0] > 0)
    >>> model.n_reads_
    1
    """

    _noise_model = "homoscedastic"

    def __init__(
        self,
        *,
        solver: SolverName = "auto",
        tol: float = 1e-4,
        max_iter: int = 100,
        class_weight: dict[Any, float] | Literal["auto", "balanced"] | None = "auto",
        dtype: str = "auto",
        redundancy: float | Literal["auto"] = "auto",
        noise_floor: float = 1e-4,
        rounds: int = 0,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | Listener | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            class_weight=class_weight,
            dtype=dtype,
            redundancy=redundancy,
            noise_floor=noise_floor,
            rounds=rounds,
            checkpoint=checkpoint,
            progress=progress,
            random_state=random_state,
        )

    def _noise_of(self, names: Labels, rejected: Labels) -> Array:
        return np.full(names.size, self.noise_variance_)

    def _learn_noise(self, variance: Array, weight: Array) -> None:
        self.noise_variance_ = variance[0]
        self.typical_noise_ = float(variance[0])
