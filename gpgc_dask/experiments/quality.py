"""How well a score ranks masks whose true quality is known."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.core.errors import MissingFileError
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.files import by_stem, find_images
from gpgc_dask.imaging.given_masks import GivenMasks
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, hush, read_orientation

__all__ = ["MEASURES", "TrueMasks", "mask_iou", "ranking_quality", "true_iou"]

BAD_BELOW = 0.5
"""Masks of a smaller IoU with the truth are bad ones."""

WORST = 0.25
"""Share of the images that counts as the worst of a ranking."""

MEASURES = ("spearman", "kendall", "auroc", "auprc", "precision_worst_quarter")


def ranking_quality(score: Array, iou: Array) -> dict[str, float]:
    """How well ``score`` (J,), high = reliable, ranks masks of true quality ``iou`` (J,).

    spearman, kendall : rank correlation with the IoU
    auroc, auprc : of telling masks of IoU < 0.5, the bad ones, from the others
    precision_worst_quarter : share of bad masks among the quarter with the lowest scores

    NaN where a measure is not defined: one image, no bad mask or none but bad ones, equal scores.
    """
    badness = -np.nan_to_num(score, nan=-np.inf)
    badness = np.where(np.isfinite(badness), badness, _above(badness))
    bad = iou < BAD_BELOW
    found = dict.fromkeys(MEASURES, float("nan"))
    if bad.size > 1 and np.ptp(badness) > 0 and np.ptp(iou) > 0:
        found["spearman"] = float(spearmanr(-badness, iou).statistic)
        found["kendall"] = float(kendalltau(-badness, iou).statistic)
    if bad.any() and not bad.all():
        found["auroc"] = float(roc_auc_score(bad, badness))
        found["auprc"] = float(average_precision_score(bad, badness))
    if bad.size:
        worst = np.argsort(-badness, kind="stable")[: max(round(WORST * bad.size), 1)]
        found["precision_worst_quarter"] = float(bad[worst].mean())
    return found


def _above(values: Array) -> float:
    """A number above all finite ones: images that nothing is known of are the worst."""
    finite = values[np.isfinite(values)]
    return float(finite.max()) + 1.0 if finite.size else 0.0


class TrueMasks:
    """True masks of a dataset's photos, in a folder of their own, named as the photos."""

    def __init__(
        self, dataset: xr.Dataset, folder: str | PathLike[str], fmt: MaskFormat | None = None
    ) -> None:
        stored = dataset.attrs["source"]["mask_format"]
        self.format = fmt or MaskFormat.of_json(stored)
        root = Path(folder).expanduser()
        files = by_stem(find_images(root))
        names = text_values(dataset["image_name"]).tolist()
        stems = [str(Path(name).with_suffix("")) for name in names]
        missing = [name for name, stem in zip(names, stems, strict=True) if stem not in files]
        if missing:
            raise MissingFileError(
                f"{folder} lacks the true masks of {len(missing)} of {len(names)} photos, such as "
                f"{missing[0]}: pass a folder with a mask for every photo"
            )
        self.paths = [str(root / files[stem][0]) for stem in stems]

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """(height, width) class codes of the true mask of a photo."""
        return read_mask(self.paths[photo], self.format, orientation)


def mask_iou(given: Codes, truth: Codes, n_classes: int) -> float:
    """IoU of two masks: of class 1 where there are two, else its mean over the classes that occur.

    Pixels that either calls void do not count; 1 where neither has any of the class.
    """
    known = (given != VOID) & (truth != VOID)
    classes = [1] if n_classes == 2 else range(n_classes)
    found = []
    for code in classes:
        first, second = (given == code) & known, (truth == code) & known
        union = np.count_nonzero(first | second)
        if union:
            found.append(np.count_nonzero(first & second) / union)
    return float(np.mean(found)) if found else 1.0


def true_iou(dataset: xr.Dataset, truth: TrueMasks) -> Array:
    """(photos,) IoU of each photo's given mask with the true one, in pixels."""
    hush()
    given = GivenMasks.of(dataset)
    paths = text_values(dataset["image_path"]).tolist()
    n_classes = len(dataset.attrs["classes"])
    found = []
    for photo, path in enumerate(paths):
        orientation = read_orientation(path)
        mine, true = given.codes(photo, orientation), truth.codes(photo, orientation)
        found.append(mask_iou(mine, true, n_classes))
    return np.array(found)


def quality_table(scores: dict[str, Array], iou: Array, empty: Mask) -> pd.DataFrame:
    """A line a rule and set of images: all of them, and those whose mask is not empty."""
    lines = []
    for name, score in scores.items():
        for images, chosen in (("all", np.ones(iou.size, dtype=bool)), ("not empty", ~empty)):
            found = ranking_quality(score[chosen], iou[chosen])
            lines.append(
                {"rule": name, "images": images, "n": int(chosen.sum())}
                | {"bad": int((iou[chosen] < BAD_BELOW).sum())}
                | found
            )
    return pd.DataFrame(lines)
