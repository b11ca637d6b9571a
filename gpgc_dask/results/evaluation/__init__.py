"""Predicted masks against true ones, pixel by pixel, and one set of predictions against another."""

from gpgc_dask.results.evaluation.scores import LEVEL, Evaluation, ImageScore, Scores, evaluate

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]
