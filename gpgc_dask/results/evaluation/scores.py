"""Scores of predicted masks, and the test that compares two sets of predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any, Literal

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.metrics import LEVEL, signed_rank
from gpgc_dask.core.progress import Listener
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.results.evaluation.measures import (
    ClassScore,
    average_accuracy,
    class_accuracy,
    class_dice,
    class_iou,
    class_scores,
    cohen_kappa,
    mean,
    number,
    pixel_accuracy,
)
from gpgc_dask.results.evaluation.pairs import MaskPairs
from gpgc_dask.results.evaluation.pixels import MaskReader
from gpgc_dask.results.evaluation.totals import ImageTotals, Totals, count_totals, mask_format

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]


@dataclass(frozen=True)
class ImageScore:
    """Scores of an image. They are None where no pixel counts.

    Attributes
    ----------
    image : str
        Path of the true mask within its folder, with forward slashes.
    average_class_accuracy : float or None
        Average over the classes of the true mask; None if it is all void.
    pixel_accuracy : float or None
        Share of the pixels that are predicted right.
    mean_iou, mean_dice : float or None
        Means over the classes that occur in the true mask or in the prediction.
    boundary : float or None
        Boundary F-score, averaged over the classes.
    iou : dict
        {class: IoU} of the classes that occur in the true mask or in the prediction.
    """

    image: str
    average_class_accuracy: float | None
    pixel_accuracy: float | None
    mean_iou: float | None
    mean_dice: float | None
    boundary: float | None
    iou: dict[str, float]

    @classmethod
    def of(cls, image: ImageTotals) -> ImageScore:
        """The scores of the counts of an image."""
        return cls(
            image.name,
            average_accuracy(image.confusion),
            pixel_accuracy(image.confusion),
            image.mean_iou,
            image.mean_dice,
            image.boundary,
            image.iou,
        )


@dataclass(frozen=True)
class Scores:
    """Scores of a folder of predictions, from the pixels of all images together.

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
    pixel_accuracy : float
        Share of all pixels that are predicted right.
    mean_iou, mean_dice : float
        Means over the classes that occur in true masks or predictions.
    kappa : float or None
        Cohen's kappa of all pixels; None if all pixels have one class.
    boundary : float or None
        Boundary F-score, averaged over the classes; None without a tolerance.
    boundary_tolerance : float, str or None
        The tolerance.
    classes : dict
        {class: :class:`~gpgc_dask.results.evaluation.measures.ClassScore`}.
    confusion : list of list of int
        Number of pixels by true class (rows) and predicted class (columns), in the order of
        ``classes``.
    images : int
        Number of true masks.
    ignored : int
        Number of predictions without a true mask.
    void_predicted : int
        Number of pixels that do not count because a prediction is void there.
    per_image : list of ImageScore
        Scores of the images.
    """

    average_class_accuracy: float
    foreground_accuracy: float | None
    background_accuracy: float | None
    class_accuracy: dict[str, float | None]
    pixel_accuracy: float | None
    mean_iou: float | None
    mean_dice: float | None
    kappa: float | None
    boundary: float | None
    boundary_tolerance: float | str | None
    classes: dict[str, ClassScore]
    confusion: list[list[int]]
    images: int
    ignored: int
    void_predicted: int
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
            Columns image, average_class_accuracy, with a second set against (its average class
            accuracy), pixel_accuracy, mean_iou, mean_dice, boundary and, for each class, iou:CLASS.
            Scores that do not exist have no value.
        """
        names = list(self.classes)
        columns = ["image", "average_class_accuracy"]
        rows: list[list[Any]] = [[one.image, one.average_class_accuracy] for one in self.per_image]
        if self.against is not None:
            columns.append("against")
            for row, other in zip(rows, self.against.per_image, strict=True):
                row.append(other.average_class_accuracy)
        scores = ["pixel_accuracy", "mean_iou", "mean_dice", "boundary"]
        columns += [*scores, *(f"iou:{name}" for name in names)]
        for row, one in zip(rows, self.per_image, strict=True):
            row += [getattr(one, score) for score in scores]
            row += [one.iou.get(name) for name in names]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        return text.getvalue()


def evaluate(
    predicted: str | PathLike[str],
    true: str | PathLike[str],
    *,
    against: str | PathLike[str] | None = None,
    foreground: Sequence[int] = (),
    classes: Mapping[int, str] | str | None = None,
    void: Sequence[int] = (),
    threshold: float | None = None,
    invert: bool = False,
    mask_suffix: str = "",
    photo_suffix: str = "",
    same_values: bool = False,
    boundary: float | str | None = None,
    progress: bool | Listener | None = None,
) -> Evaluation:
    """Compare a folder of predicted masks with a folder of true ones, pixel by pixel.

    Masks of the same name in the same subfolder belong together; their endings may differ. Every
    true mask needs a prediction. Pixels that are void in the true mask or in one of its
    predictions do not count.

    Parameters
    ----------
    predicted : path
        Folder of predictions. They have the values of ``classes`` if these are given, else 0 for
        background and one other value for foreground.
    true : path
        Folder of true masks.
    against : path, optional
        A second folder of predictions for the same true masks, to compare the first with.
    foreground, classes, void, threshold, invert
        How true masks are read, see :class:`~gpgc_dask.MaskOptions`.
    mask_suffix : str, default ""
        Text that the names of true masks have after those of the predictions. Other files in the
        folder are ignored.
    photo_suffix : str, default ""
        Text that the names of predictions have after those of the true masks.
    same_values : bool, default False
        Whether predictions are read as the true masks are. By default they have the values of
        ``classes`` and ``void``, or, without ``classes``, 0 and one other value.
    boundary : float or str, optional
        Tolerance of the boundary F-score: a number of pixels, or a share of the diagonal of the
        image, such as "0.75%". Without it the score is not computed.
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
    fmt = mask_format(foreground, classes, void, threshold, invert=invert)
    rivals = [predicted] if against is None else [predicted, against]
    pairs = MaskPairs.find(true, rivals, mask_suffix, photo_suffix)
    readers = MaskReader("true mask", fmt), _prediction_reader(fmt, same_values)
    totals, images = count_totals(pairs.items, readers, ImageScore.of, boundary, progress)
    if not totals[0].confusion.any():
        where = "all pixels" if not any(one.void for one in totals) else "all other pixels"
        raise InputError(
            f"{where} of the true masks in {true} are void: there is nothing to compare"
        )
    scores = [
        _scores(total, own, ignored, boundary, fmt.background or 0)
        for total, own, ignored in zip(totals, images, pairs.extra, strict=True)
    ]
    result = Evaluation(**vars(scores[0]))
    return result if against is None else replace(result, **_compare(*scores))


def _prediction_reader(fmt: MaskFormat, same_values: bool) -> MaskReader:
    if same_values:
        return MaskReader("prediction", fmt)
    if fmt.classes:
        known = ", ".join(map(str, fmt.values))
        advice = (
            f"each pixel of a prediction has the value of a class, one of {known} (--classes), or "
            "is void (--void)"
        )
        return MaskReader("prediction", MaskFormat(classes=fmt.classes, void=fmt.void), advice)
    advice = (
        "a prediction has the value 0 and one other value, as gpgc predict writes it. If it has "
        "the values of the true masks, use same_values=True (--same-values)"
    )
    return MaskReader("prediction", MaskFormat(), advice)


def _scores(
    totals: Totals,
    images: list[ImageScore],
    ignored: int,
    boundary: float | str | None,
    background: int,
) -> Scores:
    """Scores of one of the sets of predictions."""
    confusion = totals.confusion
    accuracy = class_accuracy(confusion)
    foreground = np.arange(accuracy.size) != background
    classes = class_scores(confusion, totals.boundary)
    return Scores(
        average_class_accuracy=float(np.nanmean(accuracy)),
        foreground_accuracy=mean(accuracy[foreground]),
        background_accuracy=number(accuracy[background]),
        class_accuracy=dict(zip(totals.names, map(number, accuracy), strict=True)),
        pixel_accuracy=pixel_accuracy(confusion),
        mean_iou=mean(class_iou(confusion)),
        mean_dice=mean(class_dice(confusion)),
        kappa=cohen_kappa(confusion),
        boundary=mean(totals.boundary),
        boundary_tolerance=boundary,
        classes=dict(zip(totals.names, classes, strict=True)),
        confusion=confusion.astype(int).tolist(),
        images=len(images),
        ignored=ignored,
        void_predicted=totals.void,
        per_image=images,
    )


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
