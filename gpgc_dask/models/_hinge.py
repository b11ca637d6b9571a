"""Squared-hinge SVMs on rows in memory: LibLinear for one cost, Newton's method for many.

Choosing C takes n_folds × 20 fits, and LibLinear is slow at large C. The folds are therefore fitted
by Newton's method on the rows inside the margin (Keerthi & DeCoste 2005), starting from the fit of
the C before: the same strictly convex problem, thus the same optimum and the same held-out
predictions, in a few passes over the rows. With LibLinear in its place ``MarginSVM().fit`` takes
several times as long, and the more so the more features there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from gpgc_dask.core.arrays import Array, Index, Mask, group_sums
from gpgc_dask.core.threads import map_threads, one_blas_thread

__all__ = ["GRAM_ROWS", "Chosen", "Factors", "Problem", "newton_path"]

GRAM_ROWS = 4096
"""Rows per Gram product."""

Factors: TypeAlias = Callable[[Index, Array], Array]
"""((n,) class codes, (n,) weights) -> (classes,) factor of each class's cost."""


@dataclass(frozen=True)
class Chosen:
    """The cost, and the (grid,) scores that chose it, which are empty for a given cost."""

    C: float
    grid: Array
    scores: Array
    converged: bool


@dataclass(frozen=True)
class Problem:
    """Training rows in memory: X (n, k), codes (n,), weights (n,) > 0, groups (n,) or None."""

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
        """((grid, classes) weight of correctly predicted held-out rows, whether all converged)."""
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
        """One SVM for two known classes, one per class for more, a constant for a single class."""
        if known.size == 1:
            return [iter([(np.full(self.codes.size, -1.0), True)] * grid.size)]
        used = weights > 0
        factors = self.factors(self.codes[used], weights[used])
        paths = []
        for code in known[1:] if known.size == 2 else known:
            own = self.codes == code
            # As in LibLinear: the rest has weight 1 if it consists of several classes.
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

    Rows of cost 0 have decision values too. Each fit starts from the last one; Newton's matrix is
    that of the rows inside the margin, updated by those that entered or left it.
    """
    w, f = np.zeros(X.shape[1]), np.zeros(len(X))
    gram = ActiveGram(X, cost)
    used = signs[cost > 0]
    rarer = min(np.count_nonzero(used > 0), np.count_nonzero(used < 0))
    # LibLinear's rule: relative to the gradient at w = 0, smaller if a class is rare.
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
    """Σ cost x xᵀ over the rows inside the margin, updated as rows enter or leave it."""

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
        # Features of any size: compensates the rounding errors of the diagonal.
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
    """Armijo's rule: the step is halved until the objective decreases enough.

    ``slack`` is 1 − sign f (n,), which a whole step reduces by ``move`` (n,); ``slope`` < 0 is that
    of the objective along the step.
    """

    def objective(t: float) -> float:
        return float(
            0.5 * np.sum((w + t * step) ** 2) + cost @ np.maximum(slack - t * move, 0.0) ** 2
        )

    start, t = objective(0.0), 1.0
    # Near the optimum the gain is smaller than the rounding errors of the objective.
    while objective(t) > start * (1 + 1e-12) + 1e-4 * t * slope and t > 1e-9:
        t *= 0.5
    return t
