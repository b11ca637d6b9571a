"""Sweeps over the data until the evidence is within 0.001 nats of its optimum.

The paper's way, L-BFGS on the noise and scale parameters themselves, is written out here: an
evaluation of value and gradient is two sweeps. Ours counts full reads of the data.
"""

from __future__ import annotations

import numpy as np
from common import parser, relu_features
from scipy.optimize import minimize

from gpgc_dask import GPGC
from gpgc_dask.gp import evidence
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.gp.solvers import SOLVERS

WITHIN_NATS = 1e-3
LIMIT = 300
"""Maximum number of evaluations with the raw parameters."""


class FoundError(Exception):
    pass


def make(n: int, k: int, n_groups: int, seed: int = 0):
    """Superpixels of two classes in the paper's three feature groups, some masks corrupted.

    Appearance differs by class and by image, position is a share of the 4×4 grid, one is constant.
    """
    rng = np.random.default_rng(seed)
    groups = np.tile(np.arange(n_groups), 2)
    groups = np.sort(np.append(groups, rng.integers(0, n_groups, n - groups.size)))
    truth = rng.random(n) < 0.4
    looks = rng.standard_normal((2, k - 17)) + 0.3 * rng.standard_normal((n_groups, 1, k - 17))
    appearance = np.maximum(relu_features(n, k - 17, seed) + looks[groups, truth.astype(int)], 0)
    position = rng.dirichlet(np.full(16, 0.1), n)
    X = np.column_stack([appearance, position, np.ones(n)])
    features = np.repeat(["appearance", "position", "constant"], [k - 17, 16, 1])
    corrupted = rng.random(n_groups) < 1 / 3
    flip = rng.random(n) < np.where(corrupted, rng.uniform(0.1, 0.5, n_groups), 0.01)[groups]
    return X, truth ^ flip, groups, features


def evaluations_on_raw_parameters(X, y, groups, features, optimum: float) -> int:
    """L-BFGS-B on ε and σ from 1, as in the paper, until it reaches the evidence."""
    n = len(X)
    n_groups = groups.max() + 1
    rows = Rows(y.astype(np.intp), np.ones(n), groups.astype(np.intp), 2, n_groups)
    oracle = NumpySweeps(X, rows, Arithmetic(np.dtype(np.float64)))
    names, index = np.unique(features, return_inverse=True)
    count = 0

    def evaluate(parameters):
        nonlocal count
        count += 1
        noise, scales = np.split(parameters, [n_groups])
        log_noise = np.log(noise**2)
        moments = oracle.moments(log_noise, 1.0)
        post = evidence.posterior(moments, scales[index])
        terms = oracle.terms(post, log_noise, 1.0, leave_out=False)
        value = evidence.objective(moments, post, oracle.group_weight, log_noise)
        if evidence.log_evidence(value, n) > optimum - WITHIN_NATS or count >= LIMIT:
            raise FoundError
        by_log_noise = evidence.noise_gradient(
            oracle.group_weight, terms.residual, terms.leverage, 1
        )
        by_log_scale = evidence.scale_gradient(evidence.feature_terms(moments, post, index), 1)
        # ln ε² = 2 ln ε: the chain rule back to the raw parameters.
        return value, np.append(2 * by_log_noise / noise, 2 * by_log_scale / scales)

    try:
        minimize(
            evaluate,
            np.ones(n_groups + names.size),
            jac=True,
            method="L-BFGS-B",
            bounds=[(1e-3, None)] * (n_groups + names.size),
            options={"maxiter": LIMIT, "maxfun": LIMIT, "ftol": 0.0, "gtol": 0.0},
        )
    except FoundError:
        return count
    return LIMIT


def main() -> None:
    args = parser(__doc__).parse_args()
    n, k, n_groups = (1200, 30, 40) if args.smoke else (20_000, 200, 300)
    X, y, groups, features = make(n, k, n_groups)
    options = {"redundancy": 1.0, "class_weight": None}
    given = {"groups": groups, "feature_groups": features}
    optimum = GPGC(solver="lbfgs", tol=1e-8, rounds=0, **options).fit(X, y, **given).log_evidence_
    print(f"{n:,} × {k}, {n_groups} adjacent groups, optimum {optimum:.3f} nats")
    for solver in SOLVERS:
        model = GPGC(solver=solver, rounds=0, **options).fit(X, y, **given)
        print(
            f"{solver:>12}: {model.n_reads_:4d} reads of the data to convergence, "
            f"{optimum - model.log_evidence_:.1e} nats off"
        )
    raw = evaluations_on_raw_parameters(X, y, groups, features, optimum)
    there = "not there after" if raw >= LIMIT else "there after"
    print(f"{'raw L-BFGS':>12}: {there} {2 * raw} reads ({raw} evaluations of two sweeps)")


if __name__ == "__main__":
    main()
