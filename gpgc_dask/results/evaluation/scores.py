"""Scores of predicted masks, and the test that compares two sets of predictions."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any, Literal

import numpy as np

from gpgc_dask.core.arrays import Array
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.metrics import LEVEL, average_class_accuracy, signed_rank
from gpgc_dask.core.progress import Listener, work_listener
from gpgc_dask.imaging.files import printable
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.results.evaluation.pairs import MaskPairs
from gpgc_dask.results.evaluation.pixels import Counts, count_pixels

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]


@dataclass(frozen=True)
class ImageScore:
    """Score of an image.

    Attributes
    ----------
    image : str
        Path of the true mask within its folder, with forward slashes.
    average_class_accuracy : float or None
        Average over the classes of the true mask; None if it is all void.
    """

    image: str
    average_class_accuracy: float | None


@dataclass(frozen=True)
class Scores:
    """Scores of a folder of predictions. Accuracies are shares of pixels, over all images.

    Attributes
    ----------
    average_class_accuracy : float
        Share of the pixels of each class that are predicted right, averaged over the classes that
        occur.
    foreground_accuracy : float or None
        Average over all classes but the background; None if there are no such pixels.
    background_accuracy : float or None
        Accuracy of the class with value 0, or of the first class if none has that value; None if
        there are no such pixels.
    class_accuracy : dict
        {class: share}, None for a class that does not occur.
    images : int
        Number of true masks.
    ignored : int
        Number of predictions without a true mask.
    per_image : list of ImageScore
        Scores of the images.
    """

    average_class_accuracy: float
    foreground_accuracy: float | None
    background_accuracy: float | None
    class_accuracy: dict[str, float | None]
    images: int
    ignored: int
    per_image: list[ImageScore]


@dataclass(frozen=True)
class Evaluation(Scores):
    """Scores of predictions, and their comparison with a second set of predictions.

    The comparison uses the average class accuracies of the images. Its attributes are None without
    a second set.

    Attributes
    ----------
    against : Scores or None
        Scores of the second set.
    wilcoxon_p : float or None
        Two-sided p value of the Wilcoxon signed-rank test; 1 if no image differs.
    significant : bool or None
        Whether p < 0.001, the level of the paper.
    better : {"predicted", "against"} or None
        The set with the larger sum of ranks; None if they are equal.
    images_better, images_worse : int or None
        Number of images on which the first set is better or worse than the second.
    too_few : bool or None
        Whether so few images differ that p could not be below 0.001 in any case.
    """

    against: Scores | None = None
    wilcoxon_p: float | None = None
    significant: bool | None = None
    better: Literal["predicted", "against"] | None = None
    images_better: int | None = None
    images_worse: int | None = None
    too_few: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        Returns
        -------
        dict
            Without the comparison if there is no second set.
        """
        values = asdict(self)
        if self.against is not None:
            return values
        return {key: value for key, value in values.items() if key in Scores.__dataclass_fields__}

    def to_csv(self) -> str:
        """The scores of the images as CSV.

        Returns
        -------
        str
            Columns image, average_class_accuracy and, with a second set, against. Images that are
            all void have no value.
        """
        columns = ["image", "average_class_accuracy"]
        rows = [[score.image, score.average_class_accuracy] for score in self.per_image]
        if self.against is not None:
            columns.append("against")
            for row, other in zip(rows, self.against.per_image, strict=True):
                row.append(other.average_class_accuracy)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        return text.getvalue()


def evaluate(
    predicted: str | PathLike[str],
    true: str | PathLike[str],
    *,
    against: str | PathLike[str] | None = None,
    foreground: Sequence[int] = (),
    classes: Mapping[int, str] | None = None,
    void: Sequence[int] = (),
    threshold: float | None = None,
    mask_suffix: str = "",
    progress: bool | Listener | None = None,
) -> Evaluation:
    """Compare a folder of predicted masks with a folder of true ones, pixel by pixel.

    Masks of the same name in the same subfolder belong together; their endings may differ. Every
    true mask needs a prediction. Void pixels of true masks do not count.

    Parameters
    ----------
    predicted : path
        Folder of predictions. They have the values of ``classes`` if these are given, else 0 for
        background and one other value for foreground.
    true : path
        Folder of true masks.
    against : path, optional
        A second folder of predictions for the same true masks, to compare the first with.
    foreground, classes, void, threshold
        How true masks are read, see :class:`~gpgc_dask.imaging.masks.MaskFormat`.
    mask_suffix : str, default ""
        Text that the names of true masks have after those of the predictions. Other files in the
        folder are ignored.
    progress : bool or callable, optional
        True shows a live line in a notebook and prints lines to stderr elsewhere. A callable is
        called with a :class:`~gpgc_dask.core.progress.Progress` after each image.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from gpgc_dask import evaluate
    >>> result = evaluate("predicted-clean", "true-masks", against="predicted-all")
    >>> result.average_class_accuracy, result.better, result.significant
    (1.0, 'predicted', False)
    """
    fmt = _mask_format(foreground, classes, void, threshold)
    rivals = [predicted] if against is None else [predicted, against]
    pairs = MaskPairs.find(true, rivals, mask_suffix)
    with warnings.catch_warnings(), work_listener(progress) as listener:
        silence_pillow()
        counts = count_pixels(pairs.items, fmt, listener)
    if not any(totals.any() for totals, _ in counts):
        raise InputError(
            f"all pixels of the true masks in {true} are void: there is nothing to compare"
        )
    scores = [_scores(counts, pairs, fmt, rival) for rival in range(len(rivals))]
    result = Evaluation(**vars(scores[0]))
    return result if against is None else replace(result, **_compare(*scores))


def _mask_format(
    foreground: Sequence[int],
    classes: Mapping[int, str] | None,
    void: Sequence[int],
    threshold: float | None,
) -> MaskFormat:
    fmt = MaskFormat(tuple(foreground), tuple((classes or {}).items()), tuple(void), threshold)
    if len(set(fmt.names)) < len(fmt.names):
        raise InputError(f"classes need different names, got {', '.join(fmt.names)}")
    return fmt


def _scores(counts: list[Counts], pairs: MaskPairs, fmt: MaskFormat, rival: int) -> Scores:
    """Scores of one of the sets of predictions."""
    hits = np.array([each[1][rival] for each in counts])  # (images, classes)
    totals = np.array([each[0] for each in counts])
    names = [printable(item.name) for item in pairs.items]
    right, of = hits.sum(0), totals.sum(0)
    background = np.arange(of.size) == (fmt.background or 0)
    return Scores(
        average_class_accuracy=average_class_accuracy(right, of),
        foreground_accuracy=_average(right[~background], of[~background]),
        background_accuracy=_average(right[background], of[background]),
        class_accuracy={
            name: _average(right[[code]], of[[code]]) for code, name in enumerate(fmt.names)
        },
        images=len(names),
        ignored=pairs.extra[rival],
        per_image=[
            ImageScore(*pair) for pair in zip(names, map(_average, hits, totals), strict=True)
        ],
    )


def _average(hits: Array, totals: Array) -> float | None:
    return average_class_accuracy(hits, totals) if totals.any() else None


def _compare(ours: Scores, theirs: Scores) -> dict[str, Any]:
    """The comparison of two sets of predictions, as attributes of an :class:`Evaluation`."""
    mine, other = (
        np.array([score.average_class_accuracy for score in side.per_image], dtype=np.float64)
        for side in (ours, theirs)
    )
    test = signed_rank(mine, other)
    return {
        "against": theirs,
        "wilcoxon_p": test.p,
        "significant": test.significant,
        "better": None if test.lean == 0 else "predicted" if test.lean > 0 else "against",
        "images_better": test.better,
        "images_worse": test.worse,
        "too_few": test.too_few,
    }
