"""LinearGP, the base class of GPGC and GP: everything but the noise model."""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.checks import check_choice, check_positive
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import fit_listeners
from gpgc_dask.data.dataset import check_unchanged, is_dataset, provenance
from gpgc_dask.data.training import input_arrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.fit import FitResult, fit
from gpgc_dask.gp.options import MAX_NOISE, FitOptions, Start
from gpgc_dask.gp.oracle.base import FeatureOracle
from gpgc_dask.gp.oracle.dask import DaskOracle
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.gp.solvers import SOLVERS, SolverName
from gpgc_dask.gp.training import Training
from gpgc_dask.models.decisions import class_probabilities, decide
from gpgc_dask.models.fit_plan import plan_fit
from gpgc_dask.models.kept_look import KeptLook
from gpgc_dask.models.learned_gp import LOOK_ARRAYS, LearnedGP
from gpgc_dask.models.leave_group_out import (
    code_rows,
    code_units,
    leave_out_predictions,
    measure_agreement,
)
from gpgc_dask.models.protocol import Listener
from gpgc_dask.models.row_weights import RowWeights
from gpgc_dask.models.second_look import Rounds
from gpgc_dask.models.validation import (
    check_new_rows,
    check_training,
    check_weights,
    class_weights,
    naming_groups,
    without_empty_images,
)
from gpgc_dask.planning.memory import check_memory
from gpgc_dask.planning.plan import Plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.sweeps import default_rounds, expected_rounds

__all__ = ["LinearGP"]


class LinearGP(LearnedGP):
    """Gaussian process classifier with a linear kernel; a subclass has a noise model."""

    _noise_model: ClassVar[str]
    _keeps_checkpoint = False

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
    ) -> None:
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.dtype = dtype
        self.redundancy = redundancy
        self.noise_floor = noise_floor
        self.rounds = rounds
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
        trusted: Any = None,
        force: bool = False,
    ) -> Self:
        """Learn the weights, the noise variances and the feature scales.

        Parameters
        ----------
        X : (N, k) array, dask array, DataFrame or dataset
            Features, one row per instance. A block of a dask array must hold whole rows. No
            intercept is added: X needs a constant column, best with a feature group of its own.
            A dataset from :func:`gpgc_dask.open_dataset` includes labels, images, feature groups
            and weights; images with fewer than two superpixels that have weight are left out, and
            those that a person has rejected.
        y : (N,) array
            Labels of two or more classes, of any type.
        groups : (N,) array, optional
            Group of each row: its image, its annotator, … Rows of a group need not be adjacent,
            though a fit on adjacent ones reads a dask array half as often. Without groups all rows
            form one group, as in the plain GP.
        noise_groups : (N,) array or mapping {group: label}, optional
            Owner of each group, such as the annotator of an image. Groups of one owner share one
            noise variance; by default each group has its own. ``leave_group_out`` and the
            redundancy still use ``groups``.
        feature_groups : (k,) array, optional
            Columns with the same label share one prior scale; by default all do.
        sample_weight : (N,) array, optional
            Weights ≥ 0. An integer weight has the same effect as that many copies of the row.
        trusted : (J,) array of bool, or collection of groups, optional
            Groups whose labels are known to be right: one truth value per group, in the order of
            ``groups_`` (sorted), or a list or set of groups. Their noise is not estimated: it is
            that of good groups, the median ln ε² of the more reliable half of the others. Their
            rows keep their full weight in the second look. By default, the images of a dataset
            whose masks a person has confirmed or corrected. With one noise variance for all groups
            only the second look is concerned.
        force : bool, default False
            Fit even if the plan predicts that the workers have not enough memory.

        Returns
        -------
        self
        """
        options = self._options()
        self._check_start(X)
        arrays = input_arrays(
            X, y=y, groups=groups, feature_groups=feature_groups, weight=sample_weight
        )
        if is_dataset(X) and groups is None and self._noise_model != "homoscedastic":
            arrays = without_empty_images(arrays)
        # Feature names are checked on a copy: if they are wrong, an earlier fit is not lost.
        validate_data(type(self)(), arrays.X, skip_check_array=True)
        noise_groups = self._check_noise_groups(noise_groups, arrays.place)
        training = check_training(
            arrays.X,
            arrays.y,
            arrays.groups,
            arrays.feature_groups,
            arrays.weight,
            self.class_weight,
            noise_model=self._noise_model if noise_groups is None else "tied",
            noise_groups=noise_groups,
            trusted=arrays.trusted if trusted is None else trusted,
        )
        n_rounds = self._n_rounds(training.rows.n_classes)
        if not force:
            _check_memory(training, options, n_rounds)
        units = code_units(arrays.together, len(training.rows))
        calibrates = self.rounds is None and training.rows.n_classes > 2
        start, kept = self._start(training, options.noise_bounds, n_rounds)
        rule = partial(class_weights, self.class_weight, training.classes, training.rows.codes)
        rounds = Rounds(training, rule, n_rounds, units, calibrates, kept)
        options = replace(options, left_out=rounds.uses_groups, start=start)
        with naming_groups(arrays.groups, arrays.place):
            result = fit(training, options, rounds if rounds.wanted else None)
        if is_dataset(X):
            check_unchanged(X)
        self._remember(provenance(X) if is_dataset(X) else None)
        self._learn(training, result, rounds)
        validate_data(self, arrays.X, skip_check_array=True)
        self._warn_unless_converged()
        return self

    def _check_start(self, X: Any) -> None:
        """Raise an InputError if a fit to X cannot start at the model that it should start at."""

    def _start(
        self, training: Training, bounds: tuple[float, float], n_rounds: int
    ) -> tuple[Start | None, KeptLook | None]:
        """Where to start, if a model is given, within bounds of ln ε²; and its second look."""
        return None, None

    def _warn_unless_converged(self) -> None:
        if not self.converged_:
            warnings.warn(
                f"the fit stopped after {self.n_iter_} iterations before it was certified: raise "
                "max_iter, or tol if the evidence in history_ hardly changes any more",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_noise_groups(self, noise_groups: Any, place: Any) -> Any:
        """The owners of the rows that are fitted, at ``place`` among those of the caller."""
        if noise_groups is not None and self._noise_model == "homoscedastic":
            raise InputError(
                "GP has one noise variance for all rows, so noise_groups have no meaning: leave "
                "them out, or fit a GPGC"
            )
        if place is not None and isinstance(noise_groups, (Sequence, np.ndarray)):
            return np.asarray(noise_groups)[place]
        return noise_groups

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
        """Estimate memory, reads, arithmetic, traffic and time of a fit on X, before it runs.

        For a dataset the plan has the time and memory of :meth:`review`, too.

        Parameters
        ----------
        X : (N, k) array, dask array or dataset
            As of :meth:`fit`. Its values are not read, except by ``calibrate``.
        groups : (N,) array, optional
            As of :meth:`fit`.
        workers, threads : int, optional
            Number of worker processes, and threads per worker; by default those of the active
            Dask cluster, or of this machine.
        memory_limit : int or str, optional
            Bytes per worker, or text such as "4GB".
        n_classes : int, default 2
            Number of classes.
        calibrate : bool, default False
            Measure the speed of this machine for some seconds by running parts of a fit and
            reading a few blocks of X. Otherwise one small product is timed and the rest estimated.

        Returns
        -------
        Plan
        """
        return plan_fit(
            X,
            groups,
            n_classes=n_classes,
            dtype=self._dtype(),
            estimate_redundancy=self.redundancy == "auto",
            separable=self._noise_model != "homoscedastic",
            rounds=self._n_rounds(n_classes),
            resources=(workers, memory_limit, threads),
            calibrate=calibrate,
        )

    def _dtype(self) -> np.dtype[Any] | None:
        check_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        return None if self.dtype == "auto" else np.dtype(self.dtype)

    def _options(self) -> FitOptions:
        """Validate the parameters, as scikit-learn does: at fit, by name."""
        redundancy = self.redundancy
        if isinstance(redundancy, str):
            check_choice("redundancy", redundancy, ("auto",))
        else:
            redundancy = check_positive("redundancy", redundancy)
        if not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise InputError(
                f"max_iter must be a whole number of at least 1, got {self.max_iter!r}"
            )
        self._n_rounds()
        return FitOptions(
            solver=check_choice("solver", self.solver, SOLVERS),
            tol=check_positive("tol", self.tol),
            max_iter=int(self.max_iter),
            dtype=self._dtype(),
            redundancy=None if redundancy == "auto" else redundancy,
            noise_floor=self._noise_floor(),
            checkpoint=self.checkpoint,
            keep_checkpoint=self._keeps_checkpoint,
            listeners=fit_listeners(self.progress, has_checkpoint=self.checkpoint is not None),
        )

    def _n_rounds(self, n_classes: int = 2) -> int:
        """Validate the rounds of the second look, and return their number."""
        if self.rounds is None:
            return default_rounds(n_classes)
        if not isinstance(self.rounds, numbers.Integral) or self.rounds < 0:
            raise InputError(f"rounds must be a whole number of at least 0, got {self.rounds!r}")
        return int(self.rounds)

    def _noise_floor(self) -> float:
        floor = check_positive("noise_floor", self.noise_floor)
        if floor >= MAX_NOISE:
            raise InputError(f"noise_floor must be below {MAX_NOISE:g}, got {self.noise_floor!r}")
        return floor

    def _learn(self, training: Training, result: FitResult, rounds: Rounds | None = None) -> None:
        point, look = result.point, None if rounds is None else rounds.look
        params = point.params
        self.classes_, self.groups_ = training.classes, training.groups
        post = point.post if look is None else look.post
        self.coef_ = post.mu.T.copy()
        self.covariance_factor_ = post.T
        self.class_weight_ = training.class_weight if look is None else look.class_weight
        self.redundancy_ = params.redundancy
        scales = np.exp(0.5 * params.log_scales)
        self.feature_scales_ = dict(
            zip(training.feature_groups.tolist(), scales.tolist(), strict=True)
        )
        self.log_evidence_ = result.problem.log_evidence(point)
        self.converged_, self.history_ = result.solution.converged, result.history.entries
        self.n_iter_ = len(self.history_) - (0 if look is None else look.rounds)
        self.n_reads_ = ceil(result.history.reads - 1e-9)
        for name in ("noise_groups_", "noise_group_variance_", "trusted_", *LOOK_ARRAYS):
            self.__dict__.pop(name, None)
        if training.trusted is not None:
            self.trusted_ = training.trusted
        if rounds is not None and rounds.calibration is not None:
            self.calibration_ = rounds.calibration
        if look is not None:
            kept = RowWeights.from_rows(look.row_weight, training.rows, training.sample_weight)
            self._learn_look(kept, point.post, look.age)
        if training.noise_groups is not None:
            self.noise_groups_ = training.noise_groups
            self.noise_group_variance_ = training.owner_values(np.exp(params.log_noise))
        self._learn_leverage(result)
        self._learn_noise(np.exp(params.log_noise), training.rows.group_weight)

    @abstractmethod
    def _learn_noise(self, variance: Array, weight: Array) -> None:
        """Keep the groups' noise variances (J,), given the groups' weights (J,)."""

    # -- prediction ------------------------------------------------------------------------

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of f, and its standard deviation.

        Parameters
        ----------
        X : (N, k) array, dask array, DataFrame or dataset
            Features.
        return_std : bool, default False
            Whether to return the standard deviation √(φᵀVφ) too. It is exact.

        Returns
        -------
        mean : (N,) array, or (N, classes) for more than two classes
            A NumPy array for a NumPy X, a lazy dask array for a dask X.
        std : (N,) array
            Only if ``return_std``; the same for all classes.
        """
        oracle = self._oracle(X)
        coef = self.coef_[0] if len(self.coef_) == 1 else self.coef_.T
        mean = oracle.matvec(coef)
        if not return_std:
            return mean
        return mean, np.sqrt(oracle.variance(self.covariance_factor_))

    def predict(self, X: Any) -> Any:
        """Labels (N,), among ``classes_``; lazy for a dask X.

        Of two classes the sign of the decision value decides. Of more, the calibrated probability
        (``calibration_``) divided by a power of the class frequency does, for a high mean IoU;
        without a calibration, the largest decision value.
        """
        return decide(self.decision_function(X), self.classes_, self.calibration)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (N, classes), columns in the order of ``classes_``; lazy for a dask X.

        Notes
        -----
        With a ``calibration_`` (after a fit with a second look, or a review) the probabilities are
        those of a logistic regression on decision values of models that never saw the row's group,
        with the natural class frequencies. Otherwise they follow from Bayes' rule under the model's
        own likelihood, N(y; f, v + ε̄²) at y = ±1, with the posterior variance v of f and the
        typical (weighted median) noise ε̄² of the training groups: softmax of 2f/(v + ε̄²).
        """
        calibration = self.calibration
        if calibration is None:
            mean, std = self.decision_function(X, return_std=True)
        else:
            mean, std = self.decision_function(X), 0.0
        noise, n_classes = self.typical_noise_, self.classes_.size
        return class_probabilities(mean, std, noise, n_classes, calibration)

    def leave_group_out(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        area: Any = None,
        together: Any = None,
        return_agreement: bool = False,
    ) -> Any:
        """Predict each row as if its whole group had been left out of the fit. Exact.

        Parameters
        ----------
        X, y, groups, sample_weight : arrays, or a dataset as X
            What the model was fitted on, or whole groups of it; a dataset includes all of them,
            and ``area``. A group that was not in the fit gets the ordinary prediction, with a
            warning. After a second look, a group of the fit with other rows, labels or weights
            than in the fit is an InputError: the learned weights of its rows are not known.
        area : (N,) array, optional
            Size of each row in the agreement (pixels), by default 1. Rows of ``sample_weight`` 0
            do not count.
        together : (N,) array, optional
            Rows of one label are left out together, by default those of a group: frames of a
            video, photos of a patient. A dataset made with groups includes them. Without all rows
            of a label the others of it stay in the model.
        return_agreement : bool, default False
            Whether to return the agreement too. Computes a dask X immediately.

        Returns
        -------
        values : (N,) array, or (N, classes) for more than two classes
            Decision values; lazy for a dask X, unless ``return_agreement``.
        agreement : GroupAgreement
            Only if ``return_agreement``: for each group the IoU (of ``classes_[1]`` if there are
            two classes) and the balanced accuracy of these predictions with the given labels. It
            ranks bad masks better than the noise variances do.

        Notes
        -----
        f^(−j) = y − (I − H_j P_j)⁻¹ (y − f), at the learned noise and scales: one read, no refit.
        """
        arrays = input_arrays(
            X, y=y, groups=groups, weight=sample_weight, area=area, together=together
        )
        if arrays.y is None or arrays.groups is None:
            raise InputError("y and groups are missing: pass those that the model was fitted with")
        X = check_new_rows(self, X, counted=True)
        rows, names, weight = code_rows(self, X, arrays, self.class_weight_, self.row_weights)
        size = check_weights("area", arrays.area, len(rows)) * (weight > 0)
        units = code_units(arrays.together, len(rows))
        values = leave_out_predictions(self, X, rows, self._noise_of(names, arrays.rejected), units)
        if return_agreement and is_dask(values):
            with naming_groups(arrays.groups):
                (values,) = compute(values)
        if values.shape[1] == 1:
            values = values[:, 0]
        if not return_agreement:
            return values
        return values, measure_agreement(values, rows, names, size, self.calibration)

    @abstractmethod
    def _noise_of(self, names: Labels, rejected: Labels) -> Array:
        """Noise variances of groups by name, NaN for those that were not in the fit.

        A warning names those, except for images that a person has ``rejected``.
        """

    def _oracle(self, X: Any) -> FeatureOracle:
        features = check_new_rows(self, X)
        return DaskOracle(features) if is_dask(features) else NumpyOracle(features)

    def set_session(
        self, *, checkpoint: PathLike[str], progress: bool | Listener | None = None
    ) -> None:
        """Set where the state of the fit is kept, until the caller removes it, and a listener."""
        self.checkpoint, self.progress = checkpoint, progress
        self._keeps_checkpoint = True


def _check_memory(training: Training, options: FitOptions, rounds: int) -> None:
    """Raise a NotEnoughMemoryError if a fit on a dask array does not fit into the workers."""
    if is_dask(training.X):
        rows = training.rows
        shape = Shape.from_array(training.X, rows.groups, rows.n_classes, options.dtype)
        check_memory(
            shape,
            Resources.detect(is_dask=True),
            estimate_redundancy=options.redundancy is None,
            rounds=expected_rounds(shape, rounds),
        )
