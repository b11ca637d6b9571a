"""From photos and masks to a dataset, and from superpixels back to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.imaging.errors import IngestError, InputError
    from gpgc_dask.imaging.ingesting import IngestReport, ingest
    from gpgc_dask.imaging.painting import paint, paint_image, write_masks
    from gpgc_dask.imaging.prediction import PredictReport, predict_masks

__all__ = [
    "IngestError",
    "IngestReport",
    "InputError",
    "PredictReport",
    "ingest",
    "paint",
    "paint_image",
    "predict_masks",
    "write_masks",
]

# Workers need a module or two of this room, and those that they do not need take a second.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "errors": ["IngestError", "InputError"],
        "ingesting": ["IngestReport", "ingest"],
        "painting": ["paint", "paint_image", "write_masks"],
        "prediction": ["PredictReport", "predict_masks"],
    },
)
