"""MarginSVM, the paper's baseline: a linear SVM, and the mean margin of each group's labels.

The model is LibLinear's (scikit-learn's ``LinearSVC``). LibLinear wants all rows in memory, as
float64 and once more as its own sparse nodes; only predictions and margins are out of core.

Choosing C takes n_folds × 20 fits, and at large C LibLinear takes half a minute for each on
27,000×489 numbers. So the folds are fitted by Newton's method on the rows inside the margin
(Keerthi & DeCoste 2005), each C from the one before: the same strictly convex problem, so the same
optimum and the same held-out predictions, in a few passes over the rows.
"""

from __future__ import annotations

import numbers
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import psutil  # type: ignore[import-untyped]
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gpgc_dask.arrays import Array, Index, Mask, group_sums
from gpgc_dask.dataset import is_dataset, provenance, training_arrays
from gpgc_dask.decisions import to_labels
from gpgc_dask.oracle.base import Rows
from gpgc_dask.oracle.dask import DaskOracle, compute, is_dask, select_rows
from gpgc_dask.oracle.numpy import NumpyOracle
from gpgc_dask.oracle.tasks import listed
from gpgc_dask.planning import USABLE_SHARE
from gpgc_dask.process import blas_threads, map_threads, one_blas_thread
from gpgc_dask.validation import (
    Training,
    _class_weight,
    check_features,
    check_training,
    choice,
    positive,
)

__all__ = ["MarginSVM"]

GRID = 2.0 ** np.arange(-20, 0)
"""The paper's: every C that cross-validation tries, growing."""

NODE_BYTES = 16
"""LibLinear's copy of a number that is not 0: an index and a float64, aligned."""

KEPT_BYTES = 128 << 20
"""Freed memory that the process keeps, of blocks that were read and the like."""

LARGEST_COUNT = 2**31 - 1
"""LibLinear counts its nodes, one a number and one a row, in 32 bits, unchecked."""

GRAM_ROWS = 4096
"""Rows that a Gram product takes at a time."""

Factors = Callable[[Index, Array], Array]
"""((n,) class codes, (n,) weights) -> (classes,) factor of each class's cost."""


class MarginSVM(ClassifierMixin, BaseEstimator):
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
        X : (N, k) NumPy or dask array, rows = instances; those to train on are loaded as float64,
            see :meth:`memory_bytes`. Or a dataset from :func:`gpgc_dask.open_dataset`, which brings
            labels, images and weights
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
        training = check_training(X, y, groups, None, sample_weight, None, group_noise=False)
        rows = self._rows_to_use(training, grouped=groups is not None)
        self._refuse_if_too_large(training, rows, force=force)
        self._learn(training, rows, grouped=groups is not None)
        self.__dict__.pop("dataset_", None)
        if origin is not None:
            self.dataset_ = origin
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
                raise ValueError(
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
            raise ValueError(
                f"max_rows={self.max_rows} is too small: whole groups drawn at random make "
                f"{sample.size} rows, with none of class(es) {listed(training.classes[missing])}; "
                "raise it"
            )
        return sample.astype(np.intp)

    def _refuse_if_too_large(self, training: Training, rows: Index, *, force: bool) -> None:
        n, k, classes = rows.size, training.X.shape[1], training.classes.size
        if n * (k + 1) > LARGEST_COUNT:
            raise ValueError(
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
        raise MemoryError(
            f"this fit needs {format_bytes(needed)} but {format_bytes(there)} are available: "
            f"LibLinear holds all {n:,} rows of {k:,} features in memory. Train on a sample of the "
            f"groups (max_rows={max(fitting - 1, 0)} fits), or on a machine with more memory; "
            "fit(..., force=True) goes on all the same"
        )

    def _learn(self, training: Training, used: Index, *, grouped: bool) -> None:
        rows = training.rows
        # Classes that only rows without weight have are none of the model's.
        present, codes = np.unique(rows.codes[used], return_inverse=True)
        weights = rows.weights[used]
        factors = partial(_class_weight, self.class_weight, training.classes)
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
        check_is_fitted(self)
        lazy = is_dask(X) or is_dataset(X)
        features = check_features(X, self.coef_.shape[1] if lazy else None)
        if not lazy:
            validate_data(self, X, skip_check_array=True, reset=False)
        oracle = DaskOracle(features) if lazy else NumpyOracle(features)
        return oracle.matvec(_columns(self.coef_))

    def predict(self, X: Any) -> Any:
        """Labels by the largest decision value, in the caller's own label values."""
        return to_labels(self.decision_function(X), self.classes_)


# -- rows ----------------------------------------------------------------------------------


def available_bytes() -> int:
    """Memory that this process may still take: what the machine has, up to its own limit."""
    own = psutil.Process().memory_info().rss
    return int(max(min(psutil.virtual_memory().available, MEMORY_LIMIT - own), 0))


def _n_threads(n_jobs: int | None, n_folds: int) -> int:
    """Threads that share the folds; negative numbers count from the cores, as scikit-learn's."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
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
    raise ValueError(
        f"X contains NaN or infinity in row(s) {listed(bad if rows is None else rows[bad])}: "
        "drop those rows or impute them before fitting"
    )


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
        raise ValueError(
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


# -- training ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The cost, and the (grid,) scores that chose it; empty where it was given."""

    C: float
    grid: Array
    scores: Array
    converged: bool


@dataclass(frozen=True)
class Problem:
    """Rows in memory to train on: X (n, k), codes (n,), weights (n,) > 0, groups (n,) or None."""

    X: Array
    codes: Index
    weights: Array
    groups: Index | None
    n_classes: int
    factors: Factors
    tol: float
    max_iter: int

    def train(self, C: float, class_weight: Array) -> tuple[Array, int]:
        """LibLinear's weights, (1, k) or (classes, k), and its number of steps."""
        machine = LinearSVC(
            C=C,
            dual=False,
            fit_intercept=False,
            class_weight=dict(enumerate(class_weight.tolist())),
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(self.X, self.codes, sample_weight=self.weights)
        return np.ascontiguousarray(machine.coef_), int(machine.n_iter_)

    def cross_validate(self, fold: Index, grid: Array, n_threads: int) -> tuple[Array, bool]:
        """((grid,) balanced accuracy on held-out rows, whether all fits converged)."""
        folds = range(int(fold.max()) + 1)

        def run(share: range) -> list[tuple[Array, bool]]:
            return [self._held_out_hits(fold == number, grid) for number in share]

        shares = [folds[start::n_threads] for start in range(min(n_threads, len(folds)))]
        with one_blas_thread():
            parts = [part for parts in map_threads(run, shares) for part in parts]
        hits = sum(part[0] for part in parts)
        totals = group_sums(self.codes, self.weights, self.n_classes)
        return np.mean(hits / totals, axis=1), all(part[1] for part in parts)

    def _held_out_hits(self, held: Mask, grid: Array) -> tuple[Array, bool]:
        """((grid, classes) weight of the held-out rows predicted right, convergence)."""
        truth, weight = self.codes[held], self.weights[held]
        kept = np.where(held, 0.0, self.weights)
        known = np.flatnonzero(group_sums(self.codes, kept, self.n_classes))
        hits = np.zeros((grid.size, self.n_classes))
        done = True
        for number, found in enumerate(zip(*self._paths(kept, known, grid), strict=True)):
            values = np.stack([f[held] for f, _ in found])
            best = values.argmax(0) if len(found) > 1 else (values[0] > 0).astype(np.intp)
            right = known[best] == truth
            hits[number] = group_sums(truth, weight * right, self.n_classes)
            done = done and all(converged for _, converged in found)
        return hits, done

    def _paths(self, weights: Array, known: Index, grid: Array) -> list[Iterator[Values]]:
        """A machine for two known classes, one a class for more; a constant where there is one."""
        if known.size == 1:
            return [iter([(np.full(self.codes.size, -1.0), True)] * grid.size)]
        used = weights > 0
        factors = self.factors(self.codes[used], weights[used])
        paths = []
        for code in known[1:] if known.size == 2 else known:
            own = self.codes == code
            # As LibLinear reads class weights: the rest, where it is several classes, counts 1.
            factor = factors[self.codes] if known.size == 2 else np.where(own, factors[code], 1.0)
            signs = np.where(own, 1.0, -1.0)
            paths.append(
                newton_path(self.X, signs, weights * factor, grid, self.tol, self.max_iter)
            )
        return paths


Values: TypeAlias = tuple[Array, bool]
"""(n,) decision values of all rows at one C, and whether the fit converged."""


def newton_path(
    X: Array, signs: Array, cost: Array, grid: Array, tol: float, max_iter: int
) -> Iterator[Values]:
    """Fits of ½‖w‖² + C Σ cost max(0, 1 − sign w·x)² at each C of a growing grid.

    Rows of cost 0 have decision values all the same. Each fit starts from the last one; Newton's
    matrix is that of the rows inside the margin, updated by those that came and went.
    """
    w, f = np.zeros(X.shape[1]), np.zeros(len(X))
    gram = ActiveGram(X, cost)
    used = signs[cost > 0]
    rarer = min(np.count_nonzero(used > 0), np.count_nonzero(used < 0))
    # LibLinear's rule: relative to the gradient at w = 0, less where a class is rare.
    limit = tol * rarer / used.size * float(np.linalg.norm(X.T @ (2.0 * cost * signs)))
    for C in grid.tolist():
        converged = False
        for _ in range(max_iter):
            slack = np.maximum(1.0 - signs * f, 0.0)
            gradient = w - X.T @ (2.0 * C * cost * slack * signs)
            converged = bool(np.linalg.norm(gradient) <= C * limit)
            if converged:
                break
            step = gram.solve(slack > 0, C, -gradient)
            move = X @ step
            t = step_length(w, step, 1.0 - signs * f, signs * move, C * cost, gradient @ step)
            w, f = w + t * step, f + t * move
        yield f, converged


class ActiveGram:
    """Σ cost x xᵀ over the rows inside the margin, kept up to date as rows come and go."""

    def __init__(self, X: Array, cost: Array) -> None:
        self.X = X
        self.root = np.sqrt(cost)
        self.active = np.zeros(len(X), dtype=bool)
        self.H = np.zeros((X.shape[1], X.shape[1]))

    def solve(self, active: Mask, C: float, v: Array) -> Array:
        """(I + 2C H)⁻¹ v, with the rows marked in ``active`` in H."""
        active = active & (self.root > 0)
        self._add(np.flatnonzero(active & ~self.active), 1.0)
        self._add(np.flatnonzero(self.active & ~active), -1.0)
        self.active = active
        A = 2.0 * C * self.H
        # Features of any size: what rounding may take from the diagonal is given back.
        A[np.diag_indices_from(A)] += 1.0 + np.finfo(float).eps * np.trace(A)
        return np.asarray(cho_solve(cho_factor(A, lower=True, overwrite_a=True), v))

    def _add(self, rows: Index, sign: float) -> None:
        for start in range(0, rows.size, GRAM_ROWS):
            part = rows[start : start + GRAM_ROWS]
            A = self.X[part] * self.root[part, None]
            self.H += sign * (A.T @ A)


def step_length(
    w: Array, step: Array, slack: Array, move: Array, cost: Array, slope: float
) -> float:
    """Armijo's rule along ``step``: half of it, and half of that, until the objective falls.

    slack : 1 − sign f (n,), which falls by ``move`` (n,) in a whole step;  slope : there, < 0
    """

    def objective(t: float) -> float:
        return float(
            0.5 * np.sum((w + t * step) ** 2) + cost @ np.maximum(slack - t * move, 0.0) ** 2
        )

    start, t = objective(0.0), 1.0
    # Close to the optimum the gain is less than the rounding of the objective.
    while objective(t) > start * (1 + 1e-12) + 1e-4 * t * slope and t > 1e-9:
        t *= 0.5
    return t
