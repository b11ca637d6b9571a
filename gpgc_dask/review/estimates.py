"""How many bad masks are left, and how many of them the next looks are expected to find."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from gpgc_dask.quality.estimate import MIN_IMAGES
from gpgc_dask.results.ranking import BadCount, count_bad

__all__ = ["Outlook", "estimate_outlook"]

SHARE = 0.1
"""The stopping rule looks this share of the images ahead."""


@dataclass(frozen=True)
class Outlook:
    """How far a review is, and what it has still to gain.

    Attributes
    ----------
    images, seen : int
        Number of images, and of those that have a verdict.
    kinds : dict
        {verdict: number of images}.
    left : BadCount or None
        Bad masks among the images without a verdict; None if their number is unknown.
    ahead : int
        Number of images in the next tenth of looks.
    gain : BadCount or None
        Bad masks among these.
    """

    images: int
    seen: int
    kinds: dict[str, int]
    left: BadCount | None
    ahead: int
    gain: BadCount | None

    @property
    def left_text(self) -> str:
        """The masks without a verdict, in one sentence."""
        rest = self.images - self.seen
        masks = "mask" if rest == 1 else "masks"
        if not rest:
            return "All masks have a verdict."
        if self.left is None:
            return (
                "The number of bad masks is not estimated: that takes a model of at least "
                f"{MIN_IMAGES} images."
            )
        return f"About {_text(self.left)} of the {rest:,} {masks} still to be looked at are bad."

    @property
    def gain_text(self) -> str:
        """What the next tenth of looks is expected to find, in one sentence."""
        if not self.ahead or self.gain is None:
            return ""
        verb = "is" if self.gain.estimate == 1 else "are"
        masks = "next mask" if self.ahead == 1 else f"next {self.ahead:,} masks"
        return f"Of the {masks} about {_text(self.gain)} {verb} expected to be bad."

    def to_json(self) -> dict[str, Any]:
        """The numbers and sentences as plain values."""
        return asdict(self) | {"left_text": self.left_text, "gain_text": self.gain_text}


def _text(count: BadCount) -> str:
    return f"{count.estimate:,} ({count.low:,}–{count.high:,})"


def estimate_outlook(
    table: pd.DataFrame, order: Sequence[int], kinds: Mapping[int, str]
) -> Outlook:
    """Estimate what a review has still to gain.

    Parameters
    ----------
    table : DataFrame
        A review: one row per image, in the dataset's order.
    order : sequence of int
        Images in the order in which they are looked at.
    kinds : mapping
        {image: verdict} of the images that have one.

    Returns
    -------
    Outlook
        The numbers of bad masks are those of :func:`gpgc_dask.results.ranking.count_bad` over the
        images without a verdict, and over the first tenth of all images among these.
    """
    rest = [image for image in order if image not in kinds]
    ahead = min(math.ceil(SHARE * len(table)), len(rest))
    return Outlook(
        images=len(table),
        seen=len(table) - len(rest),
        kinds=dict(sorted(Counter(kinds.values()).items())),
        left=_count(table, rest),
        ahead=ahead,
        gain=_count(table, rest[:ahead]),
    )


def _count(table: pd.DataFrame, images: list[int]) -> BadCount | None:
    return count_bad(table.iloc[images]) if images else None
