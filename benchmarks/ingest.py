"""Time of an ingest: photos per second, share of the network, and phases.

Draws its own photos, or takes a folder with ``images`` and ``masks`` of the same names. Clusters
are warm: their start and the imports of their workers are not counted. The network alone is called
on one decoded photo after the other, in one thread. ``--other PYTHON`` also measures another
installation with its own defaults, in alternation. The achievable accuracy is the share of pixels
that are right if every superpixel has the class of most of its pixels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from common import Section, parser
from photos import save_set
from PIL import Image

from gpgc_dask.core.arrays import nearest_rows
from gpgc_dask.imaging.backbones import find_backbone
from gpgc_dask.imaging.photos import read_photo
from gpgc_dask.imaging.superpixels import class_counts

RATIO_TARGET, NETWORK_TARGET = 3.0, 1.6
WORKERS = (1, 2)

RUN = """
import json, sys, time
from pathlib import Path

def open_cluster(workers):
    try:
        from gpgc_dask.clusters.connect import connect
    except ImportError:  # the previous version
        from gpgc_dask.cluster import connect
    return connect(workers=workers)

def run(images, masks, target, backbone):
    try:
        from gpgc_dask import Recipe, RunOptions, ingest
        run = RunOptions(overwrite=True)
        return ingest(images, masks, target, recipe=Recipe(backbone=backbone), run=run)
    except ImportError:  # the previous version
        from gpgc_dask.imaging.ingesting import ingest
        return ingest(images, masks, target, backbone=backbone, overwrite=True)

if __name__ == "__main__":
    folder, target, workers, backbone = sys.argv[1:]
    with open_cluster(int(workers)):
        for _ in range(2):  # the first one starts and warms the workers
            start = time.perf_counter()
            report = run(folder + "/images", folder + "/masks", target, backbone)
            elapsed = time.perf_counter() - start
    seconds = {name: each / report.images for name, each in report.seconds.items()}
    print(json.dumps({"rate": report.images / elapsed, "seconds": seconds}))
"""


def measure(
    python: str, place: Path, folder: Path, target: Path, workers: int, backbone: str
) -> dict[str, Any]:
    """Photos per second of a warm ingest, and the seconds of its phases per photo."""
    (place / "run.py").write_text(RUN)
    command = [python, "-I", str(place / "run.py"), str(folder), str(target), str(workers)]
    done = subprocess.run(
        [*command, backbone], cwd=place, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def time_network(folder: Path, backbone: str) -> float:
    """Seconds per photo of the network alone; best of three rounds over some photos."""
    extractor = find_backbone(backbone)
    paths = sorted((folder / "images").iterdir())[:32]
    photos = [read_photo(path, 512).pixels for path in paths]
    extractor(photos[0])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for photo in photos:
            extractor(photo)
        times.append(time.perf_counter() - start)
    return min(times) / len(photos)


def achievable_accuracy(data: Path, folder: Path) -> float:
    """Share of pixels that are right if superpixels have the class of most of their pixels."""
    dataset = xr.open_zarr(data, consolidated=False)
    masks = {path.stem: path for path in (folder / "masks").iterdir()}
    right = total = 0
    columns = ("image_name", "segment_height", "segment_width")
    for photo, (name, height, width) in enumerate(
        zip(*(dataset[column].values.tolist() for column in columns), strict=True)
    ):
        mask = np.asarray(Image.open(masks[Path(name).stem]))
        values, codes = np.unique(mask, return_inverse=True)
        segments = dataset.segments[photo, :height, :width].values
        segments = segments[
            nearest_rows(mask.shape[0], height)[:, None], nearest_rows(mask.shape[1], width)
        ]
        n = int(segments.max()) + 1
        votes = class_counts(segments, n, codes.reshape(mask.shape).astype(np.uint8), values.size)
        right += int(votes[:, :-1].max(1).sum())
        total += mask.size
    return right / total


def report(
    section: Section, runs: dict[tuple[str, int], list[dict[str, Any]]], network: float
) -> None:
    """The tables of photos per second and of phases."""
    names = list(dict.fromkeys(name for name, _ in runs))
    best = {key: max(each, key=lambda run: run["rate"]) for key, each in runs.items()}
    rows = []
    for workers in WORKERS:
        rates = [best[name, workers]["rate"] for name in names]
        ratio = f"**{rates[0] / rates[1]:.2f}** (target {RATIO_TARGET:g})" if rates[1:] else ""
        share = workers / rates[0] / network
        cells = [f"{rate:.1f}" for rate in rates]
        rows.append((workers, *cells, ratio, f"**{share:.2f}** (target {NETWORK_TARGET:g})"))
    headings = {"this": "photos/s", "other": "photos/s, other installation"}
    section.table(
        ("workers", *(headings[name] for name in names), "ratio", "time ÷ network alone"), rows
    )
    section.add(f"Milliseconds per photo with one worker; the network alone: {1000 * network:.1f}.")
    phases = list(best["this", 1]["seconds"])
    section.table(
        ("installation", *phases),
        [
            (name, *(f"{1000 * best[name, 1]['seconds'][phase]:.1f}" for phase in phases))
            for name in names
        ],
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path, help="with images/ and masks/")
    arguments.add_argument("--backbone", default="lite0")
    arguments.add_argument("--other", metavar="PYTHON", help="program of another installation")
    args = arguments.parse_args()
    section = Section(args, __file__)
    n, height, width = (4, 60, 80) if args.smoke else (128, 375, 500)
    programs = {"this": sys.executable} | ({"other": args.other} if args.other else {})
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = args.folder.absolute() if args.folder else place / "drawn"
        if args.folder is None:
            save_set(folder, n, height, width)
        runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        targets = {name: place / f"{name}.zarr" for name in programs}
        network = np.inf
        for _ in range(args.repeats):
            for workers in WORKERS:
                for name, python in programs.items():
                    run = measure(python, place, folder, targets[name], workers, args.backbone)
                    runs.setdefault((name, workers), []).append(run)
            network = min(network, time_network(folder, args.backbone))
        accuracy = {name: achievable_accuracy(targets[name], folder) for name in programs}
    whose = args.folder.name if args.folder else f"{n} drawn, {width}×{height}"
    section.add(f"Photos: {whose}; backbone {args.backbone}; best of {args.repeats} runs.")
    report(section, runs, network)
    shares = ", ".join(f"{name} installation {share:.4f}" for name, share in accuracy.items())
    section.add(f"Achievable accuracy: {shares}.")
    section.finish()


if __name__ == "__main__":
    main()
