"""What a folder of masks contains: from the headers of all files and the pixels of some.

The survey comes before any worker or network is started, and suggests the options with which the
masks can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from gpgc_dask.core.errors import Problem, UnusableFileError
from gpgc_dask.core.tiles import Tile, join_address
from gpgc_dask.imaging.colours import (
    colour_name,
    pack_colours,
    unlisted_colours,
    unpack_colours,
)
from gpgc_dask.imaging.mask_sources.base import Item
from gpgc_dask.imaging.masks import (
    LOSSY_FORMATS,
    MaskFormat,
    MaskPixels,
    load_mask,
    match_size,
    open_mask,
)
from gpgc_dask.imaging.photos import Orientation, image_size, read_orientation, silence_pillow
from gpgc_dask.imaging.tiff import MAX_PIXELS

__all__ = ["MaskSurvey", "Tally", "survey_masks"]

MAX_HEADERS = 5_000
"""Photos whose headers are read: all, or this many that are spread evenly."""

MAX_DECODED, MAX_SAMPLED = 50, 1 << 25
"""Masks that are decoded, spread evenly; fewer if they have more pixels than this together."""

PARTS, PART_SIDE = 4, 512
"""Of masks that are too large to be decoded, PARTS × PARTS parts of this side in pixels are."""

FEW = 64
"""Colours or values that are classes; more are shades."""

MIN_SHARE, MIN_DISTANCE = 0.002, 32
"""Colours of smoothed or compressed masks have this share of all pixels, and this distance."""

MODES = {
    "1": "one bit",
    "L": "grey",
    "P": "palette",
    "RGB": "colour",
    "RGBA": "colour with alpha",
    "I": "16 bit",
    "F": "fractions",
}


@dataclass
class Tally:
    """Values and colours of the masks that were decoded.

    Attributes
    ----------
    masks : int
        Number of masks.
    values, colours : Counter
        Pixels of each value, and of each colour (packed, see :func:`pack_colours`).
    full : float
        Full scale of the values.
    lossy : bool
        Whether some of them are JPEGs.
    """

    masks: int = 0
    values: Counter[float] = field(default_factory=Counter)
    colours: Counter[int] = field(default_factory=Counter)
    full: float = 255.0
    lossy: bool = False

    def add(self, pixels: MaskPixels) -> None:
        """Count the pixels of a mask."""
        self.masks += 1
        self.lossy |= pixels.lossy
        if pixels.is_colour:
            self.colours.update(_count(pack_colours(pixels.values)))
            return
        values = pixels.values
        if values.dtype.kind == "f":
            self.full = 1.0
            values = np.round(values, 2)
        else:
            self.full = max(self.full, float(np.iinfo(values.dtype).max))
        self.values.update(_count(values))

    @property
    def palette(self) -> list[int]:
        """The colours, packed, the most frequent first; without those of edges and compression."""
        common = [colour for colour, _ in self.colours.most_common()]
        if len(common) <= FEW and not self.lossy:
            return common
        total, chosen = self.colours.total(), list[int]()
        shades = unpack_colours(np.array(common[: FEW * FEW], dtype=np.int32))
        for colour, shade in zip(common, shades, strict=False):
            if self.colours[colour] < MIN_SHARE * total:
                break
            others = unpack_colours(np.array(chosen, dtype=np.int32))
            if not chosen or ((others - shade) ** 2).sum(-1).min() > MIN_DISTANCE**2:
                chosen.append(colour)
        return chosen


def _count(values: Any) -> dict[Any, int]:
    """{value: number}; a table of all values is faster than sorting many of them."""
    if values.dtype.kind == "f" or values.size < values.max() >> 4:
        kinds, counts = np.unique(values, return_counts=True)
    else:
        table = np.bincount(values.ravel())
        kinds = np.flatnonzero(table)
        counts = table[kinds]
    return dict(zip(kinds.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class MaskSurvey:
    """What was found.

    Attributes
    ----------
    masks : int
        Number of masks.
    headers : int
        Number of masks whose headers were read.
    kinds : Counter
        Number of files of each format and mode.
    scales : Counter
        Number of masks by the factor with which they are enlarged, except 1.
    tally : Tally
        Values and colours.
    checked : int
        Number of masks of which header and photo, or also the pixels, were checked.
    problems : list of Problem
        Masks and photos that cannot be used.
    unlisted : dict of int to int
        Pixels of each colour that becomes void because it is not listed.
    scenes : set of str
        Images that are too large to be decoded as a whole.
    """

    masks: int
    headers: int
    kinds: Counter[str]
    scales: Counter[str]
    tally: Tally
    checked: int
    problems: list[Problem]
    unlisted: dict[int, int]
    scenes: set[str]

    def conversions(self) -> list[str]:
        """Sentences about what is converted."""
        found = []
        if self.scales:
            factors = ", ".join(
                f"{count:,} by {scale}" for scale, count in sorted(self.scales.items())
            )
            found.append(
                f"{self.scales.total():,} masks are not of the size of their photos and are scaled "
                f"to it by nearest pixels: {factors}"
            )
        jpegs = sum(count for kind, count in self.kinds.items() if kind.startswith(LOSSY_FORMATS))
        if jpegs:
            found.append(
                f"{jpegs:,} masks are JPEGs, whose compression changes values near edges: they are "
                "rounded to the nearest class, which is half of full scale for a mask of 0 and 255"
            )
        share = sum(self.unlisted.values()) / max(self.tally.colours.total(), 1)
        if share > MIN_SHARE:
            first = ", ".join(f"({colour_name(colour)})" for colour in [*self.unlisted][:3])
            found.append(
                f"{share:.1%} of the pixels of {self.tally.masks:,} masks have colours that are "
                f"not those of a class and become void, such as {first}"
            )
        return found

    def describe(self) -> str:
        """One line with number, kinds, sizes and content of the masks."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.most_common(4))
        parts = [f"{self.masks:,} masks" + (f" ({kinds})" if kinds else "")]
        if self.headers < self.masks:
            parts.append(f"headers of {self.headers:,} read")
        if self.scales:
            sizes = ", ".join(
                f"{n:,} enlarged by {scale}" for scale, n in self.scales.most_common(3)
            )
            parts.append(f"at another size: {sizes}")
        if self.tally.masks:
            parts.append(f"in {self.tally.masks} of them {_content(self.tally)}")
        return "; ".join(parts)


def _content(tally: Tally) -> str:
    """Values and colours with their shares of the pixels."""
    total = max(tally.values.total() + tally.colours.total(), 1)
    parts = []
    if tally.values:
        shown = {f"{value:g}": count for value, count in sorted(tally.values.items())}
        parts.append("values " + _shares(shown, total))
    if tally.colours:
        palette = tally.palette
        own = {f"({colour_name(colour)})": tally.colours[colour] for colour in palette}
        parts.append("colours " + _shares(own, total, len(tally.colours)))
    return " and ".join(parts)


def _shares(counts: dict[str, int], total: int, kinds: int | None = None) -> str:
    limit = 12
    shown = [f"{name} {_percent(count / total)}" for name, count in [*counts.items()][:limit]]
    more = (len(counts) if kinds is None else kinds) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}" if share >= 0.001 else "<0.1%"


def survey_masks(items: Sequence[Item], fmt: MaskFormat) -> MaskSurvey:
    """Look at photos and masks.

    Parameters
    ----------
    items : sequence of Item
        Photos with their masks. Masks in files of their own have an attribute ``paths``.
    fmt : MaskFormat
        How they are to be read.

    Returns
    -------
    MaskSurvey
    """
    silence_pillow()
    chosen = _spread(items, MAX_HEADERS)
    kinds: Counter[str] = Counter()
    scales: Counter[str] = Counter()
    problems: list[Problem] = []
    sound: list[tuple[Item, Orientation]] = []
    known: dict[str, Orientation] = {}
    for item in chosen:
        try:
            orientation = known.get(item.pair.image) or read_orientation(item.pair.image)
            known[item.pair.image] = orientation
            for path in _paths(item):
                kind, scale = _header(path, orientation)
                kinds[kind] += 1
                if scale != 1:
                    scales[_factor(scale)] += 1
        except UnusableFileError as error:
            problems.append(Problem(item.pair.name, str(error)))
        else:
            sound.append((item, orientation))
    tally = Tally()
    sample = _sample(sound)
    for item, orientation in sample:
        try:
            _check(item, orientation, fmt, tally)
        except UnusableFileError as error:
            problems.append(Problem(item.pair.name, str(error)))
    checked = len(sample) + len(chosen) - len(sound)
    unlisted = unlisted_colours(tally.colours, fmt.colours) if fmt.colours else {}
    scenes = {item.pair.name for item, orientation in sound if _is_scene(orientation)}
    return MaskSurvey(
        len(items), len(chosen), kinds, scales, tally, checked, problems, unlisted, scenes
    )


def _paths(item: Item) -> Iterable[str]:
    return getattr(item.mask, "paths", ())


def _header(path: str, orientation: Orientation) -> tuple[str, float]:
    """Kind of a mask, and the factor by which it is enlarged."""
    if _is_scene(orientation):
        size = image_size(path)
        return "scene", max(match_size(size, orientation)) / max(size)
    with open_mask(path) as image:
        mode = "16 bit" if image.mode.startswith("I;16") else MODES.get(image.mode, image.mode)
        own = match_size(image.size[::-1], orientation)
        return f"{image.format} {mode}", max(own) / max(image.size)


def _check(item: Item, orientation: Orientation, fmt: MaskFormat, tally: Tally) -> None:
    """Decode a mask, count its pixels, and raise an UnusableFileError if it cannot be read."""
    paths = tuple(_paths(item))
    if len(paths) != 1:
        item.mask.read(orientation)
        return
    own = orientation.height, orientation.width
    whole = not _is_scene(orientation) or image_size(paths[0]) != own
    parts = [] if whole else list(_parts(*own))
    for address in [join_address(paths[0], part) for part in parts] or paths:
        with open_mask(address) as image:
            pixels = load_mask(image, fmt)
        tally.add(pixels)
        pixels.codes(fmt)
    tally.masks -= max(len(parts) - 1, 0)


def _is_scene(orientation: Orientation) -> bool:
    """Whether a photo, and so its mask, is too large to be decoded as a whole."""
    return orientation.height * orientation.width > MAX_PIXELS


def _parts(height: int, width: int) -> Iterator[Tile]:
    """Parts of a scene, spread evenly."""
    tops, lefts = (
        np.linspace(0, side - PART_SIDE, PARTS).astype(int).tolist() for side in (height, width)
    )
    for top, left in product(tops, lefts):
        yield Tile(top, left, PART_SIDE, PART_SIDE, (top, left, PART_SIDE, PART_SIDE))


def _factor(scale: float) -> str:
    return f"{scale:.3g}"


def _spread(items: Sequence[Any], number: int) -> list[Any]:
    """At most this many of the items, spread evenly."""
    if len(items) <= number:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, number).round().astype(int)]


def _sample(items: Sequence[tuple[Item, Orientation]]) -> list[tuple[Item, Orientation]]:
    """The masks to decode: at least two, and no more pixels than a few seconds allow."""
    if not items:
        return []
    pixels = sum(one.height * one.width for _, one in items) // len(items)
    return _spread(items, int(min(MAX_DECODED, max(2, MAX_SAMPLED // max(pixels, 1)))))
