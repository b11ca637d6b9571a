"""A folder of mask files, named as their photos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gpgc_dask.core.errors import Problem
from gpgc_dask.core.paths import relative_path
from gpgc_dask.imaging.files import pair_masks
from gpgc_dask.imaging.mask_sources.base import (
    MASK_VALUES,
    Item,
    Mask,
    MaskSource,
    file_stamp,
)
from gpgc_dask.imaging.mask_sources.layouts import check_layout
from gpgc_dask.imaging.masks import Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation

__all__ = ["MaskFile", "MaskFolder", "path_within"]


@dataclass(frozen=True)
class MaskFile:
    """A mask in a file of its own."""

    path: str
    format: MaskFormat

    @property
    def paths(self) -> tuple[str, ...]:
        """The file."""
        return (self.path,)

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes at the photo's own size."""
        return read_mask(self.path, self.format, orientation)


class MaskFolder(MaskSource):
    """A folder of photos and a folder of masks."""

    options_used = MASK_VALUES | {"suffix", "photo_suffix"}

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Pair photos and masks of the same name."""
        options = self.options
        pairing = pair_masks(self.images, self.masks, options.suffix, options.photo_suffix)
        if not pairing.pairs:
            check_layout(self.images, self.masks)
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
        root = provenance["masks"]
        return {PurePosixPath("masks") / path_within(path, root): Path(path) for path in paths}


def path_within(path: str, root: str) -> PurePosixPath:
    """The path of a mask within the folder of masks."""
    place = Path(path)
    within = place.relative_to(root).as_posix() if place.is_relative_to(root) else place.name
    return relative_path(within)
