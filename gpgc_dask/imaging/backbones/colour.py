"""Colour and texture without a network: fast, and good enough for a first try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage
from skimage.color import rgb2lab
from skimage.filters import sobel

from gpgc_dask.core.arrays import Features
from gpgc_dask.imaging.backbones.base import Backbone
from gpgc_dask.imaging.photos import Pixels

__all__ = ["Colour"]

LAB_UNITS = np.array([100.0, 50.0, 50.0])
"""Lab values are divided by these, so that all features are of order 1."""

WINDOW = 1 / 32
"""Standard deviation of the window of local statistics, as a share of the longest side."""


@dataclass(frozen=True)
class Colour(Backbone):
    """14 maps: Lab, its squares and products, its local spread, and edges at two scales."""

    def __call__(self, image: Pixels) -> list[Features]:
        lab = np.moveaxis(rgb2lab(image) / LAB_UNITS, -1, 0)
        sigma = max(image.shape) * WINDOW
        local = [ndimage.gaussian_filter(channel, sigma) for channel in lab]
        squares = [ndimage.gaussian_filter(channel**2, sigma) for channel in lab]
        spread = [np.sqrt(np.maximum(s - m**2, 0)) for s, m in zip(squares, local, strict=True)]
        products = [lab[i] * lab[j] for i in range(3) for j in range(i, 3)]
        edges = [
            10 * sobel(lab[0]),
            10 * sobel(ndimage.gaussian_filter(lab[0], sigma / 4)),
        ]
        return [np.stack([*lab, *products, *spread, *edges])]

    def provenance(self) -> dict[str, Any]:
        return {"name": "colour"}
