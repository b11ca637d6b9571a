"""Peak memory of a worker that reads a large scene in tiles, and the seams of its mask.

Writes a scene and its mask as tiled TIFFs, strip by strip, makes a dataset of it with colour
features, fits a model and predicts the mask of the scene. The peak is the largest resident memory
of the worker's process since it started. Scores of the scene must be the means of those of its
tiles, weighted by their areas. Seams would show as more wrong pixels where tiles meet.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile
from common import Section, cluster, parser, seconds
from PIL import Image

from gpgc_dask import GPGC, PhotoFormat, Recipe, RunOptions, ingest, open_dataset, predict_masks
from gpgc_dask.core.tiles import cut_scene, split_address
from gpgc_dask.results.scenes import rank_scenes

BLOCK = 512
"""Side of the tiles of the files."""

NEAR = 8
"""Pixels on each side of an edge of tiles that are close to it."""


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


def seam_errors(mask: Path, side: int, tile: int, overlap: int) -> tuple[float, float]:
    """Shares of wrong pixels: within NEAR pixels of where tiles meet, and elsewhere."""
    Image.MAX_IMAGE_PIXELS = None
    painted = np.asarray(Image.open(mask)) > 0
    edges = {own.core[0] for _, _, own in cut_scene(side, side, tile, overlap)} - {0}
    near = np.zeros(side, dtype=bool)
    for edge in edges:
        near[edge - NEAR : edge + NEAR] = True
    wrong, pixels = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    places = ((y, x) for y in range(0, side, BLOCK) for x in range(0, side, BLOCK))
    for (y, x), block in zip(places, blocks(side, "mask"), strict=True):
        own = painted[y : y + BLOCK, x : x + BLOCK]
        differs = own != (block[: own.shape[0], : own.shape[1]] > 0)
        at = (near[y : y + BLOCK, None] | near[None, x : x + BLOCK]).astype(np.intp)
        wrong += np.bincount(at.ravel(), differs.ravel(), 2).astype(np.int64)
        pixels += np.bincount(at.ravel(), minlength=2)
    elsewhere, close = (wrong / pixels).tolist()
    return close, elsewhere


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
        tiles = [split_address(path)[1] for path in model.review_["image_path"]]
        areas = np.array([own.area for own in tiles])
        mean = np.average(model.review_["quality"], weights=areas)
        assert (areas.sum(), scenes["pixels"].iloc[0]) == (side**2, side**2)
        assert abs(mean - scenes["quality"].iloc[0]) < 1e-9
        with cluster(workers=1) as client:
            run = RunOptions(client=client)
            taken, _ = seconds(
                lambda: predict_masks(model, place / "images", place / "out", run=run)
            )
            rows.append(("`gpgc predict`", f"{taken:.0f}", f"{max(client.run(peak).values()):.2f}"))
        close, elsewhere = seam_errors(place / "out" / "scene.png", side, tile, args.overlap)
    section.add(
        f"A scene of {side:,}×{side:,} pixels in {report.images} tiles of at most {tile} pixels, "
        f"colour features, one worker. Quality of the scene, the mean of its tiles by area: "
        f"{scenes['quality'].iloc[0]:.4f}. Wrong pixels of the painted mask: {close:.3%} within "
        f"{NEAR} pixels of where tiles meet, {elsewhere:.3%} elsewhere."
    )
    section.table(("step", "seconds", "peak memory of the worker, GB"), rows)
    section.finish()


if __name__ == "__main__":
    main()
