"""MarginSVM, the baseline of the paper: a linear SVM, and the mean margin of each group's labels.

The SVM is LibLinear's (scikit-learn's ``LinearSVC``). LibLinear needs all rows in memory, as
float64 and again as its own sparse nodes; only predictions and margins are computed out of core.
"""

from __future__ import annotations

import numbers
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.checks import check_choice, check_positive
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.threads import blas_threads
from gpgc_dask.data.dataset import check_unchanged, is_dataset, provenance
from gpgc_dask.data.training import input_arrays
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskOracle
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.gp.training import Training
from gpgc_dask.models._hinge import Chosen, Problem
from gpgc_dask.models.base import DatasetModel
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.leave_group_out import code_units, find_classes, measure_agreement
from gpgc_dask.models.margins import group_means, label_margins, margin_confidence
from gpgc_dask.models.svm_memory import check_size, training_bytes
from gpgc_dask.models.svm_rows import check_finite_values, fold_numbers, load_rows, sample_rows
from gpgc_dask.models.validation import check_new_rows, check_training, class_weights, naming_groups

__all__ = ["MarginSVM"]

GRID = 2.0 ** np.arange(-20, 0)
"""The values of C that cross-validation tries, increasing, as in the paper."""


class MarginSVM(DatasetModel):
    """Linear SVM with squared hinge loss, and the mean margin of each group's labels.

    The baseline of Kolesnikov & Lampert (ICCV 2015): a group is as reliable as the mean margin of
    its labels under one SVM that is trained on all of them. Unlike in :class:`GPGC`, unreliable
    groups keep their full weight in the training.

    No intercept is added: X needs a constant column.

    Parameters
    ----------
    C : float or "auto", default "auto"
        Cost of errors. "auto" chooses the best of 2⁻²⁰ … 2⁻¹ by cross-validation, the smaller one
        of equals.
    n_folds : int, default 5
        Folds of whole groups, or of rows if there are no groups. The score of a C is the recall on
        the held-out rows of all folds, averaged over classes.
    class_weight : {"balanced"}, dict or None, default "balanced"
        "balanced" gives classes the same weight in each fit. For more than two classes, as in
        LibLinear, the class has its factor and the rest have 1.
    max_rows : int, optional
        Train on a random sample of whole groups with at most this many rows in total.
    tol : float, default 1e-6
        Gradient at which a fit stops, relative to that at w = 0, as in LibLinear.
    max_iter : int, default 1000
        Maximum number of Newton steps per fit.
    n_jobs : int or None, default None
        Threads that share the folds; None or -1 is one per core.
    random_state : int or None, default 0
        Seed of the sample; nothing else is random.

    Attributes
    ----------
    groups_ : (J,) array
        Labels of the groups, sorted.
    group_margin_ : (J,) array
        Mean margin of the group's labels over all its rows, weighted by ``sample_weight``: y f for
        two classes, for more the label's f minus the largest other. A small one means an
        unreliable group; NaN if no row has weight.
    confidence_ : (J,) array
        Share of the groups with a smaller margin.
    coef_ : (1, k) or (classes, k) array
        Weights of the features.
    C_ : float
        The cost.
    C_grid_, cv_scores_ : (20,) arrays
        Costs and their scores; empty if C was given.
    classes_, class_weight_ : (classes,) arrays
        Labels that have weight, and the factor of each.
    rows_used_ : (n,) array
        Numbers of the rows of the training.
    converged_ : bool
        Whether every fit converged.
    n_iter_ : int
        Steps of the last fit.
    n_reads_ : int
        Full reads of X: 1, or 2 after training on a sample.
    dataset_ : dict
        Where the rows come from, after a fit on a dataset.

    Notes
    -----
    Minimises ½‖w‖² + C Σ w_i max(0, 1 − y_i w·x_i)², one class against the rest for more than two,
    by LibLinear in the primal, which is deterministic.

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask import MarginSVM
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(np.arange(40), 25)
    >>> X = rng.standard_normal((1000, 8))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> careless = images < 4
    >>> y[careless] = rng.integers(0, 2, careless.sum())
    >>> model = MarginSVM().fit(X, y, groups=images)
    >>> [int(image) for image in sorted(model.groups_[np.argsort(model.group_margin_)[:4]])]
    [0, 1, 2, 3]
    """

    saved_arrays: ClassVar = (
        "coef_",
        "class_weight_",
        "confidence_",
        "group_margin_",
        "C_grid_",
        "cv_scores_",
        "rows_used_",
    )
    saved_values: ClassVar = ("C_", "converged_", "n_iter_", "n_reads_", "n_features_in_")

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        *,
        n_folds: int = 5,
        class_weight: dict[Any, float] | Literal["balanced"] | None = "balanced",
        max_rows: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.C = C
        self.n_folds = n_folds
        self.class_weight = class_weight
        self.max_rows = max_rows
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- fitting ---------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        feature_groups: Any = None,
        sample_weight: Any = None,
        force: bool = False,
    ) -> Self:
        """Choose C, train, and average the margins of each group.

        Parameters
        ----------
        X : (N, k) array, dask array, DataFrame or dataset
            Features. The rows to train on are loaded as float64, see :meth:`memory_bytes`. A
            dataset from :func:`gpgc_dask.open_dataset` includes labels, images and weights.
        y : (N,) array
            Labels of two or more classes, of any type.
        groups : (N,) array, optional
            Group of each row: its image, its annotator, … Rows of a group need not be adjacent.
            Without groups all rows form one, and folds consist of single rows.
        feature_groups : optional
            Ignored: an SVM has one scale. Accepted as by :meth:`gpgc_dask.GPGC.fit`.
        sample_weight : (N,) array, optional
            Weights ≥ 0. Rows of weight 0 are left out.
        force : bool, default False
            Fit even if the memory does not seem enough.

        Returns
        -------
        self
        """
        self._check_parameters()
        arrays = input_arrays(X, y=y, groups=groups, weight=sample_weight)
        # Feature names are checked on a copy: if they are wrong, an earlier fit is not lost.
        validate_data(type(self)(), arrays.X, skip_check_array=True)
        training = check_training(arrays.X, arrays.y, arrays.groups, None, arrays.weight, None)
        grouped = arrays.groups is not None
        rows = sample_rows(training, self.max_rows, self.random_state, grouped=grouped)
        shape = {"n_features": training.X.shape[1], "n_classes": training.classes.size}
        check_size(training, rows, partial(self.memory_bytes, **shape), force=force)
        with naming_groups(arrays.groups):
            self._learn(training, rows, grouped=grouped)
        if is_dataset(X):
            check_unchanged(X)
        self._remember(provenance(X) if is_dataset(X) else None)
        validate_data(self, arrays.X, skip_check_array=True)
        return self

    def memory_bytes(self, n_rows: int, n_features: int, n_classes: int = 2) -> int:
        """Estimate the maximum memory that training takes, in addition to that in use.

        X as float64, then LibLinear's copy or the k×k arrays of the folds, whichever is larger:
        three times X for N ≫ k. An X that is float64 and C-ordered in memory is not copied.

        Parameters
        ----------
        n_rows, n_features, n_classes : int
            Size of the training data.

        Returns
        -------
        int
            Bytes.
        """
        threads = _n_threads(self.n_jobs, self.n_folds) if self.C == "auto" else 0
        return training_bytes(n_rows, n_features, n_classes, threads)

    def _check_parameters(self) -> None:
        """Validate the parameters, as scikit-learn does: at fit, by name."""
        if isinstance(self.C, str):
            check_choice("C", self.C, ("auto",))
        else:
            check_positive("C", self.C)
        check_positive("tol", self.tol)
        for name, minimum in (("n_folds", 2), ("max_iter", 1), ("max_rows", 2)):
            value = getattr(self, name)
            if name == "max_rows" and value is None:
                continue
            if not isinstance(value, numbers.Integral) or value < minimum:
                raise InputError(
                    f"{name} must be a whole number of at least {minimum}, got {value!r}"
                )
        _n_threads(self.n_jobs, self.n_folds)

    def _learn(self, training: Training, used: Index, *, grouped: bool) -> None:
        rows = training.rows
        # Classes without any row that has weight do not belong to the model.
        present, codes = np.unique(rows.codes[used], return_inverse=True)
        weights = rows.weights[used]
        factors = partial(class_weights, self.class_weight, training.classes)
        class_weight = factors(rows.codes[used], weights)[present]
        problem = Problem(
            X=load_rows(training.X, used),
            codes=codes.astype(np.intp),
            weights=weights,
            groups=rows.groups[used] if grouped else None,
            n_classes=present.size,
            factors=lambda codes, weights: factors(present[codes], weights)[present],
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        chosen = self._choose_cost(problem)
        coef, n_iter = problem.train(chosen.C, class_weight)
        counted = np.flatnonzero(rows.weights > 0)
        sampled = used.size < counted.size
        values = _values(training.X, coef)[counted] if sampled else _values(problem.X, coef)
        margins = label_margins(values, np.searchsorted(present, rows.codes[counted]))
        self.group_margin_ = group_means(margins, rows.take(counted))
        self.confidence_ = margin_confidence(self.group_margin_)
        self.groups_, self.rows_used_ = training.groups, used
        self.classes_, self.class_weight_ = training.classes[present], class_weight
        self.C_, self.C_grid_, self.cv_scores_ = chosen.C, chosen.grid, chosen.scores
        self.coef_, self.n_iter_, self.n_reads_ = coef, n_iter, 2 if sampled else 1
        self.converged_ = chosen.converged and n_iter < self.max_iter
        if not self.converged_:
            warnings.warn(
                f"a fit stopped after {self.max_iter} steps: raise max_iter or tol, or scale the "
                "features to similar sizes",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _choose_cost(self, problem: Problem) -> Chosen:
        if self.C != "auto":
            return Chosen(float(self.C), np.empty(0), np.empty(0), True)
        fold = fold_numbers(problem.codes, problem.groups, int(self.n_folds))
        grid = np.array(GRID)
        scores, done = problem.cross_validate(fold, grid, _n_threads(self.n_jobs, self.n_folds))
        best = int(np.argmax(scores))
        if best in (0, grid.size - 1):
            low = best == 0
            warnings.warn(
                f"the best C is the {'smallest' if low else 'largest'} that was tried, "
                f"{grid[best]:.3g} (balanced accuracy {scores[best]:.3f}), and a "
                f"{'smaller' if low else 'larger'} one may be better: scale the features "
                f"{'down' if low else 'up'}, or pass C=",
                stacklevel=4,
            )
        return Chosen(float(grid[best]), grid, scores, done)

    # -- prediction ------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Any:
        """Decision values w·x, ±1 at the margins.

        Parameters
        ----------
        X : (N, k) array, dask array, DataFrame or dataset
            Features.

        Returns
        -------
        (N,) array, or (N, classes) for more than two classes
            A NumPy array for a NumPy X, a lazy dask array for a dask X or a dataset.
        """
        features = check_new_rows(self, X)
        oracle = DaskOracle(features) if is_dask(features) else NumpyOracle(features)
        return oracle.matvec(_columns(self.coef_))

    def predict(self, X: Any) -> Any:
        """Labels (N,) by the largest decision value, among ``classes_``; lazy for a dask X.

        Of more than two classes, after a review, the calibrated probability decides, as for GPGC.
        """
        return decide(self.decision_function(X), self.classes_, self.calibration)

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
        """Predict each row by an SVM that never saw the row's group.

        The groups are divided into ``n_folds`` folds, and an SVM of cost ``C_`` is trained without
        each: ``n_folds`` fits, on rows in memory.

        Parameters
        ----------
        X, y, groups, sample_weight, area, together, return_agreement
            As of :meth:`gpgc_dask.GPGC.leave_group_out`.

        Returns
        -------
        values : (N,) array, or (N, classes) for more than two classes
            Decision values.
        agreement : GroupAgreement
            Only if ``return_agreement``.
        """
        check_is_fitted(self)
        arrays = input_arrays(
            X, y=y, groups=groups, weight=sample_weight, area=area, together=together
        )
        training = check_training(arrays.X, arrays.y, arrays.groups, None, arrays.weight, None)
        n = len(training.rows)
        codes = find_classes(self, training.classes)[training.rows.codes]
        rows = replace(training.rows, codes=codes, n_classes=self.classes_.size)
        units = code_units(arrays.together, n)
        fold = fold_numbers(codes, rows.groups if units is None else units, int(self.n_folds))
        X = load_rows(training.X, np.arange(n))
        values = np.empty((n, len(self.coef_)))
        for number in range(int(fold.max()) + 1):
            used = np.flatnonzero((fold != number) & (rows.weights > 0))
            values[fold == number] = X[fold == number] @ self._train_without(X, rows, used).T
        if values.shape[1] == 1:
            values = values[:, 0]
        if not return_agreement:
            return values
        size = np.ones(n) if arrays.area is None else np.asarray(arrays.area, dtype=np.float64)
        size = size * (rows.weights > 0)
        return values, measure_agreement(values, rows, training.groups, size, self.calibration)

    def _train_without(self, X: Array, rows: Rows, used: Index) -> Array:
        """(1, k) or (classes, k) weights of an SVM trained on the rows ``used``."""
        codes, weights, n_classes = rows.codes[used], rows.weights[used], self.classes_.size
        factors = class_weights(self.class_weight, self.classes_, codes, weights)
        if np.unique(codes).size < n_classes:
            raise InputError(
                "without one of the folds a class is missing: use fewer folds (n_folds=), or more "
                "groups of that class"
            )
        problem = Problem(
            X[used], codes, weights, None, n_classes, lambda codes, weights: factors,
            float(self.tol), int(self.max_iter),
        )  # fmt: skip
        return problem.train(self.C_, factors)[0]

    # -- properties of FittedModel ----------------------------------------------------------

    @property
    def group_confidence(self) -> Array:
        """(J,) share of the groups with a smaller margin."""
        return self.confidence_

    @property
    def group_margin(self) -> Array:
        """(J,) mean margin of the group's labels."""
        return self.group_margin_

    @property
    def cost(self) -> float:
        """The cost C."""
        return self.C_

    @property
    def fit_summary(self) -> dict[str, Any]:
        """C, and the balanced accuracy on held-out folds that chose it."""
        scores = dict(zip(self.C_grid_.tolist(), self.cv_scores_.tolist(), strict=True))
        return {"C": self.C_, "balanced_accuracy": scores.get(self.C_)}


def _n_threads(n_jobs: int | None, n_folds: int) -> int:
    """Threads that share the folds; negative numbers count from the cores, as in scikit-learn."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise InputError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    wanted = -1 if n_jobs is None else int(n_jobs)
    return min(wanted if wanted > 0 else max(blas_threads() + 1 + wanted, 1), int(n_folds))


def _columns(coef: Array) -> Array:
    """Weights as columns: (k,) for two classes, (k, classes) for more."""
    return coef[0] if len(coef) == 1 else coef.T


def _values(X: Any, coef: Array) -> Array:
    """Decision values of all rows, computed; (N,) or (N, classes)."""
    if not is_dask(X):
        return NumpyOracle(X).matvec(_columns(coef))
    (values,) = compute(DaskOracle(X).matvec(_columns(coef)))
    return check_finite_values(values)
