"""Peak memory of a worker that reads a large scene in tiles.

Writes a scene and its mask as tiled TIFFs, strip by strip, makes a dataset of it with colour
features, fits a model and predicts the mask of the scene. The peak is the largest resident memory
of the worker's process since it started.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile
from common import Section, cluster, parser, seconds

from gpgc_dask import GPGC, PhotoFormat, Recipe, RunOptions, ingest, open_dataset, predict_masks
from gpgc_dask.results.scenes import rank_scenes

BLOCK = 512
"""Side of the tiles of the files."""


def blocks(side: int, kind: str) -> Iterator[np.ndarray]:
    """Tiles of the scene, or of its mask: rivers through fields."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:BLOCK, :BLOCK]
    for top in range(0, side, BLOCK):
        for left in range(0, side, BLOCK):
            river = np.sin((top + y) / 300 + np.sin((left + x) / 200)) > 0.6
            if kind == "mask":
                yield river.astype(np.uint8)
                continue
            noise = rng.integers(-12, 13, (BLOCK, BLOCK, 1), dtype=np.int16)
            colours = np.where(river[..., None], (40, 70, 140), (90, 130, 60)).astype(np.int16)
            yield (colours + noise).astype(np.uint8)


def write_scene(folder: Path, side: int) -> None:
    """images/scene.tif and masks/scene.tif, without either in memory."""
    for kind, depth in (("image", (3,)), ("mask", ())):
        path = folder / f"{kind}s" / "scene.tif"
        path.parent.mkdir(parents=True)
        tifffile.imwrite(
            path,
            blocks(side, kind),
            shape=(side, side, *depth),
            dtype="uint8",
            tile=(BLOCK, BLOCK),
            photometric="rgb" if depth else "minisblack",
            compression="zlib",
            compressionargs={"level": 1},
        )


def peak() -> float:
    """Largest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--size", type=int, default=20_000, help="side of the scene in pixels")
    arguments.add_argument("--tile", type=int, default=1024)
    arguments.add_argument("--overlap", type=int, default=64)
    args = arguments.parse_args()
    section = Section(args, __file__, "photos-and-masks.md")
    side, tile = (600, 256) if args.smoke else (args.size, args.tile)
    recipe = Recipe(backbone="colour", photos=PhotoFormat(tile=tile, overlap=args.overlap))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        write_scene(place, side)
        folders = (place / "images", place / "masks", place / "data.zarr")
        rows = []
        with cluster(workers=1) as client:
            run = RunOptions(client=client)
            taken, report = seconds(lambda: ingest(*folders, recipe=recipe, run=run))
            rows.append(("`gpgc ingest`", f"{taken:.0f}", f"{max(client.run(peak).values()):.2f}"))
        dataset = open_dataset(place / "data.zarr")
        model = GPGC(rounds=0).fit(dataset)
        model.review(dataset)
        scenes = rank_scenes(model.review_)
        with cluster(workers=1) as client:
            run = RunOptions(client=client)
            taken, _ = seconds(
                lambda: predict_masks(model, place / "images", place / "out", run=run)
            )
            rows.append(("`gpgc predict`", f"{taken:.0f}", f"{max(client.run(peak).values()):.2f}"))
    section.add(
        f"A scene of {side:,}×{side:,} pixels in {report.images} tiles of at most {tile} pixels, "
        f"colour features, one worker. Quality of the scene: {scenes['quality'].iloc[0]:.2f}."
    )
    section.table(("step", "seconds", "peak memory of the worker, GB"), rows)
    section.finish()


if __name__ == "__main__":
    main()
