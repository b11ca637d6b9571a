"""The formats that rankings can be exported to: what ``gpgc export --to`` offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.results.export.base import ExportFormat

__all__ = ["EXPORTS"]

EXPORTS: Registry[type[ExportFormat]] = Registry(
    "export format",
    {
        "label-studio": "gpgc_dask.results.export.label_studio:LabelStudio",
        "cvat": "gpgc_dask.results.export.cvat:Cvat",
        "fiftyone": "gpgc_dask.results.export.fiftyone:FiftyOne",
        "coco": "gpgc_dask.results.export.coco:Coco",
        "cleanlab": "gpgc_dask.results.export.cleanlab:Cleanlab",
    },
    "gpgc_dask.exports",
)
"""{name: class of the format}."""
