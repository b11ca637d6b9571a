"""A fit of the size of AutoSeg cats with 3 GB for all workers, compared with its plan."""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import Section, cluster, parser, seconds, write_superpixels
from dask.utils import format_bytes
from memory import peak_resident

from gpgc_dask import GPGC

LIMIT = 3_000_000_000
WORKERS = 2
WITHIN = 0.3


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--folder", help="where to write the data, default: the system's temporary folder"
    )
    arguments.add_argument("--redundancy", default="1.0", help='a number, or "auto"')
    args = arguments.parse_args()
    section = Section(args, __file__)
    redundancy = args.redundancy if args.redundancy == "auto" else float(args.redundancy)
    images, n, k = (60, 8_700, 160) if args.smoke else (3_006, 436_000, 4_113)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        writing, data = seconds(lambda: write_superpixels(Path(folder) / "X.zarr", n, k, images))
        with cluster(workers=WORKERS, memory=str(LIMIT // WORKERS)) as client:
            model = GPGC(redundancy=redundancy, rounds=0, progress=True)
            planning, plan = seconds(lambda: model.plan(data.X, groups=data.groups, calibrate=True))
            print(plan, flush=True)
            taken, _ = seconds(lambda: model.fit(data.X, data.y, **data.fit_arguments))
            peaks = client.run(peak_resident)
    peak, reads = max(peaks.values()), model.history_[-1]["reads"]
    together = sum(peaks.values())
    size = n * k * 4
    section.add(
        f"{images:,} images, {n:,} × {k:,} float32 ({format_bytes(size)} in "
        f"{data.X.numblocks[0]:,} chunks, written in {writing:.0f} s), {WORKERS} workers with one "
        f"thread and {LIMIT / WORKERS / 1e9:.1f} GB each, redundancy {args.redundancy}. "
        f"{'Converged' if model.converged_ else 'NOT converged'}; planned in {planning:.0f} s."
    )
    section.table(
        ["", "planned", "measured", "planned ÷ measured", "target"],
        [
            _row("time, s", plan.seconds, taken, ".0f"),
            _row("peak memory per worker, MB", plan.worker_bytes / 1e6, peak / 1e6, ".0f"),
            _row("reads of the data", plan.reads, reads, ".2f"),
            (
                "peak memory of all workers, GB",
                "",
                f"**{together / 1e9:.2f}**",
                "",
                f"≤ {LIMIT / 1e9:g}",
            ),
            ("features read, GB", "", f"{reads * size / 1e9:.1f}", "", ""),
        ],
    )
    section.finish()


def _row(name: str, planned: float, measured: float, form: str) -> tuple[str, ...]:
    ratio = planned / measured
    text = f"**{ratio:.2f}**"
    return (
        name,
        f"{planned:{form}}",
        f"{measured:{form}}",
        text,
        f"{1 - WITHIN:g} to {1 + WITHIN:g}",
    )


if __name__ == "__main__":
    main()
