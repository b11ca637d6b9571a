"""Photos of 12 bits stored in 16: how well masks are ranked, by how the photos are stretched.

Takes a folder with ``images``, ``masks`` and ``truth``, or draws photos. The photos are written
again as TIFFs of 16 bits that hold values of 12 bits, as many cameras and microscopes do. For each
way to read them, a dataset is made and a model fitted, and the given masks are ranked in the
default order; those with an IoU below 0.5 with the true mask are bad.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import tifffile
from common import Section, parser
from photos import draw, save_set
from PIL import Image

from gpgc_dask import GPGC, PhotoFormat, Recipe, RunOptions, connect, ingest, open_dataset
from gpgc_dask.experiments.ranking_quality import TrueMasks, ranking_quality, true_iou

WAYS = {
    "8 bits": None,
    "12 bits in 16, stretched by the dataset (default)": PhotoFormat(),
    "12 bits in 16, `--stretch image`": PhotoFormat(stretch="image"),
    "12 bits in 16, `--stretch none`": PhotoFormat(stretch="none"),
}
"""{title: how the photos are read; None for those of 8 bits}."""

BITS = 12


def write_deep(images: Path, target: Path) -> None:
    """Write the photos of a folder again, as TIFFs of 12 bits in 16."""
    target.mkdir()
    for path in sorted(images.iterdir()):
        photo = np.asarray(Image.open(path).convert("RGB"))
        deep = np.rint(photo * ((2**BITS - 1) / 255)).astype(np.uint16)
        tifffile.imwrite(target / f"{path.stem}.tif", deep, photometric="rgb")


def measure(
    folder: Path, images: Path, target: Path, recipe: Recipe, run: RunOptions
) -> dict[str, float]:
    """Quality of the default order."""
    ingest(images, folder / "masks", target, recipe=recipe, run=run)
    dataset = open_dataset(target)
    model = GPGC().fit(dataset)
    table = model.review(dataset).sort_index()
    iou = true_iou(dataset, TrueMasks(dataset, folder / "truth"))
    order = [table["image"].tolist().index(name) for name in dataset["image_name"].values]
    return ranking_quality(table["quality"].to_numpy()[order], iou)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path, help="with images/, masks/ and truth/")
    args = arguments.parse_args()
    section = Section(args, __file__, "photos-and-masks.md")
    rows, aurocs = [], {}
    with tempfile.TemporaryDirectory() as temporary, connect() as client:
        place = Path(temporary)
        folder = args.folder or place / "drawn"
        recipe = Recipe()
        if args.folder is None:
            recipe = Recipe(backbone="colour", superpixels=30)
            save_set(folder, 12, 90, 120, wrong_share=0.3)
            (folder / "truth").mkdir()
            save_truth(folder)
        write_deep(folder / "images", place / "deep")
        for number, (title, photos) in enumerate(WAYS.items()):
            images = folder / "images" if photos is None else place / "deep"
            own = recipe if photos is None else recipe.with_photos(photos)
            found = measure(
                folder, images, place / f"{number}.zarr", own, RunOptions(client=client)
            )
            aurocs[title] = found["auroc"]
            print(f"{title}: AUROC {found['auroc']:.3f}", file=sys.stderr, flush=True)
            rows.append((title, f"{found['auroc']:.3f}", f"{found['kendall']:.3f}"))
        n = len(list((folder / "images").iterdir()))
    section.add(f"{n} photos ({'drawn' if args.folder is None else args.folder.parent.name})")
    section.table(("photos", "AUROC of bad masks", "Kendall τ with the true IoU"), rows)
    plain, stretched, *_ = aurocs.values()
    section.add(f"Stretched by the dataset, AUROC differs by {abs(plain - stretched):.4f}.")
    section.finish()


def save_truth(folder: Path) -> None:
    """True masks of the photos that :func:`save_set` draws."""
    for number, path in enumerate(sorted((folder / "images").iterdir())):
        _, mask = draw(number, 90, 120)
        Image.fromarray(mask * np.uint8(255)).save(folder / "truth" / f"{path.stem}.png")


if __name__ == "__main__":
    main()
