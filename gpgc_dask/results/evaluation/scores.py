"""Scores of predicted masks, and the test of one set of predictions against another."""

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
from gpgc_dask.results.evaluation.pairs import Found
from gpgc_dask.results.evaluation.pixels import count_pixels

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]


@dataclass(frozen=True)
class ImageScore:
    """``average_class_accuracy``: over the classes of its true mask; None where that is all void.

    ``image``: path of the true mask within its folder, with forward slashes.
    """

    image: str
    average_class_accuracy: float | None


@dataclass(frozen=True)
class Scores:
    """How right a folder of predictions is. Shares are of pixels, 0 … 1, pooled over all images.

    Attributes
    ----------
    average_class_accuracy : share of each class's pixels predicted right, averaged over the
        classes that occur
    foreground_accuracy, background_accuracy : background is the class of value 0, or the first
        where none has it; foreground the average over all others. None where no pixel is such
    class_accuracy : {class: share}, None for a class that does not occur
    images : number of true masks;  ignored : number of predictions without one
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
    """Scores of predictions; with a second set, ``against``, also which of the two is better.

    The rest is about the images' own average class accuracies, and None without a second set.

    Attributes
    ----------
    wilcoxon_p : two-sided, of the Wilcoxon signed-rank test; 1 where no image differs
    significant : p < 0.001, the paper's level
    better : which has the larger sum of ranks, the way the test points; None if they are equal
    images_better, images_worse : number of images on which the predictions are, against the others
    too_few : so few images differ that p could not be below 0.001 if all differed one way
    """

    against: Scores | None = None
    wilcoxon_p: float | None = None
    significant: bool | None = None
    better: Literal["predicted", "against"] | None = None
    images_better: int | None = None
    images_worse: int | None = None
    too_few: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; without a second set, without what is said of it."""
        told = asdict(self)
        if self.against is not None:
            return told
        return {key: value for key, value in told.items() if key in Scores.__dataclass_fields__}

    def to_csv(self) -> str:
        """A line an image: image, average_class_accuracy and, with a second set, against.

        Images that are all void have no value.
        """
        columns = ["image", "average_class_accuracy"]
        rows = [[one.image, one.average_class_accuracy] for one in self.per_image]
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

    Masks of the same name, whatever the ending, in the same subfolder belong together. Every true
    mask needs a prediction; void pixels of true masks do not count.

    Parameters
    ----------
    predicted, true : folders
    against : a second folder of predictions for the same true masks, to test the first against
    foreground, classes, void, threshold : how true masks are read, see
        :class:`~gpgc_dask.imaging.masks.MaskFormat`. Predictions are read as they are written:
        values of ``classes`` if given, else 0 for background and one other value for foreground
    mask_suffix : what true masks' names have after those of the predictions; other files of the
        folder are passed over
    progress : True shows a live line in a notebook, prints lines to stderr elsewhere; a callable
        is called with a :class:`~gpgc_dask.core.progress.Progress` image by image

    Examples
    --------
    >>> from gpgc_dask import evaluate
    >>> found = evaluate("predicted-clean", "true-masks", against="predicted-all")
    >>> found.average_class_accuracy, found.better, found.significant
    (1.0, 'predicted', False)
    """
    named = tuple((classes or {}).items())
    fmt = MaskFormat(tuple(foreground), named, tuple(void), threshold)
    if len(set(fmt.names)) < len(fmt.names):
        raise InputError(f"classes need names of their own, got {', '.join(fmt.names)}")
    rivals = [predicted] if against is None else [predicted, against]
    found = Found.of(true, rivals, mask_suffix)
    with warnings.catch_warnings(), work_listener(progress) as listener:
        silence_pillow()
        counts = count_pixels(found.items, fmt, listener)
    totals = np.array([one[0] for one in counts])
    if not totals.any():
        raise InputError(f"all pixels of the true masks in {true} are void: nothing to compare")
    names = [printable(item.name) for item in found.items]
    scores = [
        _scores(np.array([one[1][rival] for one in counts]), totals, fmt, names, found.extra[rival])
        for rival in range(len(rivals))
    ]
    result = Evaluation(**vars(scores[0]))
    return result if against is None else replace(result, **_compared(*scores))


def _scores(hits: Array, totals: Array, fmt: MaskFormat, names: list[str], ignored: int) -> Scores:
    """hits, totals : (images, classes) pixels predicted right, and all."""
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
        ignored=ignored,
        per_image=[
            ImageScore(*one) for one in zip(names, map(_average, hits, totals), strict=True)
        ],
    )


def _average(hits: Array, totals: Array) -> float | None:
    return average_class_accuracy(hits, totals) if totals.any() else None


def _compared(ours: Scores, theirs: Scores) -> dict[str, Any]:
    """What an :class:`Evaluation` says of two sets of predictions."""
    mine, other = (
        np.array([one.average_class_accuracy for one in side.per_image], dtype=np.float64)
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
