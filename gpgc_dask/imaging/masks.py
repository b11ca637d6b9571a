"""Masks as people store them, to class codes a pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.imaging.photos import Orientation, open_image, reading

__all__ = ["VOID", "Codes", "MaskFormat", "check_size", "read_mask", "upright"]

Codes = NDArray[np.uint8]
"""(height, width) number of each pixel's class, or VOID."""

VOID = 255
MAX_CLASSES = 255

STRIP_PIXELS = 1 << 20
"""Pixels looked at together, so that a huge mask needs little memory beside itself."""


@dataclass(frozen=True)
class MaskFormat:
    """How the values of a mask are to be read.

    foreground : values that are foreground, all others are background
    classes : (value, name) of each class; every value must be one of these or void
    void : values that say nothing about their pixels
    threshold : soft masks: foreground where the value is at least this share of full scale

    With none of the first two and no threshold a mask may hold 0 and one other value: background
    and foreground (0/1 and 0/255 masks alike).
    """

    foreground: tuple[int, ...] = ()
    classes: tuple[tuple[int, str], ...] = ()
    void: tuple[int, ...] = ()
    threshold: float | None = None

    def __post_init__(self) -> None:
        ways = [bool(self.foreground), bool(self.classes), self.threshold is not None]
        if sum(ways) > 1:
            raise InputError("masks: give one of foreground, classes and threshold, not several")
        if self.classes and not 2 <= len(self.classes) <= MAX_CLASSES:
            raise InputError(f"masks: classes must be 2 to {MAX_CLASSES}, got {len(self.classes)}")
        values = [value for value, _ in self.classes] or list(self.foreground)
        doubled = {v for v in values if values.count(v) > 1} | (set(values) & set(self.void))
        if doubled:
            raise InputError(f"masks: value(s) {_listed(doubled)} are given two meanings")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise InputError(
                f"masks: threshold must be above 0 and at most 1, got {self.threshold!r}"
            )

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> MaskFormat:
        """The format that a dataset's provenance tells of."""
        return cls(
            tuple(stored["foreground"]),
            tuple((value, name) for value, name in stored["classes"]),
            tuple(stored["void"]),
            stored["threshold"],
        )

    @property
    def names_values(self) -> bool:
        """Whether somebody said what certain values mean."""
        return bool(self.foreground or self.classes or self.void)

    @property
    def background(self) -> int | None:
        """Code of the class that an empty mask is all of: that of value 0."""
        return self.values.index(0) if 0 in self.values else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their codes."""
        return tuple(name for _, name in self.classes) or ("background", "foreground")

    @property
    def values(self) -> tuple[int, ...]:
        """The value that stands for each class when masks are painted."""
        return tuple(value for value, _ in self.classes) or (0, 255)

    def codes(self, values: NDArray[Any]) -> Codes:
        """Class codes of the values of one mask."""
        if self.threshold is not None:
            return self._soft(values, self.threshold)
        if values.dtype.kind == "f":
            raise UnusableFileError(
                "mask holds fractions: say from where on they are foreground (--threshold 0.5)"
            )
        present = _present(values)
        table = np.zeros(int(present[-1]) + 1, dtype=np.uint8)
        table[[v for v in self.void if v < table.size]] = VOID
        named = np.setdiff1d(present, self.void)
        for code, chosen in self._meaning(named):
            table[chosen] = code
        return _looked_up(table, values)

    def _meaning(self, present: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
        """(class code, which of the values in the mask) for all values but void."""
        if self.classes:
            unknown = np.setdiff1d(present, [value for value, _ in self.classes])
            if unknown.size:
                raise UnusableFileError(
                    f"mask holds value(s) {_listed(unknown)} that are neither a class nor void: "
                    "name them (--classes, --void)"
                )
            return [
                (code, present[present == value]) for code, (value, _) in enumerate(self.classes)
            ]
        if self.foreground:
            return [(1, np.intersect1d(present, self.foreground))]
        others = present[present != 0]
        if others.size > 1:
            raise UnusableFileError(
                f"mask holds {present.size} values ({_listed(present)}): say which are foreground "
                "(--foreground 1), which are void (--void 255), which are classes of their own "
                "(--classes 0=background,1=horse), or from where on a soft mask is foreground "
                "(--threshold 0.5)"
            )
        return [(1, others)]

    def _soft(self, values: NDArray[Any], threshold: float) -> Codes:
        full = 1.0 if values.dtype.kind in "fb" else float(np.iinfo(values.dtype).max)
        codes = (values >= threshold * full).astype(np.uint8)
        for value in self.void:
            codes[values == value] = VOID
        return codes


def read_mask(path: str | PathLike[str], fmt: MaskFormat, orientation: Orientation) -> Codes:
    """Class codes of the mask file for a photo of this orientation, at the photo's own size."""
    try:
        with open_image(path) as image, reading(path):
            check_size(image.size[::-1], orientation)
            image.load()
            values = upright(_values(image, shades=not fmt.names_values), orientation)
    except UnusableFileError as error:
        text = str(error)
        raise UnusableFileError(
            text if text.startswith("mask") else f"mask {path}: {text}"
        ) from None
    return fmt.codes(values)


def check_size(found: tuple[int, int], orientation: Orientation) -> None:
    """Complain of a mask (height, width) that fits its photo neither upright nor as stored."""
    upright = (orientation.height, orientation.width)
    if found not in (upright, orientation.stored):
        raise UnusableFileError(
            f"mask is {found[1]}×{found[0]} pixels but its photo {upright[1]}×{upright[0]}: "
            "a mask must have the size of its photo"
        )


def upright(values: NDArray[Any], orientation: Orientation) -> NDArray[Any]:
    """Masks drawn on the stored pixels of a turned photo are turned with it."""
    if values.shape == (orientation.height, orientation.width):
        return values
    flips = {
        Image.Transpose.TRANSPOSE: values.T,
        Image.Transpose.ROTATE_270: np.rot90(values, 3),
        Image.Transpose.TRANSVERSE: np.rot90(values, 2).T,
        Image.Transpose.ROTATE_90: np.rot90(values),
    }
    return flips[orientation.turn]


def _values(image: Any, *, shades: bool) -> NDArray[Any]:
    """(height, width) values as stored: palette indices, classes, grey levels.

    shades : a palette of greys stands for its greys and not for its indices, which may begin with
        white
    """
    if image.mode == "P" and shades:
        palette = np.array(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
        used = palette[_present(np.asarray(image))]
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
    if np.array_equal(red, green) and np.array_equal(red, blue):
        # Grey in colour's clothing; a cut-out of one shade has its shape in the alpha channel.
        cut_out = alpha and np.ptp(red) == 0 and np.ptp(alpha[0]) > 0
        return alpha[0] if cut_out else red
    raise UnusableFileError(
        "mask is a colour picture: store one number a pixel instead (grey or palette PNG)"
    )


def _present(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, sorted."""
    flat = values.reshape(-1)
    counts = np.zeros(int(flat.max()) + 1, dtype=np.int64)
    for start in range(0, flat.size, STRIP_PIXELS):
        counts += np.bincount(flat[start : start + STRIP_PIXELS], minlength=counts.size)
    return np.flatnonzero(counts)


def _looked_up(table: Codes, values: NDArray[Any]) -> Codes:
    codes = np.empty(values.shape, dtype=np.uint8)
    step = max(STRIP_PIXELS // values.shape[1], 1)
    for top in range(0, len(values), step):
        codes[top : top + step] = table[values[top : top + step]]
    return codes


def _listed(values: Any, most: int = 8) -> str:
    ordered = sorted(int(value) for value in values)
    text = ", ".join(map(str, ordered[:most]))
    return f"{text}, …" if len(ordered) > most else text
