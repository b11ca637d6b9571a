"""From the format that a user names to its mask source."""

from __future__ import annotations

from os import PathLike

from gpgc_dask.imaging.mask_sources.base import MaskOptions, MaskSource
from gpgc_dask.imaging.mask_sources.registry import MASK_SOURCES

__all__ = ["open_source"]


def open_source(
    images: str | PathLike[str], masks: str | PathLike[str], options: MaskOptions | None = None
) -> MaskSource:
    """Open the source of masks of the format that the options name."""
    options = options or MaskOptions()
    return MASK_SOURCES[options.format](images, masks, options)
