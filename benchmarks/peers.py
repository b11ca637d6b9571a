"""GPyTorch with the same linear kernel and learned group noise, to the same evidence.

The kernel is given to GPyTorch as a low-rank root, so that it uses Woodbury's identity and not an
N×N matrix; L-BFGS with a strong Wolfe line search works on the logs. Needs gpytorch and torch,
which this package does not install; without them only our side is timed.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from common import Section, parser, seconds, write_superpixels

from gpgc_dask import GPGC

WITHIN_NATS = 1.0
TARGET = 10
LIMIT = 400
"""Maximum number of evaluations of GPyTorch."""


def gpytorch_fit(X, y, groups, index, optimum: float) -> tuple[int, float, float]:
    """(evaluations, evidence, seconds to the first evidence within WITHIN_NATS or to the limit)."""
    import time

    import gpytorch
    import torch
    from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator

    kind = torch.float64
    F, signs = torch.as_tensor(X, dtype=kind), torch.as_tensor(np.where(y, 1.0, -1.0), dtype=kind)
    group, feature = torch.as_tensor(groups), torch.as_tensor(index)
    log_scales = torch.full((int(index.max()) + 1,), -4.0, dtype=kind, requires_grad=True)
    log_noise = torch.zeros(int(groups.max()) + 1, dtype=kind, requires_grad=True)
    best, count, start = -np.inf, 0, time.perf_counter()

    class FoundError(Exception):
        pass

    optimiser = torch.optim.LBFGS(
        [log_scales, log_noise],
        max_iter=LIMIT,
        max_eval=LIMIT,
        history_size=20,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        nonlocal best, count
        optimiser.zero_grad()
        root = F * torch.exp(0.5 * log_scales)[feature]
        noise = DiagLinearOperator(torch.exp(log_noise)[group])
        covariance = LowRankRootLinearOperator(root).add_diagonal(noise.diagonal())
        given = gpytorch.distributions.MultivariateNormal(torch.zeros_like(signs), covariance)
        with gpytorch.settings.max_cholesky_size(10**9):
            loss = -given.log_prob(signs)
        loss.backward()
        best, count = max(best, -loss.item()), count + 1
        if best > optimum - WITHIN_NATS or count >= LIMIT:
            raise FoundError
        return loss

    with contextlib.suppress(FoundError):
        optimiser.step(closure)
    return count, best, time.perf_counter() - start


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    n, k, n_groups = (2000, 40, 40) if args.smoke else (20_000, 256, 200)
    with tempfile.TemporaryDirectory() as folder:
        data = write_superpixels(Path(folder) / "X.zarr", n, k, n_groups)
        X = data.X.compute()
    options = {"redundancy": 1.0, "class_weight": None}
    runs = [
        seconds(lambda: GPGC(rounds=0, **options).fit(X, data.y, **data.fit_arguments))
        for _ in range(args.repeats)
    ]
    taken, model = min(runs, key=lambda run: run[0])
    exact = (
        GPGC(dtype="float64", tol=1e-9, rounds=0, **options)
        .fit(X, data.y, **data.fit_arguments)
        .log_evidence_
    )
    section.add(f"{n:,} × {k} in memory, {n_groups} groups; optimum {exact:,.2f} nats.")
    rows = [("gpgc_dask", f"{taken:.2f}", model.n_reads_, f"{exact - model.log_evidence_:.4f}")]
    index = np.unique(data.feature_groups, return_inverse=True)[1]
    try:
        count, reached, peer = gpytorch_fit(X, data.y, data.groups, index, exact)
    except ImportError:
        section.add("GPyTorch is not installed: pip install gpytorch torch, then run this again.")
    else:
        rows.append(("GPyTorch", f"{peer:.1f}", f"{count} evaluations", f"{exact - reached:.4f}"))
        rows.append(("GPyTorch ÷ gpgc_dask", f"**{peer / taken:.0f}**", f"target ≥ {TARGET}", ""))
    section.table(["", "seconds", "reads of the data", "nats below the optimum"], rows)
    section.finish()


if __name__ == "__main__":
    main()
