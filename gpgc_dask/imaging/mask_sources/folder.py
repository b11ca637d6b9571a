"""A folder of mask files, named as their photos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.paths import relative_path
from gpgc_dask.imaging.files import by_stem, find_images, pair_masks
from gpgc_dask.imaging.mask_sources.base import Item, Mask, MaskSource, file_stamp
from gpgc_dask.imaging.masks import Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation

__all__ = ["MaskFile", "MaskFolder"]


@dataclass(frozen=True)
class MaskFile:
    """A mask in a file of its own."""

    path: str
    format: MaskFormat

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes at the photo's own size."""
        return read_mask(self.path, self.format, orientation)


class MaskFolder(MaskSource):
    """A folder of photos and a folder of masks."""

    options_used = frozenset(("suffix", "foreground", "classes", "void", "threshold"))

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Pair photos and masks of the same name."""
        pairing = pair_masks(self.images, self.masks, self.options.suffix)
        if not pairing.pairs and _has_answers(self.images, self.masks):
            raise InputError(
                f"{self.masks} has a folder of masks for each photo, not a mask: several masks per "
                "photo are another format (format, --format answers)"
            )
        items = [
            Item(
                pair,
                f"{file_stamp(pair.image)} {file_stamp(pair.mask)}",
                MaskFile(pair.mask, self.mask_format),
            )
            for pair in pairing.pairs
        ]
        return items, pairing.problems

    @classmethod
    def restore(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> list[Mask | None]:
        """Masks are where they were at ingest."""
        mask_format = MaskFormat.from_json(provenance["mask_format"])
        return [MaskFile(path, mask_format) for path in paths]

    @classmethod
    def select(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> dict[PurePosixPath, Path | bytes]:
        """The mask files, in a folder ``masks``."""
        root = Path(provenance["masks"])
        return {PurePosixPath("masks") / _relative(Path(path), root): Path(path) for path in paths}


def _has_answers(images: str, masks: str) -> bool:
    """Whether some folder of masks is named as a photo."""
    return any((Path(masks) / stem).is_dir() for stem in by_stem(find_images(images)))


def _relative(path: Path, root: Path) -> PurePosixPath:
    """The path of a mask within the folder of masks."""
    within = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return relative_path(within)
