"""One fused sweep from Zarr on a LocalCluster, compared with naive dask and one process in memory.

A fused sweep answers all four queries of the oracle (and so a whole fixed-point step) from one read
of the data. The naive expressions answer (iii) and (iv) only, with a read each.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask
import numpy as np
from common import best_seconds, cluster, parser, write_superpixels

from gpgc_dask.gp.evidence import posterior
from gpgc_dask.gp.noise import FixedPointRule
from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps


def main() -> None:
    args = parser(__doc__).parse_args()
    n, k, n_groups = (4096, 64, 40) if args.smoke else (131_072, 1024, 1000)
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        data = write_superpixels(Path(folder) / "X.zarr", n, k, n_groups)
        X = data.X
        rows = Rows(data.y.astype(np.intp), np.ones(n), data.groups, 2, n_groups)
        arithmetic = Arithmetic(np.dtype(np.float32), np.full(k, 0.5))
        rule = FixedPointRule(1, np.log(1e-4), np.log(1e4))
        log_noise = np.zeros(n_groups)

        in_memory = NumpySweeps(X.compute(), rows, arithmetic)
        on_cluster = DaskSweeps(X, rows, arithmetic)
        post = posterior(in_memory.moments(log_noise, 1.0), np.full(k, 0.05))
        F, d = X.T, dask.array.ones(n, chunks=X.chunks[0], dtype=np.float32)
        A = (post.T.T @ post.T).astype(np.float32)

        def fused(oracle):
            return lambda: oracle.step(post, log_noise, 1.0, rule, leave_out=False)

        def naive():
            ((F * d) @ F.T).compute()
            ((A @ F) * F).sum(0).compute()

        here, there = fused(in_memory)(), fused(on_cluster)()
        gap = np.abs(here.moments.gram - there.moments.gram).max() / np.abs(here.moments.gram).max()
        assert gap < 1e-6, f"cluster and memory disagree: {gap}"
        assert np.allclose(here.terms.leverage, there.terms.leverage, rtol=1e-4)

        seconds = best_seconds(
            {"fused": fused(on_cluster), "naive": naive, "memory": fused(in_memory)}, args.repeats
        )
        threads = sum(client.nthreads().values())
        print(f"{n:,} × {k:,} float32, {n_groups:,} groups, {threads} worker threads")
        print(f"fused Dask sweep from Zarr, four queries       {seconds['fused']:8.2f} s")
        print(f"naive dask, (F*d)@F.T and ((A@F)*F).sum(0)     {seconds['naive']:8.2f} s")
        print(f"same sweep, one process, in memory, all cores  {seconds['memory']:8.2f} s")
        print(f"faster than naive: {seconds['naive'] / seconds['fused']:.2f}× (bar 1.5)")
        print(f"speed of memory:   {seconds['memory'] / seconds['fused']:.2f} (bar 0.8)")


if __name__ == "__main__":
    main()
