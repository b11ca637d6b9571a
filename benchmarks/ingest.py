"""Time per image by phase of an ingest, and the speed-up of two workers.

Draws its own photos, or takes a folder with ``images`` and ``masks``. The clusters are warm: their
start and the imports of their workers are not counted.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import parser
from photos import save_set

from gpgc_dask.clusters.connect import connect
from gpgc_dask.pipelines.ingest import IngestReport, Recipe, RunOptions, ingest

BAR_SHARE, BAR_SPEEDUP = 0.10, 1.7
FREE = ("superpixels", "backbone")


def measure(folder: Path, target: Path, workers: int, repeats: int, backbone: str) -> IngestReport:
    """Best time of several ingests with a number of workers."""
    with connect(workers=workers):
        reports = [
            ingest(
                folder / "images",
                folder / "masks",
                target,
                recipe=Recipe(backbone=backbone),
                run=RunOptions(overwrite=True),
            )
            for _ in range(repeats + 1)
        ]
    return min(reports[1:], key=lambda report: report.elapsed)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path, help="with images/ and masks/")
    arguments.add_argument("--backbone", default="lite0")
    args = arguments.parse_args()
    n, height, width = (4, 60, 80) if args.smoke else (128, 375, 500)
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or Path(place) / "drawn"
        if args.folder is None:
            save_set(folder, n, height, width)
        target = Path(place) / "data.zarr"
        one, two = (
            measure(folder, target, workers, args.repeats, backbone=args.backbone)
            for workers in (1, 2)
        )
    whose = str(args.folder.name) if args.folder else f"drawn, {width}×{height}"
    print(f"{one.images} images ({whose}), {one.superpixels} superpixels, {args.backbone}")
    total = sum(one.seconds.values())
    for phase, seconds in one.seconds.items():
        bar = "" if phase in FREE else f" (bar {100 * BAR_SHARE:.0f} %)"
        print(
            f"{phase:>12}: {1000 * seconds / one.images:6.1f} ms per image, "
            f"{100 * seconds / total:4.1f} %{bar}"
        )
    rates = one.images / one.elapsed, two.images / two.elapsed
    print(
        f"one worker {rates[0]:.1f} images/s, two {rates[1]:.1f}: "
        f"{rates[1] / rates[0]:.2f} times (bar {BAR_SPEEDUP})"
    )


if __name__ == "__main__":
    main()
