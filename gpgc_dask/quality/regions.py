"""Connected regions of an image where the prediction without it contradicts its mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Array, Index, Mask
from gpgc_dask.data.maps import Codes, Segments
from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.descriptors import Prediction
from gpgc_dask.quality.object_descriptors import Scene

__all__ = [
    "N_COLUMNS",
    "Kind",
    "Region",
    "describe_region",
    "draw_error",
    "find_regions",
    "remove_things",
]

Kind = Literal["missing", "spurious", "wrong class"]

LEVELS = (0.5, 0.3, 0.18, 0.1, 0.06, 0.036, 0.02)
"""Background whose probability of any object is above one of these may lack an object."""

SAME = 0.6
"""A region of a lower level is left out if one of a higher level has at least this share of it."""

DOUBTFUL = 0.35
"""Objects whose class has a lower probability than this may be spurious, or of another class."""

MIN_SUPERPIXELS = 1.0
"""Smaller regions, in mean superpixels of the photo, are left out."""

MAX_REMOVED = 6
"""Things of an image that are removed from copies of its mask: the largest ones."""

N_COLUMNS = 18
"""Length of descriptions."""

EIGHT = np.ones((3, 3), dtype=bool)
"""Pixels that touch at a corner are connected."""


@dataclass(frozen=True)
class Region:
    """A region.

    Attributes
    ----------
    kind : {"missing", "spurious", "wrong class"}
    inside : (h, w) array of bool
        Its pixels at working size.
    code : int
        The predicted class.
    given : int
        The class in the mask.
    evidence : float
        Mean log-odds of the predicted against the given class; negative if the given one is more
        likely than each single other class.
    """

    kind: Kind
    inside: Mask
    code: int
    given: int
    evidence: float


def find_regions(scene: Scene, mask: Codes, background: int) -> list[Region]:
    """Find the regions of an image where prediction and mask differ.

    Parameters
    ----------
    scene : Scene
        Of the image.
    mask : (h, w) array of uint8
        Numbers of the classes; 255 is void.
    background : int
        Number of the class of the background; -1 if there is none.

    Returns
    -------
    list of Region
        Each has at least the area of a mean superpixel. Regions of missing objects may contain
        others.
    """
    prediction = scene.prediction
    counts = prediction.counts(mask)
    given = np.where(counts.sum(1) > 0, counts.argmax(1), VOID)
    smallest = MIN_SUPERPIXELS * mask.size / len(given)
    found: list[Region] = []
    for kind, members, code, own in _candidates(prediction.shares, given, background):
        candidate = members[scene.segments] & (mask == own)
        numbers, count = ndimage.label(candidate, EIGHT)
        sizes = np.bincount(numbers.ravel(), minlength=count + 1)
        higher = [region.inside for region in found if region.kind == "missing"]
        for number in np.flatnonzero(sizes[1:] >= smallest) + 1:
            inside = numbers == number
            same = SAME * sizes[number]
            if kind == "missing" and any((inside & part).sum() >= same for part in higher):
                continue
            found.append(_make_region(scene, kind, inside, code, own, background))
    return found


def _candidates(
    shares: Array, given: Index, background: int
) -> Iterator[tuple[Kind, Mask, int, int]]:
    """(kind, superpixels, predicted class or -1, given class) that may be wrong together."""
    n, n_classes = shares.shape
    if background >= 0:
        empty, anything = given == background, 1.0 - shares[:, background]
        for level in LEVELS:
            yield "missing", empty & (anything > level), -1, background
    known = np.minimum(given, n_classes - 1)
    own = shares[np.arange(n), known]
    others = shares.copy()
    others[np.arange(n), known] = -1.0
    best = others.argmax(1)
    doubtful = (given != VOID) & (given != background) & (own < DOUBTFUL)
    for code in np.unique(given[doubtful]).tolist():
        for other in np.unique(best[doubtful & (given == code)]).tolist():
            kind: Kind = "spurious" if other == background else "wrong class"
            yield kind, doubtful & (given == code) & (best == other), other, code


def _make_region(
    scene: Scene, kind: Kind, inside: Mask, code: int, given: int, background: int
) -> Region:
    weight = scene.counts(inside)
    weight /= weight.sum()
    if code < 0:
        mean = weight @ scene.prediction.shares
        mean[background] = -1.0
        code = int(mean.argmax())
    if kind == "missing":
        p = scene.prediction.shares[:, background]
        evidence = float(weight @ np.log((1.0 - p) / p))
    else:
        logs = scene.prediction.logs
        evidence = float(weight @ (logs[:, code] - logs[:, given]))
    return Region(kind, inside, code, given, evidence)


def describe_region(scene: Scene, mask: Codes, region: Region) -> Array:
    """Describe a region by numbers that distinguish errors of masks from those of predictions.

    Returns
    -------
    (d,) array
    """
    inside, code = region.inside, region.code
    prediction = scene.prediction
    shares, logs = prediction.shares, prediction.logs
    counts = scene.counts(inside)
    total = counts.sum()
    weight = counts / total
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    window = (
        slice(max(rows[0] - 3, 0), rows[-1] + 4),
        slice(max(columns[0] - 3, 0), columns[-1] + 4),
    )
    part, around = inside[window], mask[window]
    ring = ndimage.binary_dilation(part, EIGHT, iterations=2) & ~part
    n_ring = max(int(ring.sum()), 1)
    ring_counts = np.bincount(scene.segments[window][ring], minlength=len(shares)).astype(float)
    ring_counts /= max(ring_counts.sum(), 1.0)
    depth = ndimage.distance_transform_cdt(np.pad(part, 1)).max()
    size = total / (inside.size / len(shares))
    p, q = weight @ shares[:, code], weight @ shares[:, region.given]
    lift = logs[:, code] - np.log(max(prediction.frequency[code], 1e-4))
    return np.array(
        [
            *(float(region.kind == kind) for kind in get_args(Kind)),
            np.log(size),
            region.evidence,
            p,
            q,
            shares[counts > 0.5, code].max(initial=0.0),
            weight @ lift,
            weight @ prediction.entropy,
            (ring & (around == code)).sum() / n_ring,
            (ring & (around == region.given)).sum() / n_ring,
            p - ring_counts @ shares[:, code],
            q - ring_counts @ shares[:, region.given],
            total / ((rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)),
            depth / np.sqrt(total),
            depth / np.sqrt(inside.size / len(shares)),
            total * p / max(float(scene.area @ shares[:, code]), 1.0),
        ]
    )


# -- errors in copies ----------------------------------------------------------------------------


def draw_error(
    prediction: Prediction, mask: Codes, background: int, rng: np.random.Generator
) -> Codes:
    """Draw one local error into a mask: a thing removed, cut, enlarged or of another class.

    Returns
    -------
    (h, w) array of uint8
        The mask with the error; the same if there is nothing to change.
    """
    n_classes = prediction.n_classes
    thing, code = _thing(mask, background, prediction.segments, rng)
    if not thing.any():
        return mask
    others = [other for other in range(n_classes) if other not in (code, background)]
    kind = rng.integers(4 if others else 3)
    result = mask.copy()
    ground = background if background >= 0 else int(rng.integers(n_classes))
    if kind == 3:
        result[thing] = int(rng.choice(others))
    elif kind == 2:
        result[_blob(thing, rng) & (mask == ground)] = code
    else:
        result[thing if kind == 0 else _side(thing, rng)] = ground
    return result


def remove_things(
    prediction: Prediction, mask: Codes, background: int
) -> Iterator[tuple[Codes, Mask]]:
    """Copies of a mask that each lack one of its largest things, and the pixels of this thing."""
    things = [
        (numbers == number)
        for code in np.unique(mask).tolist()
        if code not in (VOID, background) and background >= 0
        for numbers, large in [_large_things(mask == code, prediction.segments)]
        for number in large.tolist()
    ]
    things.sort(key=lambda thing: -int(thing.sum()))
    for thing in things[:MAX_REMOVED]:
        yield np.where(thing, background, mask).astype(mask.dtype), thing


def _large_things(inside: Mask, segments: Segments) -> tuple[Index, Index]:
    """Connected parts of a class as numbers (h, w), and those not smaller than a superpixel."""
    numbers, _ = ndimage.label(inside)
    sizes = np.bincount(numbers.ravel())
    smallest = inside.size / (int(segments.max()) + 1)
    return numbers, np.flatnonzero(sizes[1:] >= smallest) + 1


def _thing(
    mask: Codes, background: int, segments: Segments, rng: np.random.Generator
) -> tuple[Mask, int]:
    """A connected part of one class, not smaller than a superpixel."""
    present = [code for code in np.unique(mask) if code not in (VOID, background)]
    if not present:
        return np.zeros(mask.shape, dtype=bool), 0
    code = int(rng.choice(present))
    numbers, large = _large_things(mask == code, segments)
    if not large.size:
        return np.zeros(mask.shape, dtype=bool), code
    return numbers == rng.choice(large), code


def _side(thing: Mask, rng: np.random.Generator) -> Mask:
    """A part of 10 % to 50 % of a thing, on one side of a line."""
    rows, columns = np.indices(thing.shape)
    angle = rng.uniform(0.0, 2.0 * np.pi)
    order = rows * np.sin(angle) + columns * np.cos(angle)
    return thing & (order > np.quantile(order[thing], 1.0 - rng.uniform(0.1, 0.5)))


def _blob(thing: Mask, rng: np.random.Generator) -> Mask:
    """A disc of 10 % to 60 % of the area of a thing, with its centre on the outline."""
    outline = np.argwhere(ndimage.binary_dilation(thing) & ~thing)
    if not len(outline):
        return np.zeros_like(thing)
    y, x = outline[rng.integers(len(outline))]
    rows, columns = np.ogrid[: thing.shape[0], : thing.shape[1]]
    square = rng.uniform(0.2, 1.2) * thing.sum() / np.pi
    return np.asarray((rows - y) ** 2 + (columns - x) ** 2 <= square) & ~thing
