"""Mask files: from stored values to one class code per pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.photos import Orientation, decoding, open_image

__all__ = ["VOID", "Codes", "MaskFormat", "check_size", "make_upright", "read_mask"]

Codes = NDArray[np.uint8]
"""(height, width) number of each pixel's class, or VOID."""

MAX_CLASSES = 255

STRIP_PIXELS = 1 << 20
"""Pixels processed together, so that a huge mask needs little additional memory."""


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
    """

    foreground: tuple[int, ...] = ()
    classes: tuple[tuple[int, str], ...] = ()
    void: tuple[int, ...] = ()
    threshold: float | None = None

    def __post_init__(self) -> None:
        ways = [bool(self.foreground), bool(self.classes), self.threshold is not None]
        if sum(ways) > 1:
            raise InputError("masks: choose one of foreground, classes and threshold")
        if self.classes and not 2 <= len(self.classes) <= MAX_CLASSES:
            raise InputError(f"masks: classes must be 2 to {MAX_CLASSES}, got {len(self.classes)}")
        values = [value for value, _ in self.classes] or list(self.foreground)
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
        return cls(
            tuple(stored["foreground"]),
            tuple((value, name) for value, name in stored["classes"]),
            tuple(stored["void"]),
            stored["threshold"],
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

    def codes(self, values: NDArray[Any]) -> Codes:
        """Convert the values of one mask, (height, width), to class codes."""
        if self.threshold is not None:
            return self._threshold_codes(values, self.threshold)
        if values.dtype.kind == "f":
            raise UnusableFileError(
                "mask holds fractions: set the threshold of the foreground (--threshold 0.5)"
            )
        present = _present(values)
        table = np.zeros(int(present[-1]) + 1, dtype=np.uint8)
        table[[v for v in self.void if v < table.size]] = VOID
        named = np.setdiff1d(present, self.void)
        for code, chosen in self._meanings(named):
            table[chosen] = code
        return _look_up(table, values)

    def _meanings(self, present: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
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
                f"mask holds {present.size} values ({_listed(present)}): name the foreground "
                "(--foreground 1), void values (--void 255) or several classes "
                "(--classes 0=background,1=horse), or set the threshold of a soft mask "
                "(--threshold 0.5)"
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
    try:
        with open_image(path) as image, decoding(path):
            check_size(image.size[::-1], orientation)
            image.load()
            values = make_upright(_values(image, shades=not fmt.names_values), orientation)
    except UnusableFileError as error:
        text = str(error)
        raise UnusableFileError(
            text if text.startswith("mask") else f"mask {path}: {text}"
        ) from None
    return fmt.codes(values)


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


def _values(image: Any, *, shades: bool) -> NDArray[Any]:
    """(height, width) values as stored: palette indices, classes, grey levels.

    With ``shades`` a palette of greys stands for its greys and not for its indices, which may begin
    with white.
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
        # A grey image stored as RGB; a cut-out of one shade has its shape in the alpha channel.
        cut_out = alpha and np.ptp(red) == 0 and np.ptp(alpha[0]) > 0
        return alpha[0] if cut_out else red
    raise UnusableFileError(
        "mask is a colour picture: store one number per pixel instead (grey or palette PNG)"
    )


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


def _listed(values: Any, limit: int = 8) -> str:
    ordered = sorted(int(value) for value in values)
    text = ", ".join(map(str, ordered[:limit]))
    return f"{text}, …" if len(ordered) > limit else text
