"""Predictions for images by models that never saw them, as probabilities of the classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Features, Index, Mask, group_sums
from gpgc_dask.data.maps import Codes, load_maps
from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.calibration import Calibration, calibrate
from gpgc_dask.quality.descriptors import Prediction

__all__ = [
    "FOLDS",
    "IMAGES_PER_TASK",
    "Evidence",
    "ImagePrediction",
    "Predictions",
    "read_images",
    "with_context",
]

FOLDS = 5
"""Folds, by image, of the regressions that estimate quality, and scores of objects and regions."""

IMAGES_PER_TASK = 32


@dataclass(frozen=True)
class Evidence:
    """What is known of the rows of a dataset after a fit.

    Attributes
    ----------
    values : (N,) or (N, classes) array
        Decision values of models that never saw the row's image.
    codes : (N,) array of int
        Given classes, 0 … K − 1.
    area : (N,) array
        Pixels of each row; 0 for void ones.
    image : (N,) array of int
        Image of each row, ascending.
    noise : (J,) array
        Noise variance of each image; NaN if it is unknown.
    classes : (K,) array of int
        Values of these classes in the masks. Pixels of others count as void.
    unit : (J,) array of int, optional
        Images of one number may have the same errors, as frames of a video; by default all differ.
    right, wrong : (J,) arrays of bool, optional
        Images whose masks a person has confirmed or corrected, and rejected; by default none.
    """

    values: Features
    codes: Index
    area: Array
    image: Index
    noise: Array
    classes: Index
    unit: Index | None = None
    right: Mask | None = None
    wrong: Mask | None = None

    @cached_property
    def predictions(self) -> Predictions:
        """Calibrated predictions, which quality and objects share."""
        return Predictions.calibrated(self)

    @property
    def fold(self) -> Index:
        """(J,) fold of each image in the regressions; images of one unit are in one fold."""
        unit = np.arange(self.n_images) if self.unit is None else self.unit
        return unit % FOLDS

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.classes.size

    @property
    def n_images(self) -> int:
        """Number of images J."""
        return self.noise.size

    @property
    def labelled(self) -> Mask:
        """(J,) whether an image has rows that are not void."""
        return group_sums(self.image, self.area, self.n_images) > 0

    @property
    def confirmed(self) -> Mask:
        """(J,) whether a person has found the mask right, or corrected it."""
        return np.zeros(self.n_images, dtype=np.bool_) if self.right is None else self.right

    @property
    def rejected(self) -> Mask:
        """(J,) whether a person has found the mask wrong."""
        return np.zeros(self.n_images, dtype=np.bool_) if self.wrong is None else self.wrong

    def rows(self, photo: int) -> slice:
        """The rows of an image."""
        first, last = np.searchsorted(self.image, [photo, photo + 1])
        return slice(int(first), int(last))


def with_context(values: Features, image: Index, area: Array, n_images: int) -> Features:
    """Decision values as the scores use them.

    Parameters
    ----------
    values : (N,) or (N, classes) array
        Decision values.
    image : (N,) array of int
        Image of each row.
    area : (N,) array
        Pixels of each row.
    n_images : int
        Number of images.

    Returns
    -------
    (N, 3) or (N, classes) array
        For two classes the value, and the mean and the maximum over its image: whether a value is
        high depends on the others in the image. More classes are compared with each other already.
    """
    if values.ndim == 2:
        return values
    counted = area > 0
    total = group_sums(image, area, n_images)
    mean = group_sums(image, area * values, n_images) / np.maximum(total, 1.0)
    highest = np.full(n_images, -np.inf)
    np.maximum.at(highest, image[counted], values[counted])
    highest = np.where(np.isfinite(highest), highest, 0.0)
    return np.column_stack([values, mean[image], highest[image]])


@dataclass(frozen=True)
class ImagePrediction:
    """Number, decision values and probabilities of the superpixels of an image.

    Attributes
    ----------
    photo : int
        Number of the image.
    values, shares : array
        Decision values and probabilities of its superpixels.
    frequency : (K,) array
        Shares of the classes in the whole dataset.
    classes : (K,) array of int
        Values of the classes in the masks.
    spread : (K,) array
        Standard deviations of the decision values in the whole dataset.
    """

    photo: int
    values: Array
    shares: Array
    frequency: Array
    classes: Index
    spread: Array

    @property
    def codes(self) -> Codes:
        """(256,) number of the class of each value in the masks; 255 if there is none."""
        code = np.full(VOID + 1, VOID, dtype=np.uint8)
        code[self.classes] = np.arange(self.classes.size)
        return code


@dataclass(frozen=True)
class Predictions:
    """Calibrated predictions for all images of a dataset.

    Attributes
    ----------
    evidence : Evidence
        Decision values and given labels.
    calibration : Calibration
        From the columns to probabilities.
    columns : (N, t) array
        Decision values as the calibration takes them.
    frequency : (K,) array
        Shares of the classes in the dataset.
    """

    evidence: Evidence
    calibration: Calibration
    columns: Features
    frequency: Array

    @classmethod
    def calibrated(cls, evidence: Evidence) -> Self:
        """Calibrate the decision values of a dataset."""
        columns = with_context(evidence.values, evidence.image, evidence.area, evidence.n_images)
        layout = (evidence.codes, evidence.area, evidence.image, evidence.n_images)
        calibration = calibrate(columns, *layout, evidence.n_classes)
        totals = group_sums(evidence.codes, evidence.area, evidence.n_classes)
        return cls(evidence, calibration, columns, totals / max(totals.sum(), 1.0))

    @cached_property
    def spread(self) -> Array:
        """(K,) standard deviations of the decision values; of two classes there is one."""
        deviation = np.asarray(self.evidence.values, dtype=np.float64).std(0)
        return np.maximum(np.atleast_1d(deviation), 1e-9)

    def of_image(self, photo: int) -> ImagePrediction:
        """The prediction for one image."""
        rows = self.evidence.rows(photo)
        shares = self.calibration.probabilities(self.columns[rows])
        values = np.asarray(self.evidence.values[rows], dtype=np.float64)
        return ImagePrediction(
            photo, values, shares, self.frequency, self.evidence.classes, self.spread
        )


def read_images(
    maps: xr.Dataset, images: Sequence[ImagePrediction]
) -> Iterator[tuple[Prediction, Codes]]:
    """Predictions and masks of the images of one task.

    Parameters
    ----------
    maps : xarray.Dataset
        Superpixel maps and masks of these images.
    images : sequence of ImagePrediction
        Their predictions.
    """
    for image, (segments, mask) in zip(images, load_maps(maps), strict=True):
        prediction = Prediction(segments, image.values, image.shares, image.frequency)
        yield prediction, image.codes[mask]
