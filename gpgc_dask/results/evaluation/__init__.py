"""Evaluation of predicted masks against true ones, and of two sets of predictions."""

from gpgc_dask.results.evaluation.scores import LEVEL, Evaluation, ImageScore, Scores, evaluate

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]
