"""Images by the names that other tools give them."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.slices import is_medical, stem
from gpgc_dask.imaging.files import IMAGE_SUFFIXES

__all__ = ["ImageNames"]


class ImageNames:
    """Finds the image of a dataset that a tool means.

    Tools drop the ending of a name or the folders in front of it, or put other folders there: an
    image is found by the parts at the end of its path, if these fit one image only.

    Parameters
    ----------
    names : iterable of str
        Names of the images.

    Examples
    --------
    >>> from gpgc_dask.imaging.image_names import ImageNames
    >>> names = ImageNames(["a/horse.jpg", "b/horse.jpg", "b/cat.jpg"])
    >>> names.find("cat"), names.find("photos/b/horse.jpg")
    ('b/cat.jpg', 'b/horse.jpg')
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [str(name) for name in names]
        self._exact = {_normal(name): name for name in self.names}
        self._by_end: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for name in self.names:
            parts = _parts(name)
            self._by_end[parts[-1]].append((parts, name))

    def find(self, text: str) -> str:
        """Return the image of this name or path.

        Raises
        ------
        InputError
            If there is none, or more than one.
        """
        found = self.matches(text)
        if not found:
            raise InputError("the dataset has no image of this name")
        if len(found) > 1:
            raise InputError(
                "several images of the dataset have this name: keep the folders in the names"
            )
        return found[0]

    def matches(self, text: str) -> list[str]:
        """All images that this name or path can mean."""
        wanted = _normal(text.replace("\\", "/"))
        if wanted in self._exact:
            return [self._exact[wanted]]
        parts = _parts(wanted)
        known = self._by_end.get(parts[-1], [])
        same = [name for own, name in known if own == parts]
        return same or [name for own, name in known if _same_end(own, parts)]


def _normal(name: str) -> str:
    """A letter may have two Unicode forms; file systems and tools differ in which they store."""
    return unicodedata.normalize("NFC", name)


def _parts(name: str) -> tuple[str, ...]:
    """Parts of a path; no part keeps the ending of an image file."""
    parts = PurePosixPath(_normal(name)).parts or ("",)
    return tuple(_without_ending(part) for part in parts)


def _without_ending(part: str) -> str:
    path = PurePosixPath(part)
    if is_medical(part):
        return stem(part)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else part


def _same_end(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    common = min(len(first), len(second))
    return first[-common:] == second[-common:]
