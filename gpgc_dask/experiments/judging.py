"""How right predictions of superpixels are, in pixels of the true masks.

The pixels of each true class in each superpixel are counted once, at the photos' own size; then
any prediction is judged exactly without being painted.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index, group_sums
from gpgc_dask.core.metrics import average_class_accuracy, mean_where
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.given_masks import GivenMasks
from gpgc_dask.imaging.painting import segment_chunks
from gpgc_dask.imaging.photos import hush, read_orientation
from gpgc_dask.imaging.superpixels import Segments, class_counts

__all__ = ["Judge", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """How right one prediction is: (photos, classes) pixels predicted right, and all of them."""

    hits: Array
    totals: Array

    @property
    def accuracy(self) -> float:
        """Average class accuracy over all pixels, a share."""
        return average_class_accuracy(self.hits.sum(0), self.totals.sum(0))

    @property
    def per_image(self) -> Array:
        """(photos,) average class accuracy of each; NaN where the true mask is all void."""
        present = self.totals > 0
        return mean_where(self.hits / np.where(present, self.totals, 1.0), present)


@dataclass(frozen=True)
class Judge:
    """The true masks of a dataset, as pixels of each class in each superpixel.

    counts : (N, classes);  image : (N,) photo of each superpixel
    """

    counts: Array
    image: Index
    names: list[str]

    @classmethod
    def of(cls, dataset: xr.Dataset, truth: Any = None) -> Judge:
        """Read the true masks of a dataset's photos: its own, or those of ``truth``.

        truth : has ``codes(photo, orientation)``, as
            :class:`~gpgc_dask.imaging.given_masks.GivenMasks`
        """
        n_classes = len(dataset.attrs["classes"])
        masks = truth or GivenMasks.of(dataset)
        paths = text_values(dataset["image_path"]).tolist()
        hush()

        def count(task: tuple[int, Segments]) -> Index:
            photo, segments = task
            codes = masks.codes(photo, read_orientation(paths[photo]))
            return class_counts(segments, int(segments.max()) + 1, codes, n_classes)[:, :-1]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            counts = [one for chunk in segment_chunks(dataset) for one in pool.map(count, chunk)]
        image = np.asarray(dataset["image"].values)
        return cls(
            np.concatenate(counts).astype(np.float64),
            image.astype(np.intp),
            text_values(dataset["image_name"]).tolist(),
        )

    def __call__(self, labels: Any) -> Verdict:
        """Judge class numbers (N,) of the dataset's superpixels."""
        predicted = np.asarray(labels, dtype=np.intp)
        n_classes, n = self.counts.shape[1], len(self.names)
        right = np.zeros_like(self.counts)
        rows = np.arange(len(predicted))
        right[rows, predicted] = self.counts[rows, predicted]
        hits, totals = (
            np.stack([group_sums(self.image, v[:, c], n) for c in range(n_classes)], axis=1)
            for v in (right, self.counts)
        )
        return Verdict(hits, totals)
