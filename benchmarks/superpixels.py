"""Size, number and parameters of SLIC superpixels: their cost, and what they can represent.

Takes a folder with ``images`` and ``masks`` (values of all classes, `--void` for others), or draws
photos. Superpixels are computed on each photo at the size that the network sees, and reduced to
half of that: by scikit-image's ``slic`` on all pixels, and as in an ingest. Every superpixel is
given the class of most of its pixels in the mask: the share of pixels that are right then is a
bound for every model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from common import Section, parser
from photos import save_set
from PIL import Image
from skimage.segmentation import slic

from gpgc_dask.imaging.features import REDUCTION, SUPERPIXELS, Recipe
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.masks import Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Pixels, read_photo, reduce_photo
from gpgc_dask.imaging.slic import Segments, segment
from gpgc_dask.imaging.superpixels import class_counts

NUMBERS, COMPACTNESS, SIGMAS = (150, 300, 450, 600), (10.0, 20.0), (1.0, 0.5)
OURS, LIBRARY = "sample", "all pixels"


@dataclass(frozen=True)
class Setting:
    """How superpixels are computed: on photos whose longest side is at most ``side`` pixels."""

    side: int
    superpixels: int
    compactness: float
    sigma: float
    by: str = OURS

    def segment(self, pixels: Pixels) -> Segments:
        """The map of superpixels of a photo at the setting's size."""
        reduced = reduce_photo(pixels, self.side)
        if self.by == OURS:
            return segment(reduced, self.superpixels, self.compactness, self.sigma)
        labels = slic(
            reduced,
            n_segments=self.superpixels,
            compactness=self.compactness,
            sigma=self.sigma,
            start_label=0,
            channel_axis=-1,
        )
        numbers = np.unique(labels, return_inverse=True)[1]
        return numbers.reshape(labels.shape).astype(np.uint16)


@dataclass
class Score:
    """Sums over photos."""

    seconds: float = 0.0
    superpixels: int = 0
    right: int = 0
    pixels: int = 0

    def add(self, pixels: Pixels, codes: Codes, n_classes: int, setting: Setting) -> None:
        start = time.process_time()
        segments = setting.segment(pixels)
        self.seconds += time.process_time() - start
        n = int(segments.max()) + 1
        votes = class_counts(segments, n, codes, n_classes)[:, :-1]
        self.superpixels += n
        self.right += int(votes.max(1).sum())
        self.pixels += int(votes.sum())


def read_pairs(folder: Path, void: list[int], limit: int) -> Iterator[tuple[Pixels, Codes, int]]:
    """(photo, class codes of its mask, number of classes), evenly spread over the folder."""
    masks = {path.stem: path for path in sorted((folder / "masks").iterdir())}
    names = find_images(folder / "images")
    names = [names[i] for i in np.linspace(0, len(names) - 1, min(limit, len(names))).astype(int)]
    values = {v for name in names for v in np.unique(Image.open(masks[Path(name).stem])).tolist()}
    classes = tuple((value, str(value)) for value in sorted(values - set(void)))
    fmt = MaskFormat(classes=classes, void=tuple(void))
    for name in names:
        photo = read_photo(folder / "images" / name, Recipe.side)
        yield photo.pixels, read_mask(masks[Path(name).stem], fmt, photo.orientation), len(classes)


def measure(folder: Path, void: list[int], limit: int) -> tuple[int, dict[Setting, Score]]:
    """Number of photos, and the score of each setting."""
    sides = (Recipe.side, Recipe.side // REDUCTION)
    usual = (Recipe.compactness,), (Recipe.sigma,)
    grids = [
        *product(sides, NUMBERS, *usual, (LIBRARY,)),
        *product(sides[1:], NUMBERS, COMPACTNESS, SIGMAS, (OURS,)),
    ]
    scores = {Setting(*values): Score() for values in grids}
    photos = 0
    for pixels, codes, n_classes in read_pairs(folder, void, limit):
        photos += 1
        for setting, score in scores.items():
            score.add(pixels, codes, n_classes, setting)
    return photos, scores


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path, help="with images/ and masks/")
    arguments.add_argument("--void", type=int, nargs="*", default=[], help="values of the masks")
    arguments.add_argument("--name", help="description of the photos")
    arguments.add_argument("--limit", type=int, default=60, help="maximum number of photos")
    args = arguments.parse_args()
    section = Section(args, __file__)
    n, height, width = (2, 225, 300) if args.smoke else (16, 375, 500)
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or Path(place) / "drawn"
        if args.folder is None:
            save_set(folder, n, height, width)
        photos, scores = measure(folder, args.void, args.limit)
    drawn = f"drawn, {width}×{height}"
    name = args.name or (args.folder.name if args.folder else drawn)
    section.add(f"{photos} photos ({name}), CPU time of one core")
    section.table(
        (
            "clusters of",
            "longest side",
            "asked",
            "compactness",
            "sigma",
            "ms per photo",
            "superpixels",
            "right",
        ),
        [
            (
                setting.by,
                setting.side,
                setting.superpixels,
                f"{setting.compactness:g}",
                f"{setting.sigma:g}",
                f"{1000 * score.seconds / photos:.0f}",
                f"{score.superpixels / photos:.0f}",
                f"{score.right / score.pixels:.3f}",
            )
            for setting, score in scores.items()
        ],
    )
    default = Setting(Recipe.side // REDUCTION, SUPERPIXELS, Recipe.compactness, Recipe.sigma, OURS)
    ratios = [
        scores[replace(default, side=side, by=LIBRARY)].seconds / scores[default].seconds
        for side in (default.side, Recipe.side)
    ]
    section.add(
        f"Default: {default}; {ratios[0]:.1f} times faster than clusters of all pixels at this "
        f"size, {ratios[1]:.1f} times faster than at full size"
    )
    section.finish()


if __name__ == "__main__":
    main()
