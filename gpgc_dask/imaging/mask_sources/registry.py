"""The registered mask sources.

To add one, write a :class:`~gpgc_dask.imaging.mask_sources.base.MaskSource` in a module of its own
and add a line to the table here, or an entry point in the group ``gpgc_dask.mask_sources``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.imaging.mask_sources.base import MaskSource

__all__ = ["MASK_SOURCES"]

MASK_SOURCES: Registry[type[MaskSource]] = Registry(
    "format of masks",
    {
        "masks": "gpgc_dask.imaging.mask_sources.folder:MaskFolder",
        "answers": "gpgc_dask.imaging.mask_sources.answers:AnswerFolder",
        "layers": "gpgc_dask.imaging.mask_sources.layers:LayerFolder",
        "coco-panoptic": "gpgc_dask.imaging.mask_sources.panoptic:PanopticFile",
        "coco": "gpgc_dask.imaging.mask_sources.coco:CocoFile",
        "yolo": "gpgc_dask.imaging.mask_sources.yolo:YoloFolder",
        "voc": "gpgc_dask.imaging.mask_sources.voc:VocFolder",
        "cvat": "gpgc_dask.imaging.mask_sources.cvat:CvatFile",
        "labelme": "gpgc_dask.imaging.mask_sources.labelme:LabelMeFolder",
        "label-studio": "gpgc_dask.imaging.mask_sources.label_studio:LabelStudioFile",
    },
    "gpgc_dask.mask_sources",
)
"""{format: mask source class}, where format is what ``gpgc ingest --format`` takes."""
