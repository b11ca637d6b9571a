"""GPGC and GP: scikit-learn classifiers over the fit."""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from math import ceil
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.checks import choice, positive
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.labels import code_labels, find_labels
from gpgc_dask.core.metrics import GroupAgreement, group_agreement
from gpgc_dask.core.progress import progress_listener
from gpgc_dask.core.text import listed
from gpgc_dask.data.dataset import is_dataset, provenance
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.fit import FitResult, fit
from gpgc_dask.gp.options import MAX_NOISE, FitOptions
from gpgc_dask.gp.oracle.base import FeatureOracle, Rows
from gpgc_dask.gp.oracle.dask import DaskOracle, lazy_leave_out
from gpgc_dask.gp.oracle.kernels import Arithmetic, Projection
from gpgc_dask.gp.oracle.numpy import NumpyOracle, NumpySweeps
from gpgc_dask.gp.oracle.tasks import Sweep
from gpgc_dask.gp.solvers import SOLVERS, SolverName
from gpgc_dask.gp.training import Training
from gpgc_dask.models.base import DatasetModel
from gpgc_dask.models.decisions import likelihood_logits, to_labels, to_probabilities
from gpgc_dask.models.protocol import Listener
from gpgc_dask.models.validation import (
    check_features,
    check_new_rows,
    check_training,
    check_weights,
    naming_groups,
    to_vector,
    without_empty_images,
)
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.memory import check_memory
from gpgc_dask.planning.plan import Plan, plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape

__all__ = ["GP", "GPGC"]


class _LinearGP(DatasetModel):
    """What GPGC and GP share: everything but the noise model."""

    saved_arrays: ClassVar = (
        "coef_",
        "covariance_factor_",
        "class_weight_",
        "noise_variance_",
        "noise_group_variance_",
        "confidence_",
    )
    saved_values: ClassVar = (
        "redundancy_",
        "typical_noise_",
        "log_evidence_",
        "converged_",
        "n_iter_",
        "n_reads_",
        "n_features_in_",
    )
    _noise_model: ClassVar[str]
    _keeps_checkpoint = False

    def __init__(
        self,
        *,
        solver: SolverName = "auto",
        tol: float = 1e-4,
        max_iter: int = 100,
        class_weight: dict[Any, float] | Literal["balanced"] | None = "balanced",
        dtype: str = "auto",
        redundancy: float | Literal["auto"] = "auto",
        noise_floor: float = 1e-4,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | Listener | None = None,
        random_state: int | None = None,
    ) -> None:
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.dtype = dtype
        self.redundancy = redundancy
        self.noise_floor = noise_floor
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    # -- fitting ---------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        noise_groups: Any = None,
        feature_groups: Any = None,
        sample_weight: Any = None,
        force: bool = False,
    ) -> Self:
        """Learn the model, its noise variances and its feature scales.

        Parameters
        ----------
        X : (N, k) NumPy or dask array, rows = instances. A dask block must hold whole rows. No
            intercept is added: give X a constant column, best with a feature group of its own.
            Or a pandas DataFrame of numbers.
            Or a dataset from :func:`gpgc_dask.open_dataset`: it brings labels, images, feature
            groups and weights; images with fewer than two superpixels of any weight are left out.
        y : (N,) labels of two or more classes, of any type
        groups : (N,) labels: rows of one image, one annotator, ...; need not be adjacent, though
            adjacent groups let a dask fit read the data half as often. Without groups all rows
            are one: the plain GP
        noise_groups : (N,) labels, or a mapping {group: label}: the owner of each group, such as
            the annotator of an image. Groups of one owner share one noise variance; by default
            each group has its own. Leaving out and redundancy still go by ``groups``
        feature_groups : (k,) labels: columns that share one prior scale; default one group
        sample_weight : (N,) weights ≥ 0; an integer weight equals that many copies of the row
        force : go on although the plan says that the workers' memory will not do
        """
        options = self._options()
        if noise_groups is not None and self._noise_model == "homoscedastic":
            raise InputError(
                "GP has one noise variance for all rows, so noise_groups have no meaning: leave "
                "them out, or fit a GPGC"
            )
        origin = provenance(X) if is_dataset(X) else None
        place = None
        if is_dataset(X):
            given = training_arrays(X).replaced(
                y=y, groups=groups, feature_groups=feature_groups, weight=sample_weight
            )
            if groups is None and self._noise_model != "homoscedastic":
                given = without_empty_images(given)
            X, y, groups, sample_weight = given.X, given.y, given.groups, given.weight
            place = given.place
            feature_groups = given.feature_groups
            if place is not None and isinstance(noise_groups, (Sequence, np.ndarray)):
                noise_groups = np.asarray(noise_groups)[place]
        # Feature names are checked before anything is learned; on a copy, so that nothing is lost.
        validate_data(type(self)(), X, skip_check_array=True)
        training = check_training(
            X,
            y,
            groups,
            feature_groups,
            sample_weight,
            self.class_weight,
            noise_model=self._noise_model if noise_groups is None else "tied",
            noise_groups=noise_groups,
        )
        if is_dask(training.X) and not force:
            rows = training.rows
            check_memory(
                Shape.from_array(training.X, rows.groups, rows.n_classes, options.dtype),
                Resources.detect(is_dask=True),
                estimate_redundancy=options.redundancy is None,
            )
        with naming_groups(groups, place):
            self._learn(training, fit(training, options))
        self._remember(origin)
        validate_data(self, X, skip_check_array=True)
        if not self.converged_:
            warnings.warn(
                f"the fit stopped after {self.n_iter_} iterations before it was certified: raise "
                "max_iter, or tol if the evidence in history_ hardly moves any more",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def plan(
        self,
        X: Any,
        *,
        groups: Any = None,
        workers: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        n_classes: int = 2,
        calibrate: bool = False,
    ) -> Plan:
        """Memory, reads, arithmetic, traffic and time of a fit on X, before anything runs.

        ``workers`` are processes of so many ``threads`` with ``memory_limit`` bytes each, or text
        such as "4GB"; by default those of the active Dask cluster, or this machine. ``calibrate``
        spends some seconds on running the parts of a fit and reading a few blocks of X: without it
        one small product is timed and the rest guessed.
        """
        if groups is None and is_dataset(X):
            groups = training_arrays(X).groups
        X = check_features(X)
        names = (
            None if groups is None else code_labels("groups", to_vector("groups", groups, len(X)))
        )
        index = np.zeros(len(X), dtype=np.intp) if names is None else names[1]
        shape = Shape.from_array(X, index, n_classes, self._dtype())
        machine = None
        if calibrate:
            machine = Machine.calibrate(
                shape.n_features, shape.product_bytes, X if is_dask(X) else None
            )
        return plan(
            shape,
            estimate_redundancy=self.redundancy == "auto",
            separable=self._noise_model != "homoscedastic",
            resources=Resources.detect(is_dask(X), workers, memory_limit, threads),
            machine=machine,
        )

    def _dtype(self) -> np.dtype[Any] | None:
        choice("dtype", self.dtype, ("auto", "float32", "float64"))
        return None if self.dtype == "auto" else np.dtype(self.dtype)

    def _options(self) -> FitOptions:
        """The parameters, validated as scikit-learn does: at fit, by name."""
        redundancy = self.redundancy
        if isinstance(redundancy, str):
            choice("redundancy", redundancy, ("auto",))
        else:
            redundancy = positive("redundancy", redundancy)
        if not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise InputError(
                f"max_iter must be a whole number of at least 1, got {self.max_iter!r}"
            )
        return FitOptions(
            solver=choice("solver", self.solver, SOLVERS),
            tol=positive("tol", self.tol),
            max_iter=int(self.max_iter),
            dtype=self._dtype(),
            redundancy=None if redundancy == "auto" else redundancy,
            noise_floor=self._noise_floor(),
            checkpoint=self.checkpoint,
            keep_checkpoint=self._keeps_checkpoint,
            listeners=progress_listener(self.progress, kept=self.checkpoint is not None),
        )

    def _noise_floor(self) -> float:
        floor = positive("noise_floor", self.noise_floor)
        if floor >= MAX_NOISE:
            raise InputError(f"noise_floor must be below {MAX_NOISE:g}, got {self.noise_floor!r}")
        return floor

    def _learn(self, training: Training, result: FitResult) -> None:
        point = result.point
        params = point.params
        self.classes_ = training.classes
        self.groups_ = training.groups
        self.coef_ = point.post.mu.T.copy()
        self.covariance_factor_ = point.post.T
        self.class_weight_ = training.class_weight
        self.redundancy_ = params.redundancy
        scales = np.exp(0.5 * params.log_scales)
        self.feature_scales_ = dict(
            zip(training.feature_groups.tolist(), scales.tolist(), strict=True)
        )
        self.log_evidence_ = result.problem.log_evidence(point)
        self.converged_ = result.solution.converged
        self.history_ = result.history.entries
        self.n_iter_ = len(self.history_)
        self.n_reads_ = ceil(result.history.reads - 1e-9)
        for name in ("noise_groups_", "noise_group_variance_"):
            self.__dict__.pop(name, None)
        if training.noise_groups is not None:
            self.noise_groups_ = training.noise_groups
            self.noise_group_variance_ = np.exp(training.noise.values(params.log_noise))
        self._learn_noise(np.exp(params.log_noise), training.rows.group_weight)

    @abstractmethod
    def _learn_noise(self, variance: Array, weight: Array) -> None:
        """Keep the groups' noise variances (J,), given the groups' weights (J,)."""

    # -- prediction ------------------------------------------------------------------------

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of f, (N,) for two classes, (N, classes) for more.

        With ``return_std`` also its posterior standard deviation (N,), the same for all classes:
        √(φᵀVφ), exact. A NumPy X gives NumPy arrays, a dask X lazy dask arrays.
        """
        oracle = self._oracle(X)
        coef = self.coef_[0] if len(self.coef_) == 1 else self.coef_.T
        mean = oracle.matvec(coef)
        if not return_std:
            return mean
        return mean, np.sqrt(oracle.variance(self.covariance_factor_))

    def predict(self, X: Any) -> Any:
        """Most likely labels, in the caller's own label values."""
        return to_labels(self.decision_function(X), self.classes_)

    def predict_proba(self, X: Any) -> Any:
        """(N, classes) probabilities, columns in the order of ``classes_``.

        Bayes' rule under the model's own likelihood, N(y; f, v + ε̄²) at y = ±1, with the
        posterior variance v of f and the typical (weighted median) noise ε̄² of the training
        groups: softmax of 2f/(v + ε̄²).
        """
        mean, std = self.decision_function(X, return_std=True)
        logits = likelihood_logits(mean, std, self.typical_noise_)
        return to_probabilities(logits, self.classes_.size)

    def leave_group_out(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        area: Any = None,
        return_agreement: bool = False,
    ) -> Any:
        """Predictions of the model had the row's whole group been left out of the fit. Exact.

        f^(−j) = y − (I − H_j P_j)⁻¹ (y − f), at the learned noise and scales: one read, no refit.

        Parameters
        ----------
        X, y, groups, sample_weight : what the model was fitted on; a dataset brings all of them,
            and ``area``. A group that the fit never saw gets the ordinary prediction, with a
            warning.
        area : (N,) size of each row in the agreement (pixels); default 1. Rows of
            ``sample_weight`` 0 do not count.
        return_agreement : also return a :class:`~gpgc_dask.core.metrics.GroupAgreement`: for each
            group the IoU (of ``classes_[1]`` where there are two) and the balanced accuracy of
            these predictions with the given labels. It ranks bad masks better than the noise
            does. Computes at once, also for dask.

        Returns
        -------
        decision values, (N,) or (N, classes); lazy for a dask X but with ``return_agreement``
        """
        if is_dataset(X):
            given = training_arrays(X).replaced(y=y, groups=groups, weight=sample_weight, area=area)
            y, groups, sample_weight, area = given.y, given.groups, given.weight, given.area
        if y is None or groups is None:
            raise InputError("y and groups are missing: pass those that the model was fitted with")
        X = check_new_rows(self, X, counted=True)
        rows, names, weight = self._leave_out_rows(X, y, groups, sample_weight)
        noise = self._noise_of(names)
        area = check_weights("area", area, len(rows))
        rows = Rows(
            rows.codes,
            np.where(np.isnan(noise)[rows.groups], 0.0, rows.weights),
            rows.groups,
            rows.n_classes,
            rows.n_groups,
        )
        values = self._leave_out_values(X, rows, np.log(np.where(np.isnan(noise), 1.0, noise)))
        if return_agreement and is_dask(values):
            with naming_groups(groups):
                (values,) = compute(values)
        if values.shape[1] == 1:
            values = values[:, 0]
        if not return_agreement:
            return values
        return values, self._agreement(values, rows, names, area * (weight > 0))

    def _leave_out_rows(
        self, X: Any, y: Any, groups: Any, sample_weight: Any
    ) -> tuple[Rows, Labels, Array]:
        n = X.shape[0]
        labels, codes = code_labels("y", to_vector("y", y, n))
        place, known = find_labels(self.classes_, labels)
        if not known.all():
            raise InputError(
                f"y has label(s) {listed(labels[~known])} that the model was not fitted with; "
                f"its classes are {listed(self.classes_)}"
            )
        codes = place[codes]
        names, index = code_labels("groups", to_vector("groups", groups, n))
        weight = check_weights("sample_weight", sample_weight, n)
        rows = Rows(
            codes, weight * self.class_weight_[codes], index, self.classes_.size, names.size
        )
        return rows, names, weight

    @abstractmethod
    def _noise_of(self, names: Labels) -> Array:
        """Noise variance of groups by name, NaN for those the fit never saw."""

    def _leave_out_values(self, X: Any, rows: Rows, log_noise: Array) -> Any:
        nothing = np.empty(0)
        mu = np.ascontiguousarray(self.coef_.T)
        post = Posterior(self.covariance_factor_, mu, 0.0, nothing, nothing)
        arithmetic = Arithmetic(np.dtype(np.float64))
        sweep = Sweep(Projection(post, arithmetic), log_noise, self.redundancy_, leave_out=True)
        if is_dask(X):
            return lazy_leave_out(X, rows, sweep)
        return NumpySweeps(X, rows, arithmetic).map_rows(sweep.predict_left_out)

    def _agreement(self, values: Array, rows: Rows, names: Labels, area: Array) -> GroupAgreement:
        predicted = to_labels(values, np.arange(rows.n_classes))
        return group_agreement(rows.codes, predicted, rows.groups, area, rows.n_classes, names)

    def _oracle(self, X: Any) -> FeatureOracle:
        features = check_new_rows(self, X)
        return DaskOracle(features) if is_dask(features) else NumpyOracle(features)

    # -- what other packages ask for, see FittedModel ---------------------------------------

    @property
    def typical_noise(self) -> float:
        return self.typical_noise_

    @property
    def covariance_factor(self) -> Array:
        return self.covariance_factor_

    @property
    def log_evidence(self) -> float:
        return self.log_evidence_

    @property
    def learned_redundancy(self) -> float:
        return self.redundancy_

    @property
    def feature_scales(self) -> dict[Any, float]:
        return self.feature_scales_

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.history_

    @property
    def fit_summary(self) -> dict[str, Any]:
        return {
            "log_evidence": float(self.log_evidence_),
            "iterations": self.n_iter_,
            "reads": self.n_reads_,
            "redundancy": float(self.redundancy_),
            "feature_scales": self.feature_scales_,
            "seconds": sum(sum(entry["seconds"].values()) for entry in self.history_),
        }

    def set_session(
        self, *, checkpoint: PathLike[str], progress: bool | Listener | None = None
    ) -> None:
        self.checkpoint, self.progress = checkpoint, progress
        self._keeps_checkpoint = True


class GPGC(_LinearGP):
    """Gaussian process with groupwise confidences: one noise variance a group.

    A linear-kernel GP classifier that learns how reliable the labels of each group (image,
    annotator) are, and in which unreliable groups do no harm. Inference is exact at any size;
    every hyperparameter is found by maximising the evidence.

    Parameters
    ----------
    solver : "auto" (fixed point, then L-BFGS-B certifies), "fixed-point" or "lbfgs"
    tol : predicted gain of the evidence at which the fit is done, in nats a 10,000 rows
    max_iter : iterations at most, entries of ``history_`` in all
    class_weight : "balanced" (classes weigh the same, the total weight is kept), None, or a dict
    dtype : arithmetic of the products: "auto" (the data's own), "float32" or "float64"; float32
        turns to float64 where a sample says that it is not safe
    redundancy : how many rows of a group count as one: "auto" solves for it (with 10 groups or
        more), 1.0 is the paper
    noise_floor : smallest noise variance, in units of the ±1 labels
    checkpoint : a file (a path, or a URL such as s3://…) that holds the solver's state after every
        read of the data; a fit of the same data that finds it there goes on from it, and removes
        it when done
    progress : True shows a live line in a notebook, and elsewhere prints a line an iteration to
        stderr; a callable gets each ``history_`` entry, and its method ``reading``, if it has one,
        a :class:`~gpgc_dask.core.progress.Progress` of each read of a dask array
    random_state : accepted for scikit-learn; the fit draws nothing at random

    Attributes
    ----------
    groups_ : (J,) group labels, sorted
    noise_variance_ : (J,) noise variance of each group; large = unreliable
    noise_groups_, noise_group_variance_ : (M,) owners of groups and their noise variances, where
        the fit was given ``noise_groups``; ``noise_variance_`` is then that of each group's owner
    confidence_ : (J,) share of the groups estimated less reliable
    feature_scales_ : {feature group: σ}
    coef_ : (1, k) or (classes, k) posterior mean of the weights
    covariance_factor_ : (k, k) T with posterior covariance TᵀT
    classes_, class_weight_ : labels and the weight of a row of each
    redundancy_ : c;  typical_noise_ : weighted median noise variance
    log_evidence_ : ln p of the labels;  converged_ : whether that was certified as the optimum
    n_iter_ : iterations;  n_reads_ : full reads of X;  history_ : a dict an iteration
    dataset_ : of a fit on a dataset, where its rows come from;  review_ : what :meth:`review` found

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask import GPGC
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(np.arange(40), 25)
    >>> X = rng.standard_normal((1000, 8))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> spoilt = images < 4
    >>> y[spoilt] = rng.integers(0, 2, spoilt.sum())
    >>> model = GPGC().fit(X, y, groups=images)
    >>> [int(image) for image in sorted(model.groups_[np.argsort(model.confidence_)[:4]])]
    [0, 1, 2, 3]
    """

    _noise_model = "groupwise"

    def _noise_of(self, names: Labels) -> Array:
        place, known = find_labels(self.groups_, names)
        if not known.any():
            raise InputError(
                f"groups {listed(names)} are none of the fit's groups ({listed(self.groups_)}): "
                "pass the groups that the model was fitted with, in the same type"
            )
        if not known.all():
            warnings.warn(
                f"{np.count_nonzero(~known)} of {names.size} groups were not in the fit "
                f"({listed(names[~known])}): their rows get the ordinary prediction",
                stacklevel=3,
            )
        return np.where(known, self.noise_variance_[place], np.nan)

    @property
    def group_noise(self) -> Array:
        return self.noise_variance_

    @property
    def group_confidence(self) -> Array:
        return self.confidence_

    def _learn_noise(self, variance: Array, weight: Array) -> None:
        self.noise_variance_ = variance
        order = np.sort(variance)
        self.confidence_ = 1.0 - np.searchsorted(order, variance, side="right") / variance.size
        by_noise = np.argsort(variance)
        cumulative = np.cumsum(weight[by_noise])
        middle = np.searchsorted(cumulative, 0.5 * cumulative[-1])
        self.typical_noise_ = float(variance[by_noise[middle]])


class GP(_LinearGP):
    """The same Gaussian process with one noise variance for all rows: the paper's baseline.

    Parameters and attributes as for :class:`GPGC`, but ``noise_variance_`` is one number and
    there is no ``confidence_``. ``groups`` only serve to solve for the redundancy: without them
    (or with ``redundancy=1.0``) the whole fit takes one read of the data.

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

    def _noise_of(self, names: Labels) -> Array:
        return np.full(names.size, self.noise_variance_)

    def _learn_noise(self, variance: Array, weight: Array) -> None:
        self.noise_variance_ = variance[0]
        self.typical_noise_ = float(variance[0])
