"""Evaluation of predicted masks against true ones, and agreement of two annotators."""

from gpgc_dask.results.evaluation.agreement import (
    Agreement,
    ClassAgreement,
    ImageAgreement,
    compare_annotators,
)
from gpgc_dask.results.evaluation.measures import ClassScore
from gpgc_dask.results.evaluation.scores import LEVEL, Evaluation, ImageScore, Scores, evaluate

__all__ = [
    "LEVEL",
    "Agreement",
    "ClassAgreement",
    "ClassScore",
    "Evaluation",
    "ImageAgreement",
    "ImageScore",
    "Scores",
    "compare_annotators",
    "evaluate",
]
