"""Peak memory of a fit from Zarr at N and 8N rows, compared with the projection of ``plan``.

Each worker's own peak resident size counts, over the whole life of its process. N is large enough
for more than one task: with a single one there is nothing to merge.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from common import cluster, parser, write_superpixels
from dask.utils import format_bytes
from sklearn.exceptions import ConvergenceWarning

from gpgc_dask import GPGC


def peak_resident() -> int:
    """Peak in bytes from the kernel (getrusage's is inherited from the parent process)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def forget_peak() -> None:
    """Let the peak of this process start again."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(n: int, k: int, n_groups: int, block: int) -> tuple[float, int, int]:
    """(peak of the largest worker, the plan's projection, full reads) of one fit."""
    with tempfile.TemporaryDirectory() as folder:
        data = write_superpixels(Path(folder) / "X.zarr", n, k, n_groups, block)
        with cluster() as client:
            plan = GPGC(rounds=0).plan(data.X, groups=data.groups)
            # A few steps reach the peak; the optimum is not needed.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = GPGC(max_iter=3, rounds=0).fit(data.X, data.y, **data.fit_arguments)
            peaks = client.run(peak_resident)
    return max(peaks.values()), plan.worker_bytes, model.n_reads_


def main() -> None:
    args = parser(__doc__).parse_args()
    n, k, block = (2000, 64, 500) if args.smoke else (65_536, 1024, 4096)
    small = measure(n, k, n // 100, block)
    large = measure(8 * n, k, 8 * n // 100, block)
    for rows, (peak, planned, reads) in ((n, small), (8 * n, large)):
        print(
            f"{rows:>9,} × {k:,} float32 ({format_bytes(4 * rows * k)}), {reads} reads: "
            f"peak of a worker {format_bytes(int(peak))}, planned {format_bytes(planned)} "
            f"(planned ÷ peak {planned / peak:.2f}, bar 0.67 to 1.5)"
        )
    print(f"peak at 8N ÷ peak at N: {large[0] / small[0]:.2f} (bar 1.2)")


if __name__ == "__main__":
    main()
