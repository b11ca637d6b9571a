"""From photos and masks to a dataset, and from superpixels back to pixels."""

from gpgc_dask.imaging.errors import IngestError, InputError
from gpgc_dask.imaging.ingest import IngestReport, ingest
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
