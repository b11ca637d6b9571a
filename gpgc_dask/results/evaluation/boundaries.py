"""Boundary F-scores: are the edges of two masks within a tolerance of each other?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import binary_erosion, distance_transform_edt
from scipy.spatial import KDTree

from gpgc_dask.core.arrays import Array, Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.masks import Codes

__all__ = ["Tolerance", "boundary_scores"]


@dataclass(frozen=True)
class Tolerance:
    """Distance within which two boundaries are the same.

    Attributes
    ----------
    pixels : float
        Distance in pixels, for images of all sizes.
    share : float
        Or a share of the diagonal of the image.
    """

    pixels: float = 0.0
    share: float = 0.0

    @classmethod
    def parse(cls, text: float | str) -> Tolerance:
        """Read 2 or "2" as pixels, "0.75%" as a share of the diagonal.

        Examples
        --------
        >>> from gpgc_dask.results.evaluation.boundaries import Tolerance
        >>> Tolerance.parse("1%").at((300, 400))
        5.0
        """
        share = str(text).strip().endswith("%")
        try:
            number = float(str(text).strip().removesuffix("%"))
        except ValueError:
            number = math.nan
        if not 0 <= number < (100 if share else math.inf):
            raise InputError(
                "the tolerance of boundaries (--boundary) must be pixels, such as 2, or a share "
                f"of the diagonal below 100%, such as 0.75%; got {text}"
            )
        return cls(share=number / 100) if share else cls(number)

    def at(self, size: tuple[int, ...]) -> float:
        """The distance in pixels for an image of this (height, width)."""
        return self.pixels + self.share * math.hypot(*size)


def boundary_scores(
    first: Codes, second: Codes, valid: Mask, n_classes: int, tolerance: float
) -> Array:
    """Boundary F-score of each class (Csurka et al., 2013).

    The boundary of a class consists of its pixels that touch another class at one of their four
    sides; edges of the image are no boundaries. The F-score is the harmonic mean of the shares of
    each mask's boundary that are within the tolerance of the other's. Void pixels take the class
    of the nearest pixel that is not void, in both masks.

    Parameters
    ----------
    first, second : (height, width) array
        Class codes of the two masks.
    valid : (height, width) array of bool
        Pixels that are void in neither mask.
    n_classes : int
        Number of classes.
    tolerance : float
        Largest distance between pixels of the same boundary, in pixels.

    Returns
    -------
    (n_classes,) array
        NaN for classes without a boundary in either mask, 0 for a boundary in one mask only.
    """
    scores = np.full(n_classes, np.nan)
    if not valid.any():
        return scores
    if not valid.all():
        nearest = distance_transform_edt(~valid, return_distances=False, return_indices=True)
        first, second = first[tuple(nearest)], second[tuple(nearest)]
    for code in np.union1d(np.unique(first), np.unique(second)):
        edge, other = _boundary(first == code), _boundary(second == code)
        if len(edge) or len(other):
            scores[code] = _f_score(edge, other, tolerance)
    return scores


def _boundary(region: Mask) -> Array:
    """(n, 2) places of the pixels of a region that touch the rest of the image."""
    return np.argwhere(region & ~binary_erosion(region, border_value=1)).astype(np.float64)


def _f_score(first: Array, second: Array, tolerance: float) -> float:
    if not len(first) or not len(second):
        return 0.0
    precision = _share_within(first, second, tolerance)
    recall = _share_within(second, first, tolerance)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _share_within(places: Array, others: Array, tolerance: float) -> float:
    """Share of the places with one of the others within the tolerance."""
    # A tree needs memory for the boundaries only, a distance transform for the whole image.
    distances, _ = KDTree(others).query(places)
    return float(np.mean(distances <= tolerance * (1 + 1e-12)))
