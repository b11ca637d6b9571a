"""The formats that verdicts can be imported from: what ``gpgc verdicts --format`` offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.results.verdicts.base import ImportFormat

__all__ = ["IMPORTS"]

IMPORTS: Registry[type[ImportFormat]] = Registry(
    "format of verdicts",
    {
        "csv": "gpgc_dask.results.verdicts.csv_file:CsvFile",
        "label-studio": "gpgc_dask.results.verdicts.label_studio:LabelStudioJson",
        "coco": "gpgc_dask.results.verdicts.coco:CocoAnnotations",
        "cvat": "gpgc_dask.results.verdicts.cvat:CvatXml",
        "label-studio-png": "gpgc_dask.results.verdicts.label_studio_png:LabelStudioPng",
        "cvat-masks": "gpgc_dask.results.verdicts.cvat_masks:CvatMasks",
        "masks": "gpgc_dask.results.verdicts.mask_folder:MaskFolder",
    },
    "gpgc_dask.verdict_imports",
)
"""{name: class of the format}, in the order in which a file or folder is tried."""
