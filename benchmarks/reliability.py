"""Whether probabilities mean what they say, on photos with true masks: docs/reliability.png.

Takes the folder of ``ranking.py``, or draws small sets. Its street scenes and medical photos are
used with their true masks. All probabilities are of models that never saw the image: those of the
likelihood, which the package had before, and calibrated ones.
"""

from __future__ import annotations

import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from common import DOCS, Section, parser
from ranking import Setting, load_set
from ranking_sets import CLEAN, SETS, draw_folder

from gpgc_dask import GPGC, Recipe, connect
from gpgc_dask.data.training import training_arrays
from gpgc_dask.models.decisions import class_probabilities
from gpgc_dask.models.review import leave_out_values

BINS = 10
PICTURE = DOCS / "reliability.png"
KINDS = ("likelihood", "calibrated")


def curve(
    shares: np.ndarray, codes: np.ndarray, area: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean probability and observed frequency per bin, and the mean absolute difference.

    Every class of every row is one statement, with the weight of the row's pixels.
    """
    right = np.eye(shares.shape[1])[codes].ravel()
    weight = np.repeat(area, shares.shape[1])
    stated = shares.ravel()
    bins = np.minimum((stated * BINS).astype(np.intp), BINS - 1)
    total = np.bincount(bins, weight, BINS)
    used = total > 0
    mean = np.bincount(bins, weight * stated, BINS)[used] / total[used]
    seen = np.bincount(bins, weight * right, BINS)[used] / total[used]
    return mean, seen, float(np.average(np.abs(mean - seen), weights=total[used]))


def curves(name: str, setting: Setting) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """The curve of each kind of probability on a set with true masks."""
    dataset, _, _ = load_set(name, SETS[name], 0, setting, clean=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPGC().fit(dataset)
        model.review(dataset)
    arrays = training_arrays(dataset)
    area = arrays.area * (arrays.weight > 0)
    codes = np.searchsorted(model.classes_, arrays.y)
    values = leave_out_values(model, dataset)
    options = {"likelihood": None, "calibrated": model.calibration_}
    n_classes, noise = model.classes_.size, model.typical_noise_
    return {
        kind: curve(class_probabilities(values, 0.0, noise, n_classes, used), codes, area)
        for kind, used in options.items()
    }


def draw(found: dict[str, dict[str, tuple[np.ndarray, np.ndarray, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 3.8), squeeze=False)
    for ax, (name, own) in zip(axes[0], found.items(), strict=True):
        ax.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="ideal")
        for kind, colour in zip(KINDS, ("#d1495b", "#2e6f9e"), strict=True):
            mean, seen, _ = own[kind]
            ax.plot(mean, seen, "o-", color=colour, label=kind)
        ax.set(title=SETS[name].title, xlabel="stated probability", xlim=(0, 1), ylim=(0, 1))
    axes[0][0].set_ylabel("share of pixels of the class")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--cache", type=Path, help="keep datasets here")
    args = options.parse_args()
    section = Section(args, __file__, "how-it-works.md")
    with tempfile.TemporaryDirectory() as temporary:
        place, recipe, cluster = Path(temporary), Recipe(), connect
        folder = args.folder or place / "sets"
        if args.folder is None:
            draw_folder(folder)
            recipe, cluster = Recipe(backbone="colour", superpixels=30), nullcontext
        setting = Setting(folder, args.cache or place, recipe, False, cluster)
        found = {name: curves(name, setting) for name in CLEAN}
        draw(found, PICTURE if args.write else place / "reliability.png")
    section.add(
        "Mean absolute difference between stated probability and observed share, over ten bins, "
        "in percentage points:"
    )
    rows = [
        (SETS[name].title, *(f"{100 * own[kind][2]:.1f}" for kind in KINDS))
        for name, own in found.items()
    ]
    section.table(("set, true masks", *KINDS), rows)
    section.finish()


if __name__ == "__main__":
    main()
