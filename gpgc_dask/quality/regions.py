"""Connected regions of an image where the prediction without it contradicts its mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
Box = tuple[slice, slice]

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

RING = 2
"""Width in pixels of the ring around a region."""

EIGHT = np.ones((3, 3), dtype=bool)
"""Pixels that touch at a corner are connected."""


@dataclass(frozen=True)
class Region:
    """A region.

    Attributes
    ----------
    kind : {"missing", "spurious", "wrong class"}
    window : tuple of slice
        Rows and columns of its box in the map.
    part : array of bool
        Its pixels in the box.
    shape : tuple of int
        Height and width of the map.
    code : int
        The predicted class.
    given : int
        The class in the mask.
    evidence : float
        Mean log-odds of the predicted against the given class; negative if the given one is more
        likely than each single other class.
    """

    kind: Kind
    window: Box
    part: Mask
    shape: tuple[int, int]
    code: int
    given: int
    evidence: float

    @property
    def inside(self) -> Mask:
        """(h, w) its pixels in the map."""
        inside = np.zeros(self.shape, dtype=bool)
        inside[self.window] = self.part
        return inside

    def overlap(self, other: Mask) -> int:
        """Number of its pixels in another region (h, w)."""
        return int(np.count_nonzero(other[self.window] & self.part))


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
    before: tuple[Kind, bytes] | None = None
    for kind, members, code, own in _candidates(prediction.shares, given, background):
        if kind == "missing" and before == (kind, members.tobytes()):
            continue  # the regions of the level before are found again
        before = kind, members.tobytes()
        if not members.any():
            continue
        window = scene.box(members)
        candidate = members[scene.segments[window]]
        candidate &= mask[window] == own
        numbers, count = ndimage.label(candidate, EIGHT, np.intp)
        sizes = np.bincount(numbers.ravel(), minlength=count + 1)
        large = sizes >= smallest
        large[0] = False
        if kind == "missing":
            large &= ~_repeats(found, numbers, sizes, window)
        if not large.any():
            continue
        boxes = ndimage.find_objects(numbers)
        for number in np.flatnonzero(large).tolist():
            part = numbers[boxes[number - 1]] == number
            box = _shifted(boxes[number - 1], window, 1)
            found.append(_make_region(scene, kind, box, part, (code, own), background))
    return found


def _repeats(found: list[Region], numbers: Index, sizes: Index, window: Box) -> Mask:
    """Which of the numbered regions of a window are mostly in a missing one of a higher level."""
    known = np.zeros(sizes.size, dtype=bool)
    for region in found:
        if region.kind == "missing":  # windows of lower levels contain those of higher ones
            own = numbers[_shifted(region.window, window, -1)][region.part]
            known |= np.bincount(own, minlength=sizes.size) >= SAME * sizes
    return known


def _shifted(box: Box, window: Box, sign: int) -> Box:
    """A box of a window as one of the map (sign 1), or the other way round (sign −1)."""
    rows, columns = (
        slice(span.start + sign * own.start, span.stop + sign * own.start)
        for span, own in zip(box, window, strict=True)
    )
    return rows, columns


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
    scene: Scene, kind: Kind, window: Box, part: Mask, codes: tuple[int, int], background: int
) -> Region:
    """A region of predicted and given ``codes``; a predicted one of -1 is the most likely one."""
    code, given = codes
    weight = scene.counts(part, window)
    weight /= weight.sum()
    if code < 0:
        mean = weight @ scene.prediction.shares
        mean[background] = -1.0
        code = int(mean.argmax())
    logs = scene.prediction.logs
    if kind == "missing":
        p = scene.prediction.shares[:, background]
        evidence = float(weight @ np.log((1.0 - p) / p))
    else:
        evidence = float(weight @ (logs[:, code] - logs[:, given]))
    return Region(kind, window, part, scene.segments.shape, code, given, evidence)


def describe_region(scene: Scene, mask: Codes, region: Region) -> Array:
    """Describe a region by numbers that distinguish errors of masks from those of predictions.

    Returns
    -------
    (d,) array
    """
    code, part = region.code, region.part
    prediction = scene.prediction
    shares, logs = prediction.shares, prediction.logs
    counts = scene.counts(part, region.window)
    total = counts.sum()
    weight = counts / total
    n_pixels = mask.size
    ring_counts, around = _ring(scene, mask, region)
    n_ring = max(around.size, 1)
    depth = ndimage.distance_transform_cdt(_padded(part, ((1, 1), (1, 1)))).max()
    size = total / (n_pixels / len(shares))
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
            np.count_nonzero(around == code) / n_ring,
            np.count_nonzero(around == region.given) / n_ring,
            p - ring_counts @ shares[:, code],
            q - ring_counts @ shares[:, region.given],
            total / part.size,
            depth / np.sqrt(total),
            depth / np.sqrt(n_pixels / len(shares)),
            total * p / max(float(scene.area @ shares[:, code]), 1.0),
        ]
    )


def _ring(scene: Scene, mask: Codes, region: Region) -> tuple[Array, Codes]:
    """Shares of the superpixels in a ring around a region, and the classes of its pixels."""
    (rows, columns), (height, width) = region.window, region.shape
    margins = [
        (min(span.start, RING), min(side - span.stop, RING))
        for span, side in ((rows, height), (columns, width))
    ]
    window = tuple(
        slice(span.start - before, span.stop + after)
        for span, (before, after) in zip(region.window, margins, strict=True)
    )
    part = _padded(region.part, margins)
    ring = ndimage.binary_dilation(part, EIGHT, iterations=RING) & ~part
    counts = np.bincount(scene.segments[window][ring], minlength=len(scene.area)).astype(float)
    return counts / max(counts.sum(), 1.0), mask[window][ring]


def _padded(part: Mask, margins: Sequence[tuple[int, int]]) -> Mask:
    """A region with rows and columns around it; ``np.pad`` takes longer than all else here."""
    (above, below), (left, right) = margins
    height, width = part.shape
    result = np.zeros((above + height + below, left + width + right), dtype=bool)
    result[above : above + height, left : left + width] = part
    return result


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
