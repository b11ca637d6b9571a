"""Speed of the parts of a sweep by rows per batch and features: the reason for the batch size.

One core, while the others do the same. A batch must be long enough for BLAS and short enough to
stay in the cache between the passes over it.
"""

from __future__ import annotations

import time

import numpy as np
from common import Section, parser

from gpgc_dask.core.threads import blas_threads, map_threads, one_blas_thread
from gpgc_dask.gp.evidence import Posterior
from gpgc_dask.gp.oracle.kernels import Accumulator, Arithmetic, Projection, Workspace, batch_rows

FLOAT32 = np.dtype(np.float32)


def speeds(k: int, rows: int, total: int) -> tuple[float, float]:
    """(Gram sweep, whitening) in multiply-adds per second, N k² each, including all passes."""
    rng = np.random.default_rng(0)
    F = np.maximum(rng.standard_normal((total, k), dtype=np.float32), 0)
    arithmetic = Arithmetic(FLOAT32, F[:64].mean(0, dtype=np.float64))
    post = Posterior(np.eye(k), np.zeros((k, 1)), 0.0, np.empty(0), np.empty(0))
    projection = Projection(post, arithmetic, directions=rng.standard_normal((k, 32)))
    work, sums = Workspace(arithmetic), Accumulator(k, 1, FLOAT32)
    precision, targets = np.ones(total), np.ones((total, 1))

    def step() -> None:
        for start in range(0, total, rows):
            part = slice(start, start + rows)
            A = work.load([F[part]])
            projection.predict(A)
            sums.add(A, precision[part], targets[part])

    def whiten() -> None:
        for start in range(0, total, rows):
            projection.whiten(work.load([F[start : start + rows]]))

    return _speed(step, total * k * k), _speed(whiten, total * k * k)


def _speed(call, products: float) -> float:
    call()
    start = time.perf_counter()
    call()
    return products / (time.perf_counter() - start)


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    widths = (32,) if args.smoke else (128, 489, 1024, 4113)
    cores, table = blas_threads(), []
    for k in widths:
        total = 4096 if args.smoke else int(max(8192, 6e10 / k**2) // 8192 * 8192)
        total = min(total, 65_536)
        chosen = batch_rows(k, 4)
        for rows in (256, 512, 1024, 2048, 4096, 8192):
            with one_blas_thread():
                found = map_threads(lambda _, k=k, r=rows, t=total: speeds(k, r, t), range(cores))
            gram, whitening = (sum(part[i] for part in found) / len(found) / 1e9 for i in (0, 1))
            mark = " ←" if rows == chosen else ""
            size = f"{4 * rows * k / 2**20:.1f}"
            table.append((f"{k:,}", f"{rows:,}{mark}", size, f"{gram:.0f}", f"{whitening:.0f}"))
    section.add(
        "G multiply-adds/s per core with all cores busy (N k² each); ← marks the size in use:"
    )
    section.table(
        ["features", "rows per batch", "MiB", "step with random probes", "exact leverages"],
        table,
    )
    section.finish()


if __name__ == "__main__":
    main()
