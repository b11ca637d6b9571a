"""Sources of masks: mask files, annotations of many formats, and what others register."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

from gpgc_dask.imaging.mask_sources.registry import MASK_SOURCES

if TYPE_CHECKING:
    from gpgc_dask.imaging.mask_sources.base import (
        Item,
        Mask,
        MaskOptions,
        MaskSource,
        ObjectMask,
        file_digest,
        file_stamp,
    )
    from gpgc_dask.imaging.mask_sources.find import open_source, recognise

__all__ = [
    "MASK_SOURCES",
    "Item",
    "Mask",
    "MaskOptions",
    "MaskSource",
    "ObjectMask",
    "file_digest",
    "file_stamp",
    "open_source",
    "recognise",
]

# `gpgc ingest --help` lists the names and needs no NumPy for that.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "base": [
            "Item",
            "Mask",
            "MaskOptions",
            "MaskSource",
            "ObjectMask",
            "file_digest",
            "file_stamp",
        ],
        "find": ["open_source", "recognise"],
    },
)
