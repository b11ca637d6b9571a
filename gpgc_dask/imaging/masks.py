"""Mask files: from stored values to one class code per pixel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.core.stored import reading_stored
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.colours import match_colours
from gpgc_dask.imaging.photos import Orientation, decoding, open_image

__all__ = [
    "VOID",
    "Codes",
    "MaskFormat",
    "MaskPixels",
    "check_size",
    "load_mask",
    "make_upright",
    "match_size",
    "open_mask",
    "read_mask",
    "resize_codes",
]

Codes = NDArray[np.uint8]
"""(height, width) number of each pixel's class, or VOID."""

MAX_CLASSES = 255

STRIP_PIXELS = 1 << 20
"""Pixels processed together, so that a huge mask needs little additional memory."""

LOSSY_FORMATS = ("JPEG", "MPO")
"""Formats that change the values of a mask near its edges."""

RINGING, CLEAR_SHARE = 64, 0.95
"""A JPEG mask has two values if this share of its pixels is within RINGING of 0 or of 255."""

LOSSY_GREY = 12
"""Largest difference between the bands of a grey JPEG that is stored in colour."""

MAX_LISTED = 8
"""Values in messages."""

CLEAR_GAP = 24
"""Values of classes with this distance can be distinguished in a JPEG mask."""

MAX_SCALE = 32
"""Masks are scaled by at most this factor; what is smaller or larger is not a mask of the photo."""


@dataclass(frozen=True)
class MaskFormat:
    """How the values of a mask are read.

    With none of ``foreground``, ``classes`` and ``threshold`` a mask may hold 0 and one other
    value: background and foreground (0/1 and 0/255 masks alike).

    Parameters
    ----------
    foreground : tuple of int
        Values that are foreground; all others are background.
    classes : tuple of (int, str)
        Value and name of each class; every value must be one of these or void.
    void : tuple of int
        Values of pixels whose class is unknown.
    threshold : float, optional
        For soft masks: a pixel is foreground if its value is at least this share of full scale.
    colours : tuple of (int, int, int, int)
        Red, green, blue and the value they stand for, which is that of a class or void, if masks
        are colour pictures.
    by_colour : bool
        Whether masks have no values but colours, so that those of ``classes`` are mere numbers.
    invert : bool
        Whether foreground and background are swapped.
    """

    foreground: tuple[int, ...] = ()
    classes: tuple[tuple[int, str], ...] = ()
    void: tuple[int, ...] = ()
    threshold: float | None = None
    colours: tuple[tuple[int, int, int, int], ...] = ()
    by_colour: bool = False
    invert: bool = False

    def __post_init__(self) -> None:
        ways = [bool(self.foreground), bool(self.classes), self.threshold is not None]
        if sum(ways) > 1:
            raise InputError("masks: choose one of foreground, classes and threshold")
        if self.classes and not 2 <= len(self.classes) <= MAX_CLASSES:
            raise InputError(f"masks: classes must be 2 to {MAX_CLASSES}, got {len(self.classes)}")
        values = [value for value, _ in self.classes] or list(self.foreground)
        if self.invert and self.classes:
            raise InputError(
                "masks: invert swaps foreground and background, and classes have names instead: "
                "swap their names (--classes)"
            )
        doubled = {v for v in values if values.count(v) > 1} | (set(values) & set(self.void))
        if doubled:
            raise InputError(f"masks: value(s) {_listed(doubled)} have two meanings")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise InputError(
                f"masks: threshold must be above 0 and at most 1, got {self.threshold!r}"
            )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> MaskFormat:
        """Restore the format from a dataset's provenance."""
        with reading_stored("format of the masks"):
            return cls(
                tuple(stored["foreground"]),
                tuple((value, name) for value, name in stored["classes"]),
                tuple(stored["void"]),
                stored["threshold"],
                tuple(tuple(one) for one in stored.get("colours", ())),
                stored.get("by_colour", False),
                stored.get("invert", False),
            )

    @property
    def names_values(self) -> bool:
        """Whether the meaning of some values is specified."""
        return bool(self.foreground or self.classes or self.void)

    @property
    def background(self) -> int | None:
        """Class code of value 0, which an empty mask consists of; None if there is none."""
        return self.values.index(0) if 0 in self.values else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their codes."""
        return tuple(name for _, name in self.classes) or ("background", "foreground")

    @property
    def values(self) -> tuple[int, ...]:
        """Mask value of each class, used when masks are written."""
        return tuple(value for value, _ in self.classes) or (0, 255)

    def codes(self, values: NDArray[Any], *, lossy: bool = False) -> Codes:
        """Convert the values of one mask, (height, width), to class codes.

        With ``lossy`` the values are those of a JPEG, which are not exact near edges.
        """
        codes = self._codes(values, lossy=lossy)
        if self.invert:
            swapped = codes != VOID
            codes[swapped] = 1 - codes[swapped]
        return codes

    def _codes(self, values: NDArray[Any], *, lossy: bool) -> Codes:
        if self.threshold is not None:
            return self._threshold_codes(values, self.threshold)
        if values.dtype.kind == "f":
            raise UnusableFileError(
                "mask holds fractions: set the threshold of the foreground (--threshold 0.5)"
            )
        present = _present(values)
        if lossy:
            values = self._without_ringing(values, present)
            present = _present(values)
        table = np.zeros(int(present[-1]) + 1, dtype=np.uint8)
        table[[v for v in self.void if v < table.size]] = VOID
        named = np.setdiff1d(present, self.void)
        for code, chosen in self._meanings(named):
            table[chosen] = code
        return _look_up(table, values)

    def _without_ringing(self, values: NDArray[Any], present: NDArray[Any]) -> NDArray[Any]:
        """The values of a JPEG mask before its compression."""
        named = np.union1d([value for value, _ in self.classes] or [0, *self.foreground], self.void)
        if self.names_values:
            if np.isin(present, named).all():
                return values
            if not self.classes or np.diff(named).min() < CLEAR_GAP:
                raise UnusableFileError(
                    "mask is a JPEG, whose compression has changed its values: store masks as PNG, "
                    "or set the threshold of the foreground (--threshold 0.5)"
                )
            nearest = named[np.abs(np.arange(present[-1] + 1)[:, None] - named).argmin(1)]
            return nearest.astype(np.uint16)[values]
        full = np.iinfo(values.dtype).max
        if np.array_equal(present, [0]):
            return values
        clear = np.mean((values < RINGING) | (values > full - RINGING))
        if present[-1] <= full - RINGING or clear < CLEAR_SHARE:
            raise UnusableFileError(
                f"mask is a JPEG with values {_listed(present)}, which are not only near 0 and "
                f"{full}: set the threshold of the foreground (--threshold 0.5), or store masks as "
                "PNG"
            )
        return (values > full // 2).view(np.uint8)

    def _meanings(self, present: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
        """(class code, which of the values in the mask) for all values but void."""
        if self.classes:
            unknown = np.setdiff1d(present, [value for value, _ in self.classes])
            if unknown.size:
                raise UnusableFileError(
                    f"mask holds value(s) {_listed(unknown)} that are neither a class nor void: "
                    "name them (--classes), or ignore them "
                    f"(--void {','.join(map(str, unknown[:MAX_LISTED]))})"
                )
            return [
                (code, present[present == value]) for code, (value, _) in enumerate(self.classes)
            ]
        if self.foreground:
            return [(1, np.intersect1d(present, self.foreground))]
        others = present[present != 0]
        if others.size > 1:
            raise UnusableFileError(
                f"mask holds {present.size} values ({_listed(present)}): name the foreground "
                "(--foreground) or the classes (--classes), and void values (--void), or set the "
                "threshold of a soft mask (--threshold)"
            )
        return [(1, others)]

    def _threshold_codes(self, values: NDArray[Any], threshold: float) -> Codes:
        full = 1.0 if values.dtype.kind in "fb" else float(np.iinfo(values.dtype).max)
        codes = (values >= threshold * full).astype(np.uint8)
        for value in self.void:
            codes[values == value] = VOID
        return codes


def read_mask(path: str | PathLike[str], fmt: MaskFormat, orientation: Orientation) -> Codes:
    """Read a mask file.

    Parameters
    ----------
    path : path
        The mask.
    fmt : MaskFormat
        How its values are read.
    orientation : Orientation
        Size and orientation of its photo.

    Returns
    -------
    (height, width) uint8 array
        Class codes, or VOID, at the photo's own size, upright.
    """
    with open_mask(path) as image:
        match_size(image.size[::-1], orientation)
        pixels = load_mask(image, fmt)
    return resize_codes(pixels.codes(fmt), orientation)


@contextmanager
def open_mask(path: str | PathLike[str]) -> Iterator[Any]:
    """Open a mask with PIL, of which only the header is read; errors name it."""
    try:
        with open_image(path) as image, decoding(path):
            yield image
    except UnusableFileError as error:
        text = str(error)
        raise UnusableFileError(
            text if text.startswith("mask") else f"mask {path}: {text}"
        ) from None


@dataclass(frozen=True)
class MaskPixels:
    """The stored content of a mask file.

    Attributes
    ----------
    values : (height, width) or (height, width, 3) array
        Palette indices, classes or grey levels; or 8-bit colours.
    lossy : bool
        Whether compression has changed them.
    """

    values: NDArray[Any]
    lossy: bool = False

    @property
    def is_colour(self) -> bool:
        """Whether they are colours."""
        return self.values.ndim == 3

    def codes(self, fmt: MaskFormat) -> Codes:
        """Convert them to class codes, (height, width)."""
        if not self.is_colour:
            return fmt.codes(self.values, lossy=self.lossy)
        if not fmt.colours:
            raise UnusableFileError(
                "mask is a colour picture: name its colours (--classes FILE.csv with lines "
                "r,g,b,name; --write-classes FILE.csv writes those that there are)"
            )
        unlisted, extended = _unlisted_value(fmt)
        return extended.codes(match_colours(self.values, fmt.colours, unlisted))


def load_mask(image: Any, fmt: MaskFormat) -> MaskPixels:
    """Decode an opened mask.

    Parameters
    ----------
    image : PIL.Image.Image
        The mask; of it the header has been read.
    fmt : MaskFormat
        Whether palettes and greys stand for colours.

    Returns
    -------
    MaskPixels
        At the size of the file.
    """
    image.load()
    lossy = image.format in LOSSY_FORMATS
    if fmt.colours and (picture := _picture(image, fmt)) is not None:
        return MaskPixels(picture, lossy)
    return MaskPixels(_values(image, shades=not fmt.names_values, lossy=lossy), lossy)


def match_size(size: tuple[int, int], orientation: Orientation) -> tuple[int, int]:
    """(height, width) of the photo, upright or as stored, to which a mask has to be scaled.

    Raises
    ------
    UnusableFileError
        If the mask has another shape: its shorter side differs by a pixel or more from that of the
        photo scaled to its longer side.
    """
    sizes = ((orientation.height, orientation.width), orientation.stored)
    for own in (own for own in sizes if own == size):
        return own
    for own in sizes:
        long = int(own[1] > own[0])
        scale = own[long] / size[long]
        short = abs(own[1 - long] / scale - size[1 - long])
        if short < 1 and 1 / MAX_SCALE <= scale <= MAX_SCALE:
            return own
    height, width = sizes[0]
    raise UnusableFileError(
        f"mask is {size[1]}×{size[0]} pixels but its photo {width}×{height}: "
        "a mask must have the size of its photo, or its shape at another size"
    )


def resize_codes(codes: Codes, orientation: Orientation) -> Codes:
    """Scale a mask to the size of its photo, by nearest pixels, and rotate it as the photo."""
    height, width = codes.shape
    size = match_size((height, width), orientation)
    if size != codes.shape:
        rows, columns = (
            ((np.arange(n) + 0.5) * (own / n)).astype(np.intp)
            for n, own in zip(size, codes.shape, strict=True)
        )
        codes = codes[rows[:, None], columns]
    return make_upright(codes, orientation)


def check_size(size: tuple[int, int], orientation: Orientation) -> None:
    """Raise an UnusableFileError if a mask (height, width) does not have the size of its photo.

    The size may be that of the upright photo, or of the photo as stored.
    """
    upright = (orientation.height, orientation.width)
    if size not in (upright, orientation.stored):
        raise UnusableFileError(
            f"mask is {size[1]}×{size[0]} pixels but its photo {upright[1]}×{upright[0]}: "
            "a mask must have the size of its photo"
        )


def make_upright(values: NDArray[Any], orientation: Orientation) -> NDArray[Any]:
    """Rotate a mask that was drawn on the stored pixels of a rotated photo."""
    if values.shape == (orientation.height, orientation.width):
        return values
    flips = {
        Image.Transpose.TRANSPOSE: values.T,
        Image.Transpose.ROTATE_270: np.rot90(values, 3),
        Image.Transpose.TRANSVERSE: np.rot90(values, 2).T,
        Image.Transpose.ROTATE_90: np.rot90(values),
    }
    return flips[orientation.turn]


def _values(image: Any, *, shades: bool, lossy: bool) -> NDArray[Any]:
    """(height, width) values as stored: palette indices, classes, grey levels; or RGB.

    With ``shades`` a palette of greys stands for its greys and not for its indices, which may begin
    with white.
    """
    if image.mode == "P" and shades:
        used = _used_colours(image)
        if np.all(used == used[:, :1]):
            return np.asarray(image.convert("L"))
    if image.mode in ("1", "L", "P", "F", "I") or image.mode.startswith("I;16"):
        values = np.asarray(image)
        if values.dtype == bool:
            return values.view(np.uint8)
        if image.mode == "I":
            if values.min() < 0 or values.max() > 65535:
                raise UnusableFileError(
                    "mask holds values outside 0 … 65535: store classes as 0, 1, 2 …"
                )
            return values.astype(np.uint16)
        return values
    image = image if image.mode in ("RGB", "RGBA") else image.convert("RGBA")
    red, green, blue, *alpha = (np.asarray(band) for band in image.split())
    if _is_grey(red, green, blue, lossy=lossy):
        # A grey image stored as RGB; a cut-out of one shade has its shape in the alpha channel.
        cut_out = alpha and np.ptp(red) == 0 and np.ptp(alpha[0]) > 0
        return alpha[0] if cut_out else green
    return np.asarray(image.convert("RGB"))


def _is_grey(red: NDArray[Any], *others: NDArray[Any], lossy: bool) -> bool:
    """Whether three bands are equal; compression may have changed them a little."""
    if not lossy:
        return all(np.array_equal(red, band) for band in others)
    wide = red.astype(np.int16)
    return all(np.abs(wide - band).max() <= LOSSY_GREY for band in others)


def _picture(image: Any, fmt: MaskFormat) -> NDArray[np.uint8] | None:
    """The colours of a mask, (height, width, 3); None if its values are the classes."""
    if image.mode in ("1", "L"):
        is_picture = fmt.by_colour
    elif image.mode == "P":
        known = {(red, green, blue) for red, green, blue, _ in fmt.colours}
        colours = _used_colours(image).tolist()
        used = {(red, green, blue) for red, green, blue in colours}
        # A palette without these colours, or with one colour several times, is not meant.
        is_picture = fmt.by_colour or (used <= known and len(used) == len(colours))
    else:
        is_picture = image.mode not in ("F", "I") and not image.mode.startswith("I;16")
    return np.asarray(image.convert("RGB")) if is_picture else None


def _used_colours(image: Any) -> NDArray[np.uint8]:
    """(n, 3) colours of a palette that occur in a picture."""
    palette = np.array(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    return palette[_present(np.asarray(image))]


def _unlisted_value(fmt: MaskFormat) -> tuple[int, MaskFormat]:
    """A value for colours that are not in the format, and the format in which it is void."""
    value = max(*fmt.values, *fmt.void, 254) + 1
    return value, replace(fmt, void=(*fmt.void, value))


def _present(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, sorted."""
    flat = values.reshape(-1)
    counts = np.zeros(int(flat.max()) + 1, dtype=np.int64)
    for start in range(0, flat.size, STRIP_PIXELS):
        counts += np.bincount(flat[start : start + STRIP_PIXELS], minlength=counts.size)
    return np.flatnonzero(counts)


def _look_up(table: Codes, values: NDArray[Any]) -> Codes:
    codes = np.empty(values.shape, dtype=np.uint8)
    step = max(STRIP_PIXELS // values.shape[1], 1)
    for top in range(0, len(values), step):
        codes[top : top + step] = table[values[top : top + step]]
    return codes


def _listed(values: Any) -> str:
    """The values, or the first and the last of them if there are many."""
    ordered = sorted(int(value) for value in values)
    if len(ordered) > MAX_LISTED:
        first, last = ordered[: MAX_LISTED - 2], ordered[-2:]
        return f"{', '.join(map(str, first))}, …, {', '.join(map(str, last))}"
    return ", ".join(map(str, ordered))
