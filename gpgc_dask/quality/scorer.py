"""Quality of masks of new photos, learned from the dataset of a fit.

A model keeps the copies of masks that its estimate of the quality was learned from. They are small,
and the regressions are learned from them again in a second or two, always with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.data.maps import Codes
from gpgc_dask.quality.calibration import Calibration, reliability
from gpgc_dask.quality.descriptors import Prediction, describe
from gpgc_dask.quality.predictions import with_context
from gpgc_dask.quality.quality_regression import Copies, predict, quality_table, reweigh

__all__ = ["LearnedPass", "MaskDescription", "QualityScorer", "relative_agreement"]


@dataclass(frozen=True)
class LearnedPass:
    """What one pass of the estimate has learned.

    Attributes
    ----------
    copies : Copies
        Masks with known errors.
    frequency : (bins,) array
        Frequencies of the qualities among the given masks.
    """

    copies: Copies
    frequency: Array


@dataclass(frozen=True)
class MaskDescription:
    """What a mask looks like to the model.

    Attributes
    ----------
    columns : (d,) array
        See :func:`~gpgc_dask.quality.descriptors.describe`.
    soft, usual : float
        Agreement with the probabilities, and that of a mask drawn from them.
    """

    columns: Array
    soft: float
    usual: float


@dataclass(frozen=True)
class QualityScorer:
    """Estimates the quality of masks of photos that were not in the fit.

    Attributes
    ----------
    calibration : Calibration
        From decision values, with those of their image, to probabilities.
    frequency : (classes,) array
        Shares of the classes in the dataset of the fit.
    passes : tuple of LearnedPass
        What the regressions are learned from; none with fewer than 30 images.
    """

    calibration: Calibration
    frequency: Array
    passes: tuple[LearnedPass, ...] = ()

    def describe(self, segments: Any, values: Array, codes: Codes, area: Array) -> MaskDescription:
        """Describe a mask by what the model predicts for its photo.

        Parameters
        ----------
        segments : (h, w) array of uint16
            Superpixel of each pixel.
        values : (n,) or (n, classes) array
            Decision values of the superpixels.
        codes : (h, w) array of uint8
            Classes of the mask's pixels; 255 is void.
        area : (n,) array
            Pixels of each superpixel; 0 if it is mostly void.
        """
        image = np.zeros(len(values), dtype=np.intp)
        shares = self.calibration.probabilities(with_context(values, image, area, 1))
        prediction = Prediction(segments, values, shares, self.frequency)
        labels = prediction.counts(codes).argmax(1)
        soft = float(reliability(shares, labels, area, image, 1)[0])
        return MaskDescription(describe(prediction, codes), soft, usual_agreement(shares, area))

    def estimate(self, descriptions: list[MaskDescription]) -> pd.DataFrame:
        """Columns ``quality``, ``quality_low``, ``quality_high``, ``bad_probability`` of masks.

        Without regressions, ``quality`` is the agreement with the probabilities, relative to what
        is usual, and the others are NaN.
        """
        known = np.ones(len(descriptions), dtype=bool)
        if not self.passes:
            soft, usual = (np.array([getattr(one, name) for one in descriptions])
                           for name in ("soft", "usual"))  # fmt: skip
            return relative_agreement(soft, usual, known)
        columns = np.stack([one.columns for one in descriptions])
        parts = [
            reweigh(predict(own.copies, columns), own.copies, own.frequency) for own in self.passes
        ]
        return quality_table(np.mean(parts, axis=0), known)

    def to_arrays(self) -> dict[str, Any]:
        """All in plain arrays, as models are saved."""
        arrays: dict[str, Any] = {
            "calibration": self.calibration.to_array(),
            "frequency": self.frequency,
        }
        for number, own in enumerate(self.passes):
            arrays[f"columns{number}"] = own.copies.columns
            arrays[f"quality{number}"] = own.copies.quality
            arrays[f"image{number}"] = own.copies.image
            arrays[f"frequency{number}"] = own.frequency
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> QualityScorer:
        """The inverse of :meth:`to_arrays`."""
        passes: list[LearnedPass] = []
        while f"columns{len(passes)}" in arrays:
            columns, quality, image, frequency = (
                arrays[f"{name}{len(passes)}"]
                for name in ("columns", "quality", "image", "frequency")
            )
            passes.append(LearnedPass(Copies(columns, quality, image), frequency))
        calibration = Calibration.from_array(arrays["calibration"])
        return cls(calibration, arrays["frequency"], tuple(passes))


def usual_agreement(shares: Array, area: Array) -> float:
    """Soft IoU of a mask drawn from probabilities (n, classes) of superpixels with areas (n,)."""
    own = shares[:, 1:] if shares.shape[1] == 2 else shares
    both, union = area @ (own**2).sum(1), area @ (2.0 * own - own**2).sum(1)
    return float(both / union) if union > 0 else 0.0


def relative_agreement(soft: Array, usual: Array, labelled: Mask) -> pd.DataFrame:
    """Table of a quality without regressions: soft agreement relative to what is usual."""
    relative = np.clip(np.divide(soft, usual, out=np.zeros(soft.size), where=usual > 0), 0.0, 1.0)
    unknown = np.full(soft.size, np.nan)
    return pd.DataFrame(
        {
            "quality": np.where(labelled, relative, np.nan),
            "quality_low": unknown,
            "quality_high": unknown,
            "bad_probability": unknown,
        }
    )
