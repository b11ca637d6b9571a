"""MarginSVM, the paper's baseline: a linear SVM, and the mean margin of each group's labels.

The model is LibLinear's (scikit-learn's ``LinearSVC``). LibLinear wants all rows in memory, as
float64 and once more as its own sparse nodes; only predictions and margins are out of core.
"""

from __future__ import annotations

import numbers
import warnings
from bisect import bisect_right
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import psutil  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gpgc_dask.core.arrays import Array, Index, Labels, group_sums
from gpgc_dask.core.checks import choice, positive
from gpgc_dask.core.errors import InputError, NotEnoughMemoryError, NotFiniteError
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.metrics import GroupAgreement, group_agreement
from gpgc_dask.core.text import bytes_text, listed
from gpgc_dask.core.threads import blas_threads
from gpgc_dask.data.dataset import is_dataset, provenance
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.client import MEMORY_LIMIT
from gpgc_dask.execution.compute import compute
from gpgc_dask.execution.row_blocks import is_dask, select_rows
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskOracle
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.gp.training import Training
from gpgc_dask.models._hinge import GRAM_ROWS, Chosen, Problem
from gpgc_dask.models.base import DatasetModel
from gpgc_dask.models.decisions import to_labels
from gpgc_dask.models.validation import check_new_rows, check_training, class_weights, naming_groups
from gpgc_dask.planning.memory import USABLE_SHARE

__all__ = ["MarginSVM"]

GRID = 2.0 ** np.arange(-20, 0)
"""The paper's: every C that cross-validation tries, growing."""

NODE_BYTES = 16
"""LibLinear's copy of a number that is not 0: an index and a float64, aligned."""

KEPT_BYTES = 128 << 20
"""Freed memory that the process keeps, of blocks that were read and the like."""

LARGEST_COUNT = 2**31 - 1
"""LibLinear counts its nodes, one a number and one a row, in 32 bits, unchecked."""


class MarginSVM(DatasetModel):
    """Linear SVM with squared hinge loss, and how well each group's labels agree with it.

    The baseline of Kolesnikov & Lampert (ICCV 2015): a group is as reliable as the mean margin of
    its labels under one SVM trained on all of them. Bad groups do harm here: nothing takes their
    weight away.

    Minimises ½‖w‖² + C Σ w_i max(0, 1 − y_i w·x_i)², one class against the rest for more than two,
    by LibLinear (primal: nothing random). No intercept is added: give X a constant column.

    Parameters
    ----------
    C : cost of errors, or "auto": the best of 2⁻²⁰ … 2⁻¹ by cross-validation, the smaller of equals
    n_folds : folds of whole groups (of rows, where there are no groups); fewer groups, fewer folds.
        A C's score is the recall of the held-out rows of all folds, averaged over classes
    class_weight : "balanced" (classes weigh the same in each fit), None, or a dict; as LibLinear
        reads them: of more than two classes, each has its factor and the rest have 1
    max_rows : train on a random sample of whole groups of at most so many rows in all
    tol : gradient at which a fit is done, relative to that at w = 0, as LibLinear takes it
    max_iter : Newton steps of a fit at most
    n_jobs : threads that share the folds; None or -1: one a core
    random_state : seed of the sample; nothing else is random

    Attributes
    ----------
    groups_ : (J,) group labels, sorted
    group_margin_ : (J,) mean margin of the group's labels over all its rows, weighted by
        ``sample_weight``: y f for two classes, for more the label's f less the largest other;
        small = unreliable, NaN where no row has weight
    confidence_ : (J,) share of the groups with a smaller margin
    coef_ : (1, k) or (classes, k)
    C_ : the cost;  C_grid_, cv_scores_ : (20,) costs and their scores, empty for a given C
    classes_, class_weight_ : labels that have weight, and the factor of each
    rows_used_ : (n,) numbers of the rows that it was trained on
    converged_ : whether every fit was;  n_iter_ : steps of the last one
    n_reads_ : full reads of X: 1, or 2 where it was trained on a sample
    dataset_ : of a fit on a dataset, where its rows come from

    Examples
    --------
    >>> import numpy as np
    >>> from gpgc_dask import MarginSVM
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(np.arange(40), 25)
    >>> X = rng.standard_normal((1000, 8))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> spoilt = images < 4
    >>> y[spoilt] = rng.integers(0, 2, spoilt.sum())
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
        """Choose C, train, and average each group's margins.

        Parameters
        ----------
        X : (N, k) NumPy or dask array or pandas DataFrame, rows = instances; those to train on are
            loaded as float64, see :meth:`memory_bytes`. Or a dataset from
            :func:`gpgc_dask.open_dataset`, which brings labels, images and weights
        y : (N,) labels of two or more classes, of any type
        groups : (N,) labels: rows of one image, one annotator, ...; need not be adjacent. Without
            them all rows are one group, and folds are of single rows
        feature_groups : ignored, an SVM has one scale; here so that one call serves ``GPGC`` too
        sample_weight : (N,) weights ≥ 0; rows of weight 0 are left out
        force : go on although the memory will not do
        """
        self._check_parameters()
        origin = provenance(X) if is_dataset(X) else None
        if is_dataset(X):
            given = training_arrays(X).replaced(y=y, groups=groups, weight=sample_weight)
            X, y, groups, sample_weight = given.X, given.y, given.groups, given.weight
        # Feature names are checked before anything is learned; on a copy, so that nothing is lost.
        validate_data(type(self)(), X, skip_check_array=True)
        training = check_training(X, y, groups, None, sample_weight, None)
        rows = self._rows_to_use(training, grouped=groups is not None)
        self._refuse_if_too_large(training, rows, force=force)
        with naming_groups(groups):
            self._learn(training, rows, grouped=groups is not None)
        self._remember(origin)
        validate_data(self, X, skip_check_array=True)
        return self

    def memory_bytes(self, n_rows: int, n_features: int, n_classes: int = 2) -> int:
        """Memory that training on so many rows takes, at most, besides what the process has.

        X as float64, then LibLinear's copy or the folds' k×k arrays, whichever is larger: three
        times X for N ≫ k. An X that is float64 and C-ordered in memory is taken as it is.
        """
        machines = 1 if n_classes == 2 else n_classes
        threads = _n_threads(self.n_jobs, self.n_folds) if self.C == "auto" else 0
        batches = threads * 2 * 8 * min(GRAM_ROWS, n_rows) * n_features
        folds = threads * 8 * ((machines + 2) * n_features**2 + 8 * machines * n_rows)
        nodes = NODE_BYTES * n_rows * (n_features + 1)
        return int(8 * n_rows * n_features + max(nodes, folds) + batches + KEPT_BYTES)

    def _check_parameters(self) -> None:
        """The parameters, validated as scikit-learn does: at fit, by name."""
        if isinstance(self.C, str):
            choice("C", self.C, ("auto",))
        else:
            positive("C", self.C)
        positive("tol", self.tol)
        for name, least in (("n_folds", 2), ("max_iter", 1), ("max_rows", 2)):
            value = getattr(self, name)
            if name == "max_rows" and value is None:
                continue
            if not isinstance(value, numbers.Integral) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}"
                )
        _n_threads(self.n_jobs, self.n_folds)

    def _rows_to_use(self, training: Training, *, grouped: bool) -> Index:
        """Numbers of the rows to train on, growing: those with weight, or a sample of them."""
        rows = training.rows
        used = np.flatnonzero(rows.weights > 0)
        if self.max_rows is None or used.size <= self.max_rows:
            return used
        draw = check_random_state(self.random_state).permutation
        if not grouped:
            sample = np.sort(draw(used)[: self.max_rows])
        else:
            sizes = group_sums(rows.groups[used], None, rows.n_groups)
            order = draw(np.flatnonzero(sizes))
            taken = order[np.cumsum(sizes[order]) <= self.max_rows]
            sample = used[np.isin(rows.groups[used], taken)]
        missing = group_sums(rows.codes[sample], None, rows.n_classes) == 0
        missing &= group_sums(rows.codes[used], None, rows.n_classes) > 0
        if missing.any():
            raise InputError(
                f"max_rows={self.max_rows} is too small: whole groups drawn at random make "
                f"{sample.size} rows, with none of class(es) {listed(training.classes[missing])}; "
                "raise it"
            )
        return sample.astype(np.intp)

    def _refuse_if_too_large(self, training: Training, rows: Index, *, force: bool) -> None:
        n, k, classes = rows.size, training.X.shape[1], training.classes.size
        if n * (k + 1) > LARGEST_COUNT:
            raise InputError(
                f"LibLinear counts in 32 bits: it takes {LARGEST_COUNT // (k + 1):,} rows of {k:,} "
                f"features, not {n:,}; train on a sample of the groups with max_rows="
            )
        needed, there = self.memory_bytes(n, k, classes), available_bytes()
        if _as_it_is(training.X, rows):
            needed -= training.X.nbytes
        if force or needed <= USABLE_SHARE * there:
            return
        fitting = bisect_right(
            range(n), USABLE_SHARE * there, key=lambda rows: self.memory_bytes(rows, k, classes)
        )
        raise NotEnoughMemoryError(
            f"this fit needs {bytes_text(needed)} but {bytes_text(there)} are available: "
            f"LibLinear holds all {n:,} rows of {k:,} features in memory. Train on a sample of the "
            f"groups (max_rows={max(fitting - 1, 0)} fits), or on a machine with more memory; "
            "fit(..., force=True) goes on all the same"
        )

    def _learn(self, training: Training, used: Index, *, grouped: bool) -> None:
        rows = training.rows
        # Classes that only rows without weight have are none of the model's.
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
        self.confidence_ = _confidence(self.group_margin_)
        self.groups_, self.rows_used_ = training.groups, used
        self.classes_, self.class_weight_ = training.classes[present], class_weight
        self.C_, self.C_grid_, self.cv_scores_ = chosen.C, chosen.grid, chosen.scores
        self.coef_, self.n_iter_, self.n_reads_ = coef, n_iter, 2 if sampled else 1
        self.converged_ = chosen.converged and n_iter < self.max_iter
        if not self.converged_:
            warnings.warn(
                f"a fit stopped after {self.max_iter} steps: raise max_iter or tol, or scale the "
                "features to like sizes",
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
        """w·x, ±1 at the margins: (N,) for two classes, (N, classes) for more.

        A NumPy X gives a NumPy array, a dask X or a dataset a lazy dask array.
        """
        features = check_new_rows(self, X)
        oracle = DaskOracle(features) if is_dask(features) else NumpyOracle(features)
        return oracle.matvec(_columns(self.coef_))

    def predict(self, X: Any) -> Any:
        """Labels by the largest decision value, in the caller's own label values."""
        return to_labels(self.decision_function(X), self.classes_)

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
        """Decision values (N,) or (N, classes) of machines that never saw the row's group.

        The groups are shared out to ``n_folds`` folds, and a machine of cost ``C_`` is trained
        without each: n_folds fits, on rows held in memory. As of ``GPGC``, but for the folds;
        ``return_agreement`` adds a :class:`~gpgc_dask.core.metrics.GroupAgreement`.
        """
        check_is_fitted(self)
        if is_dataset(X):
            given = training_arrays(X).replaced(y=y, groups=groups, weight=sample_weight, area=area)
            X, y, groups, sample_weight, area = (
                given.X, given.y, given.groups, given.weight, given.area
            )  # fmt: skip
        training = check_training(X, y, groups, None, sample_weight, None)
        codes, rows = self._known_codes(training), training.rows
        fold = fold_numbers(codes, rows.groups, int(self.n_folds))
        X = load_rows(training.X, np.arange(len(codes)))
        values = np.empty((len(codes), len(self.coef_)))
        for number in range(int(fold.max()) + 1):
            used = np.flatnonzero((fold != number) & (rows.weights > 0))
            values[fold == number] = X[fold == number] @ self._machine(X, codes, rows, used).T
        found = values[:, 0] if values.shape[1] == 1 else values
        if not return_agreement:
            return found
        return found, self._agreement(found, codes, rows, training.groups, area)

    # -- what other packages ask for, see FittedModel ---------------------------------------

    @property
    def group_confidence(self) -> Array:
        return self.confidence_

    @property
    def group_margin(self) -> Array:
        return self.group_margin_

    @property
    def cost(self) -> float:
        return self.C_

    @property
    def fit_summary(self) -> dict[str, Any]:
        scores = dict(zip(self.C_grid_.tolist(), self.cv_scores_.tolist(), strict=True))
        return {"C": self.C_, "balanced_accuracy": scores.get(self.C_)}

    def _known_codes(self, training: Training) -> Index:
        """(N,) numbers of the rows' classes among ``classes_``."""
        place, known = find_labels(self.classes_, training.classes)
        if not known.all():
            raise InputError(
                f"y has label(s) {listed(training.classes[~known])} that the model was not fitted "
                f"with; its classes are {listed(self.classes_)}"
            )
        return np.asarray(place[training.rows.codes], dtype=np.intp)

    def _machine(self, X: Array, codes: Index, rows: Rows, used: Index) -> Array:
        """(1, k) or (classes, k) weights of a machine trained on some rows."""
        n_classes = self.classes_.size
        factors = class_weights(self.class_weight, self.classes_, codes[used], rows.weights[used])
        if np.unique(codes[used]).size < n_classes:
            raise InputError(
                "without one of the folds a class is missing: fewer folds (n_folds=), or more "
                "groups of that class"
            )
        problem = Problem(
            X[used], codes[used], rows.weights[used], None, n_classes,
            lambda codes, weights: factors, float(self.tol), int(self.max_iter),
        )  # fmt: skip
        return problem.train(self.C_, factors)[0]

    def _agreement(
        self, values: Array, codes: Index, rows: Rows, names: Labels, area: Any
    ) -> GroupAgreement:
        predicted = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(1)
        size = np.ones(len(codes)) if area is None else np.asarray(area, dtype=np.float64)
        size = size * (rows.weights > 0)
        return group_agreement(codes, predicted, rows.groups, size, self.classes_.size, names)


# -- rows ----------------------------------------------------------------------------------


def available_bytes() -> int:
    """Memory that this process may still take: what the machine has, up to its own limit."""
    own = psutil.Process().memory_info().rss
    return int(max(min(psutil.virtual_memory().available, MEMORY_LIMIT - own), 0))


def _n_threads(n_jobs: int | None, n_folds: int) -> int:
    """Threads that share the folds; negative numbers count from the cores, as scikit-learn's."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise InputError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    wanted = -1 if n_jobs is None else int(n_jobs)
    return min(wanted if wanted > 0 else max(blas_threads() + 1 + wanted, 1), int(n_folds))


def _as_it_is(X: Any, rows: Index) -> bool:
    """Whether LibLinear can take X without a copy."""
    whole = not is_dask(X) and len(rows) == len(X)
    return whole and X.dtype == np.float64 and X.flags.c_contiguous


def load_rows(X: Any, rows: Index) -> Array:
    """Rows of X in memory, float64 and C-ordered; X itself if it is so, which LibLinear shares."""
    whole = rows.size == X.shape[0]
    if not is_dask(X):
        return np.ascontiguousarray(X if whole else X[rows], dtype=np.float64)
    if not whole:
        X = select_rows(X, np.isin(np.arange(X.shape[0]), rows))
    (loaded,) = compute(X.astype(np.float64))
    return finite_values(np.ascontiguousarray(loaded), rows)


def finite_values(values: Array, rows: Index | None = None) -> Array:
    """The values, (N,) or (N, any), or an error that names the rows of X where they are not."""
    if np.isfinite(values.sum()):
        return values
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if not bad.size:
        return values
    raise NotFiniteError((bad if rows is None else rows[bad]).tolist())


def _columns(coef: Array) -> Array:
    """Weights as columns: (k,) for two classes, (k, classes) for more."""
    return coef[0] if len(coef) == 1 else coef.T


def _values(X: Any, coef: Array) -> Array:
    """Decision values of all rows, computed; (N,) or (N, classes)."""
    if not is_dask(X):
        return NumpyOracle(X).matvec(_columns(coef))
    (values,) = compute(DaskOracle(X).matvec(_columns(coef)))
    return finite_values(values)


def fold_numbers(codes: Index, groups: Index | None, n_folds: int) -> Index:
    """(n,) fold of each row: whole groups, or single rows of each class in turn."""
    fold = np.empty(codes.size, dtype=np.intp)
    if groups is None:
        fold[np.argsort(codes, kind="stable")] = np.arange(codes.size) % n_folds
        return fold
    n_folds = min(n_folds, np.unique(groups).size)
    if n_folds < 2:
        raise InputError(
            "groups has one group only among the rows to train on, and C is chosen on held-out "
            "groups: pass C=, or no groups (folds of single rows), or more groups (a larger "
            "max_rows)"
        )
    for number, (_, held) in enumerate(GroupKFold(n_folds).split(codes, groups=groups)):
        fold[held] = number
    return fold


def label_margins(values: Array, codes: Index) -> Array:
    """(N,) margin of the label of each row: y f, or its f less the largest of the others."""
    if values.ndim == 1:
        return np.where(codes == 1, values, -values)
    own = np.arange(len(values)), codes
    others = values.copy()
    others[own] = -np.inf
    return values[own] - others.max(1)


def group_means(values: Array, rows: Rows) -> Array:
    """(J,) weighted means of the groups' values (N,); NaN where there is no weight."""
    total = rows.group_weight
    sums = group_sums(rows.groups, rows.weights * values, rows.n_groups)
    return np.divide(sums, total, out=np.full(rows.n_groups, np.nan), where=total > 0)


def _confidence(margin: Array) -> Array:
    """(J,) share of the groups with a smaller margin; NaN where there is none."""
    known = np.sort(margin[np.isfinite(margin)])
    share = np.searchsorted(known, margin, side="left") / max(known.size, 1)
    return np.where(np.isfinite(margin), share, np.nan)
