"""Find unreliable annotation, and learn a model in which it does no harm: GP-GC on Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.clusters.connect import connect
    from gpgc_dask.core import errors
    from gpgc_dask.core.errors import GpgcError
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.imaging.features import Recipe
    from gpgc_dask.imaging.image_info import ImageInfo
    from gpgc_dask.imaging.mask_sources import MaskOptions
    from gpgc_dask.imaging.painting import write_masks
    from gpgc_dask.imaging.photo_format import PhotoFormat
    from gpgc_dask.models.gp import GP, GPGC
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import rank
    from gpgc_dask.models.svm import MarginSVM
    from gpgc_dask.pipelines.ingest import ingest
    from gpgc_dask.pipelines.options import RunOptions
    from gpgc_dask.pipelines.predict import predict_masks
    from gpgc_dask.pipelines.score import score
    from gpgc_dask.pipelines.train import train
    from gpgc_dask.pipelines.update import update
    from gpgc_dask.results.evaluation import compare_annotators, evaluate
    from gpgc_dask.results.report import write_report

__all__ = [
    "GP",
    "GPGC",
    "GpgcError",
    "ImageInfo",
    "MarginSVM",
    "MaskOptions",
    "PhotoFormat",
    "Recipe",
    "RunOptions",
    "__version__",
    "compare_annotators",
    "connect",
    "errors",
    "evaluate",
    "ingest",
    "load",
    "open_dataset",
    "predict_masks",
    "rank",
    "score",
    "train",
    "update",
    "write_masks",
    "write_report",
]

__version__ = "0.1.0"

# Importing these takes seconds, which `gpgc --help` should not.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "clusters.connect": ["connect"],
        "core": ["errors"],
        "core.errors": ["GpgcError"],
        "data.dataset": ["open_dataset"],
        "imaging.features": ["Recipe"],
        "imaging.image_info": ["ImageInfo"],
        "imaging.mask_sources": ["MaskOptions"],
        "imaging.painting": ["write_masks"],
        "imaging.photo_format": ["PhotoFormat"],
        "models.gp": ["GP", "GPGC"],
        "models.persistence": ["load"],
        "models.review": ["rank"],
        "models.svm": ["MarginSVM"],
        "pipelines.ingest": ["ingest"],
        "pipelines.options": ["RunOptions"],
        "pipelines.predict": ["predict_masks"],
        "pipelines.score": ["score"],
        "pipelines.train": ["train"],
        "pipelines.update": ["update"],
        "results.evaluation": ["compare_annotators", "evaluate"],
        "results.report": ["write_report"],
    },
)
