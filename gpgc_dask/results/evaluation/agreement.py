"""Agreement of two annotators, of whom neither is right by definition."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Listener
from gpgc_dask.results.evaluation.measures import (
    class_dice,
    class_iou,
    cohen_kappa,
    mean,
    number,
    pixel_accuracy,
)
from gpgc_dask.results.evaluation.pairs import MaskPairs
from gpgc_dask.results.evaluation.pixels import MaskReader
from gpgc_dask.results.evaluation.totals import ImageTotals, Totals, count_totals, mask_format

__all__ = ["Agreement", "ClassAgreement", "ImageAgreement", "compare_annotators"]


@dataclass(frozen=True)
class ClassAgreement:
    """Agreement on a class. Scores are None where there is nothing to compare.

    Attributes
    ----------
    iou : float or None
        Intersection over union (Jaccard index) of the pixels in the two masks.
    dice : float or None
        Twice the intersection over the sum of the two areas (F1 score).
    boundary : float or None
        Boundary F-score, averaged over the images in which the class has a boundary.
    pixels : tuple of two int
        Number of pixels of the class in the first and in the second masks.
    """

    iou: float | None
    dice: float | None
    boundary: float | None
    pixels: tuple[int, int]


@dataclass(frozen=True)
class ImageAgreement:
    """Agreement on an image. Scores are None where there is nothing to compare.

    Attributes
    ----------
    image : str
        Path of the second mask within its folder, with forward slashes.
    pixel_agreement : float or None
        Share of the pixels with the same class in both masks.
    kappa : float or None
        Cohen's kappa of the pixels.
    mean_iou, mean_dice : float or None
        Means over the classes that occur in one of the masks.
    boundary : float or None
        Boundary F-score, averaged over the classes.
    iou : dict
        {class: IoU} of the classes that occur in one of the masks.
    """

    image: str
    pixel_agreement: float | None
    kappa: float | None
    mean_iou: float | None
    mean_dice: float | None
    boundary: float | None
    iou: dict[str, float]

    @classmethod
    def of(cls, image: ImageTotals) -> ImageAgreement:
        """The scores of the counts of an image."""
        return cls(
            image.name,
            pixel_accuracy(image.confusion),
            cohen_kappa(image.confusion),
            image.mean_iou,
            image.mean_dice,
            image.boundary,
            image.iou,
        )


@dataclass(frozen=True)
class Agreement:
    """Agreement of two folders of masks. All scores are the same if the folders are swapped.

    Attributes
    ----------
    pixel_agreement : float
        Share of the pixels with the same class in both masks, over all images.
    kappa : float or None
        Cohen's kappa of all pixels: 1 for equal masks, 0 for the agreement that is expected by
        chance; None if all pixels have one class.
    mean_iou, mean_dice : float
        Means over the classes that occur.
    boundary : float or None
        Boundary F-score, averaged over the classes; None without a tolerance.
    boundary_tolerance : float, str or None
        The tolerance.
    classes : dict
        {class: :class:`ClassAgreement`}.
    confusion : list of list of int
        Number of pixels by class in the second (rows) and in the first masks (columns), in the
        order of ``classes``.
    images : int
        Number of images in both folders.
    unpaired : int
        Number of masks that are in one folder only.
    per_image : list of ImageAgreement
    """

    pixel_agreement: float | None
    kappa: float | None
    mean_iou: float | None
    mean_dice: float | None
    boundary: float | None
    boundary_tolerance: float | str | None
    classes: dict[str, ClassAgreement]
    confusion: list[list[int]]
    images: int
    unpaired: int
    per_image: list[ImageAgreement]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def to_csv(self) -> str:
        """The scores of the images as CSV.

        Returns
        -------
        str
            Columns image, pixel_agreement, kappa, mean_iou, mean_dice, boundary and, for each
            class, iou:CLASS. Scores that do not exist have no value.
        """
        names = list(self.classes)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        scores = list(ImageAgreement.__dataclass_fields__)[:-1]
        writer.writerow([*scores, *(f"iou:{name}" for name in names)])
        for one in self.per_image:
            values = [getattr(one, score) for score in scores]
            writer.writerow([*values, *(one.iou.get(name) for name in names)])
        return text.getvalue()


def compare_annotators(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    foreground: Sequence[int] = (),
    classes: Mapping[int, str] | str | None = None,
    void: Sequence[int] = (),
    threshold: float | None = None,
    invert: bool = False,
    mask_suffix: str = "",
    photo_suffix: str = "",
    boundary: float | str | None = None,
    progress: bool | Listener | None = None,
) -> Agreement:
    """Compare the masks of two annotators, pixel by pixel.

    Neither is the truth: the scores are the same if the folders are swapped. Masks of the same
    name in the same subfolder belong together; masks that are in one folder only are counted and
    ignored. Pixels that are void in one of two masks do not count.

    Parameters
    ----------
    first, second : path
        Folders of masks.
    foreground, classes, void, threshold, invert
        How the masks of both folders are read, see :class:`~gpgc_dask.MaskOptions`.
    mask_suffix : str, default ""
        Text that the names of the second masks have after those of the first.
    photo_suffix : str, default ""
        Text that the names of the first masks have after those of the second.
    boundary : float or str, optional
        Tolerance of the boundary F-score: a number of pixels, or a share of the diagonal of the
        image, such as "0.75%". Without it the score is not computed.
    progress : bool or callable, optional
        See :func:`gpgc_dask.evaluate`.

    Returns
    -------
    Agreement

    Examples
    --------
    >>> from gpgc_dask import compare_annotators
    >>> result = compare_annotators("predicted-clean", "predicted-all")
    >>> result.kappa == compare_annotators("predicted-all", "predicted-clean").kappa
    True
    """
    fmt = mask_format(foreground, classes, void, threshold, invert=invert)
    pairs = MaskPairs.common(second, first, mask_suffix, photo_suffix)
    reader = MaskReader("mask", fmt)
    (totals,), (images,) = count_totals(
        pairs.items, (reader, reader), ImageAgreement.of, boundary, progress
    )
    if not totals.confusion.any():
        raise InputError(
            f"each pixel is void in {first} or in {second}: there is nothing to compare"
        )
    return Agreement(
        pixel_agreement=pixel_accuracy(totals.confusion),
        kappa=cohen_kappa(totals.confusion),
        mean_iou=mean(class_iou(totals.confusion)),
        mean_dice=mean(class_dice(totals.confusion)),
        boundary=mean(totals.boundary),
        boundary_tolerance=boundary,
        classes=_classes(totals),
        confusion=totals.confusion.astype(int).tolist(),
        images=len(images),
        unpaired=sum(pairs.extra),
        per_image=images,
    )


def _classes(totals: Totals) -> dict[str, ClassAgreement]:
    confusion = totals.confusion
    iou, dice = class_iou(confusion), class_dice(confusion)
    first, second = confusion.sum(0), confusion.sum(1)
    return {
        name: ClassAgreement(
            number(iou[code]),
            number(dice[code]),
            number(totals.boundary[code]),
            (int(first[code]), int(second[code])),
        )
        for code, name in enumerate(totals.names)
    }
