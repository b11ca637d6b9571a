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
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.files import by_stem, find_images
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, read_orientation, silence_pillow

__all__ = ["MEASURES", "TrueMasks", "mask_iou", "quality_table", "ranking_quality", "true_iou"]

BAD_BELOW = 0.5
"""Masks are bad if their IoU with the truth is below this."""

WORST = 0.25
"""Share of the images that counts as the worst."""

MEASURES = ("spearman", "kendall", "auroc", "auprc", "precision_worst_quarter")


def ranking_quality(score: Array, iou: Array) -> dict[str, float]:
    """How well a score ranks masks whose true quality is known.

    Parameters
    ----------
    score : (J,) array
        Score of each mask, high = reliable. NaN counts as the worst.
    iou : (J,) array
        IoU of each mask with the true one. Masks below 0.5 are bad.

    Returns
    -------
    dict
        ``spearman`` and ``kendall``, rank correlations with the IoU; ``auroc`` and ``auprc`` of
        separating bad masks from the others; ``precision_worst_quarter``, the share of bad masks
        in the quarter with the lowest scores. NaN if a measure is not defined: one image, only
        good or only bad masks, equal scores.
    """
    badness = -np.nan_to_num(score, nan=-np.inf)
    badness = np.where(np.isfinite(badness), badness, _above(badness))
    bad = iou < BAD_BELOW
    quality = dict.fromkeys(MEASURES, float("nan"))
    if bad.size > 1 and np.ptp(badness) > 0 and np.ptp(iou) > 0:
        quality["spearman"] = float(spearmanr(-badness, iou).statistic)
        quality["kendall"] = float(kendalltau(-badness, iou).statistic)
    if bad.any() and not bad.all():
        quality["auroc"] = float(roc_auc_score(bad, badness))
        quality["auprc"] = float(average_precision_score(bad, badness))
    if bad.size:
        worst = np.argsort(-badness, kind="stable")[: max(round(WORST * bad.size), 1)]
        quality["precision_worst_quarter"] = float(bad[worst].mean())
    return quality


def _above(values: Array) -> float:
    """A number above all finite ones."""
    finite = values[np.isfinite(values)]
    return float(finite.max()) + 1.0 if finite.size else 0.0


class TrueMasks:
    """True masks of the photos of a dataset, in a folder, named as the photos.

    Parameters
    ----------
    dataset : xarray.Dataset
    folder : path
        Folder with one mask per photo.
    fmt : MaskFormat, optional
        How the masks are read. Default: as at ingest.
    """

    def __init__(
        self, dataset: xr.Dataset, folder: str | PathLike[str], fmt: MaskFormat | None = None
    ) -> None:
        stored = dataset.attrs["source"]["mask_format"]
        self.format = fmt or MaskFormat.from_json(stored)
        root = Path(folder).expanduser()
        files = by_stem(find_images(root))
        names = text_values(dataset["image_name"]).tolist()
        stems = [str(Path(name).with_suffix("")) for name in names]
        missing = [name for name, stem in zip(names, stems, strict=True) if stem not in files]
        if missing:
            raise MissingFileError(
                f"{folder} lacks the true masks of {len(missing)} of {len(names)} photos, such as "
                f"{missing[0]}: use a folder with one mask per photo"
            )
        self.paths = [str(root / files[stem][0]) for stem in stems]

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """(height, width) class codes of the true mask of a photo."""
        return read_mask(self.paths[photo], self.format, orientation)


def mask_iou(given: Codes, truth: Codes, n_classes: int) -> float:
    """IoU of two masks.

    Parameters
    ----------
    given, truth : (height, width) array
        Class codes. Pixels that are void in either mask do not count.
    n_classes : int
        Number of classes.

    Returns
    -------
    float
        IoU of class 1 if there are two classes, else the mean over the classes that occur. 1 if
        the class occurs in neither mask.
    """
    known = (given != VOID) & (truth != VOID)
    classes = [1] if n_classes == 2 else range(n_classes)
    values = []
    for code in classes:
        first, second = (given == code) & known, (truth == code) & known
        union = np.count_nonzero(first | second)
        if union:
            values.append(np.count_nonzero(first & second) / union)
    return float(np.mean(values)) if values else 1.0


def true_iou(dataset: xr.Dataset, truth: TrueMasks) -> Array:
    """IoU of the given mask of each photo with the true one, in pixels.

    Parameters
    ----------
    dataset : xarray.Dataset
    truth : TrueMasks

    Returns
    -------
    (photos,) array
    """
    silence_pillow()
    given = DatasetMasks.from_dataset(dataset)
    paths = text_values(dataset["image_path"]).tolist()
    n_classes = len(dataset.attrs["classes"])
    values = []
    for photo, path in enumerate(paths):
        orientation = read_orientation(path)
        mine, true = given.codes(photo, orientation), truth.codes(photo, orientation)
        values.append(mask_iou(mine, true, n_classes))
    return np.array(values)


def quality_table(scores: dict[str, Array], iou: Array, empty: Mask) -> pd.DataFrame:
    """Quality of several scores.

    Parameters
    ----------
    scores : dict
        {rule: (photos,) scores}.
    iou : (photos,) array
        IoU of each mask with the true one.
    empty : (photos,) array of bool
        Whether the given mask is empty.

    Returns
    -------
    pandas.DataFrame
        One row per rule for all images, and one for those whose mask is not empty.
    """
    lines = []
    for name, score in scores.items():
        for images, chosen in (("all", np.ones(iou.size, dtype=bool)), ("not empty", ~empty)):
            lines.append(
                {"rule": name, "images": images, "n": int(chosen.sum())}
                | {"bad": int((iou[chosen] < BAD_BELOW).sum())}
                | ranking_quality(score[chosen], iou[chosen])
            )
    return pd.DataFrame(lines)
