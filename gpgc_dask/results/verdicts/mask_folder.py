"""A folder of corrected masks, named as their images."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources.folder import MaskFile
from gpgc_dask.results.verdicts.base import Entry, ImportFormat

__all__ = ["MaskFolder"]

USUAL_SUFFIX = "_mask"


class MaskFolder(ImportFormat):
    """Mask files in the values of the training masks: NAME.png, NAME.jpg.png or NAME_mask.png.

    A person has looked at each of them: masks that are as the given ones are confirmed.
    """

    title = "folder of masks"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """Any folder with an image file."""
        return source.is_dir() and bool(find_images(source))

    def entries(self) -> list[Entry]:
        """One entry per file."""
        found: dict[str, list[str]] = {}
        for name in find_images(self.source):
            image = self._image(name)
            if image is not None:
                found.setdefault(image, []).append(name)
        entries = []
        for image, names in found.items():
            if len(names) > 1:
                reason = f"several files are its mask, {' and '.join(names)}: remove one"
                self.problems.append(Problem(image, reason))
                continue
            mask = MaskFile(str(self.source / names[0]), self.target.format)
            entries.append(Entry(image, mask, finished=True, place=names[0]))
        return entries

    def _image(self, name: str) -> str | None:
        """The image of a mask file: its name without the suffix, as it is, or without _mask."""
        stem = str(PurePosixPath(name).with_suffix(""))
        for suffix in dict.fromkeys((self.options.mask_suffix, "", USUAL_SUFFIX)):
            if stem.endswith(suffix):
                try:
                    return self.target.names.find(stem.removesuffix(suffix))
                except InputError as error:
                    problem = Problem(name, str(error))
        self.problems.append(problem)
        return None
