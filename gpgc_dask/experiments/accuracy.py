"""Accuracy of predicted superpixels, in pixels of the true masks.

The pixels of each true class in each superpixel are counted once, at the size of the photos. Any
prediction can then be evaluated exactly without painting it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index, group_sums
from gpgc_dask.core.metrics import average_class_accuracy, mean_where
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.imaging.painting import segment_chunks
from gpgc_dask.imaging.photos import Orientation, read_orientation, silence_pillow
from gpgc_dask.imaging.slic import Segments
from gpgc_dask.imaging.superpixels import class_counts

__all__ = ["Accuracy", "Masks", "PixelCounts"]


class Masks(Protocol):
    """Masks of the photos of a dataset."""

    def codes(self, photo: int, orientation: Orientation) -> Codes:
        """(height, width) class codes of the mask of a photo."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a prediction.

    Attributes
    ----------
    hits : (photos, classes) array
        Number of pixels of each true class that are predicted right.
    totals : (photos, classes) array
        Number of pixels of each true class.
    """

    hits: Array
    totals: Array

    @property
    def accuracy(self) -> float:
        """Average class accuracy over all pixels, a share."""
        return average_class_accuracy(self.hits.sum(0), self.totals.sum(0))

    @property
    def per_image(self) -> Array:
        """(photos,) average class accuracy; NaN if the true mask is all void."""
        present = self.totals > 0
        return mean_where(self.hits / np.where(present, self.totals, 1.0), present)


@dataclass(frozen=True)
class PixelCounts:
    """Pixels of each true class in each superpixel of a dataset.

    Attributes
    ----------
    counts : (N, classes) array
        Number of pixels.
    image : (N,) array of int
        Photo of each superpixel.
    names : list of str
        Names of the photos.
    """

    counts: Array
    image: Index
    names: list[str]

    @classmethod
    def read(cls, dataset: xr.Dataset, masks: Masks | None = None) -> PixelCounts:
        """Read the true masks of the photos of a dataset.

        Parameters
        ----------
        dataset : xarray.Dataset
        masks : Masks, optional
            The true masks. Default: the masks of the dataset.

        Returns
        -------
        PixelCounts
        """
        n_classes = len(dataset.attrs["classes"])
        truth = masks or DatasetMasks.from_dataset(dataset)
        paths = text_values(dataset["image_path"]).tolist()
        silence_pillow()

        def count(task: tuple[int, Segments]) -> Index:
            photo, segments = task
            codes = truth.codes(photo, read_orientation(paths[photo]))
            return class_counts(segments, int(segments.max()) + 1, codes, n_classes)[:, :-1]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            counts = [each for chunk in segment_chunks(dataset) for each in pool.map(count, chunk)]
        return cls(
            np.concatenate(counts).astype(np.float64),
            np.asarray(dataset["image"].values).astype(np.intp),
            text_values(dataset["image_name"]).tolist(),
        )

    def evaluate(self, labels: Any) -> Accuracy:
        """Evaluate a prediction.

        Parameters
        ----------
        labels : (N,) array of int
            Predicted class of each superpixel.

        Returns
        -------
        Accuracy
        """
        predicted = np.asarray(labels, dtype=np.intp)
        n_classes, n = self.counts.shape[1], len(self.names)
        right = np.zeros_like(self.counts)
        rows = np.arange(len(predicted))
        right[rows, predicted] = self.counts[rows, predicted]
        hits, totals = (
            np.stack([group_sums(self.image, v[:, c], n) for c in range(n_classes)], axis=1)
            for v in (right, self.counts)
        )
        return Accuracy(hits, totals)
