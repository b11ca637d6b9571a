"""What every format of verdicts has in common: its entries, and the class to implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.data.verdicts import VerdictKind
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.mask_sources import Mask
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat, check_size, make_upright
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.results.verdicts.names import find_label, label_codes

__all__ = [
    "DrawnMask",
    "Entry",
    "ImportFormat",
    "ImportOptions",
    "Target",
    "count_text",
    "some_names",
]


@dataclass(frozen=True)
class Entry:
    """What a file or folder contains about one image.

    Attributes
    ----------
    image : str
        Name of the image in the dataset.
    mask : Mask or None
        The mask as the person has left it; None if there is only a verdict.
    kind : str or None
        The verdict, if it is named. Otherwise it follows from the mask: "corrected" if it differs
        from the given one, and "confirmed" if it does not and a person has ``finished`` the image.
    finished : bool
        Whether a person has finished the image.
    by, at, note, id : str
        As in :class:`gpgc_dask.data.verdicts.Verdict`; empty if unknown.
    place : str
        Where it comes from, for messages.
    """

    image: str
    mask: Mask | None = None
    kind: VerdictKind | None = None
    finished: bool = False
    by: str = ""
    at: str = ""
    note: str = ""
    id: str = ""
    place: str = ""


@dataclass(frozen=True)
class ImportOptions:
    """Options of formats.

    Attributes
    ----------
    mask_suffix : str
        What follows the image's name in the name of its mask file.
    tasks : str
        JSON export of the Label Studio project, which names the images of the tasks.
    """

    mask_suffix: str = ""
    tasks: str = ""


@dataclass(frozen=True)
class Target:
    """The dataset that verdicts are imported into, as far as formats need it.

    Attributes
    ----------
    names : ImageNames
        Its images.
    format : MaskFormat
        Classes, and the values that stand for them.
    source_format : str
        Format of the masks that the dataset was made from.
    """

    names: ImageNames
    format: MaskFormat
    source_format: str

    @property
    def labels(self) -> dict[str, int]:
        """{label: class code}, with void."""
        return label_codes(self.format)

    def code(self, label: str) -> int:
        """Class code of a label; an InputError if there is none."""
        return find_label(self.labels, label)

    @property
    def empty(self) -> int:
        """Class code of pixels that nothing is drawn on: background, or void if there is none."""
        return VOID if self.format.background is None else self.format.background


@dataclass
class ImportFormat(ABC):
    """A format that verdicts can be imported from.

    A new format is a subclass in a file of its own and a line in
    :mod:`gpgc_dask.results.verdicts.registry`.

    Parameters
    ----------
    source : Path
        The file or folder.
    target : Target
        The dataset.
    options : ImportOptions
        Options of the formats.

    Attributes
    ----------
    problems : list of Problem
        Images and files that cannot be used; those of the same reason are reported together.
    notes : list of str
        What else a user should know.
    """

    source: Path
    target: Target
    options: ImportOptions = field(default_factory=ImportOptions)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    title: ClassVar[str]
    """What it is called in messages."""

    @classmethod
    @abstractmethod
    def recognises(cls, source: Path) -> bool:
        """Whether a file or folder has this format."""

    @abstractmethod
    def entries(self) -> list[Entry]:
        """Read the entries, and collect problems and notes. Masks are read later."""

    def find_image(self, text: str) -> str | None:
        """Name of an image; None, with a problem, if the dataset does not have it."""
        try:
            return self.target.names.find(text)
        except InputError as error:
            self.problems.append(Problem(text, str(error)))
            return None


@dataclass(frozen=True)
class DrawnMask:
    """A mask that is drawn from regions.

    Attributes
    ----------
    size : tuple of int, or None
        (height, width) in pixels; None is the size of the photo.
    regions : tuple of (int, callable)
        Class code of each region, and a function that returns its (height, width) pixels as bool.
        Later ones are drawn over earlier ones.
    empty : int
        Class code of the pixels outside of all regions.
    """

    size: tuple[int, int] | None
    regions: tuple[tuple[int, Callable[[], Any]], ...]
    empty: int

    def read(self, orientation: Orientation) -> Codes:
        """Draw the regions at the photo's own size."""
        size = self.size or (orientation.height, orientation.width)
        check_size(size, orientation)
        codes = np.full(size, self.empty, dtype=np.uint8)
        for code, draw in self.regions:
            codes[draw()] = code
        return make_upright(codes, orientation)


def count_text(number: int, what: str) -> str:
    """A number with a noun, such as "1 image" or "3 images"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def some_names(names: Iterable[str], limit: int = 3) -> str:
    """The first few of some names."""
    known = list(names)
    return ", ".join(known[:limit]) + (", …" if len(known) > limit else "")
