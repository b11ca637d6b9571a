"""Masks that CVAT exports as "Segmentation mask 1.1": colour pictures and the colours of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources.voc import read_labelmap
from gpgc_dask.imaging.masks import Codes, check_size, make_upright
from gpgc_dask.imaging.photos import Orientation, decoding, open_image
from gpgc_dask.results.verdicts.base import Entry, ImportFormat

__all__ = ["CvatMasks"]

LABELMAP, MASKS = "labelmap.txt", "SegmentationClass"
BACKGROUND = "background"


class CvatMasks(ImportFormat):
    """SegmentationClass/NAME.png with labelmap.txt.

    Such a folder has no tags, and does not show which images a person has finished.
    """

    title = "CVAT segmentation masks 1.1"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """A folder with labelmap.txt and SegmentationClass/."""
        return (source / LABELMAP).is_file() and (source / MASKS).is_dir()

    def entries(self) -> list[Entry]:
        """One entry per mask."""
        colours, unknown = self._colours()
        entries = []
        for file in find_images(self.source / MASKS):
            name = self.find_image(str(PurePosixPath(file).with_suffix("")))
            if name is not None:
                path = str(self.source / MASKS / file)
                entries.append(Entry(name, ColourMask(path, colours, unknown), place=file))
        return entries

    def _colours(self) -> tuple[dict[int, int], dict[int, str]]:
        """({colour: class code}, {colour: why its label cannot be used})."""
        colours: dict[int, int] = {}
        unknown: dict[int, str] = {}
        path = self.source / LABELMAP
        for label, rgb in read_labelmap(path):
            colour = _packed(np.array(rgb))
            if label == BACKGROUND:
                colours[int(colour)] = self.target.empty
                continue
            try:
                colours[int(colour)] = self.target.code(label)
            except InputError as error:
                unknown[int(colour)] = str(error)
        return colours, unknown


@dataclass(frozen=True)
class ColourMask:
    """A mask whose colours stand for classes.

    Attributes
    ----------
    path : str
        The file.
    colours : mapping
        {colour as one number: class code}.
    unknown : mapping
        {colour as one number: why its label cannot be used}.
    """

    path: str
    colours: Mapping[int, int]
    unknown: Mapping[int, str]

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes at the photo's own size."""
        with open_image(self.path) as image, decoding(self.path):
            check_size(image.size[::-1], orientation)
            pixels = _packed(np.asarray(image.convert("RGB")))
        present = np.unique(pixels)
        for colour in present.tolist():
            if colour not in self.colours:
                rgb = ",".join(str(colour >> shift & 255) for shift in (16, 8, 0))
                raise UnusableFileError(
                    self.unknown.get(colour, f"the mask has the colour {rgb}, not in {LABELMAP}")
                )
        codes = np.array([self.colours[colour] for colour in present.tolist()], dtype=np.uint8)
        return make_upright(codes[np.searchsorted(present, pixels)], orientation)


def _packed(colours: np.ndarray) -> np.ndarray:
    """Colours (…, 3) as one number each."""
    return colours.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
