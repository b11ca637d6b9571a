"""The paper's three tables, and the ranking's quality where the truth is known."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.errors import InputError, MissingDependencyError
from gpgc_dask.data.dataset import check_same_features, provenance, text_values
from gpgc_dask.data.subsets import best_photos
from gpgc_dask.experiments.accuracy import PixelCounts
from gpgc_dask.experiments.nested import fit_nested
from gpgc_dask.experiments.ranking_quality import TrueMasks, quality_table, true_iou
from gpgc_dask.experiments.runner import Run, Runner
from gpgc_dask.experiments.scores import group_scores, random_scores, softmin_scores
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.models.protocol import FittedModel

__all__ = ["SHARES", "Comparison", "compare"]

SHARES = (0.01, 0.02, 0.05, 0.10, 0.15, 0.25, 0.50, 0.75)
"""Shares of the images in Table 3 of the paper."""

KEPT = 0.25
"""Share of the images in Table 2 of the paper."""

MODELS = ("SVM", "GP, c = 1", "GP", "GP-GC, c = 1", "GP-GC", "GP-GC, second look")
RETRAINED = ("SVM", "GP, c = 1", "GP")

PAPER_RULE, AGREEMENT_RULE, RANDOM_RULE = "confidence, c = 1", "agreement", "random"


@dataclass(frozen=True)
class Comparison:
    """Results of a comparison.

    Attributes
    ----------
    train, test : dict
        Origin of the datasets.
    runs : list of Run
        All runs.
    test_names : list of str
        Names of the images of ``Run.per_image``.
    train_names : list of str
        Names of the training images.
    scores : dict
        {rule: (training images,) scores, high = reliable}.
    quality : pandas.DataFrame or None
        How well each rule ranks; None if the truth is unknown.
    table3_reads : int
        Reads of the data for all fits of a row of Table 3 with c = 1.
    """

    train: dict[str, Any]
    test: dict[str, Any]
    runs: list[Run]
    test_names: list[str]
    train_names: list[str]
    scores: dict[str, Array]
    quality: pd.DataFrame | None
    table3_reads: int


def compare(
    train: xr.Dataset,
    test: xr.Dataset,
    *,
    truth: str | PathLike[str] | None = None,
    truth_format: MaskFormat | None = None,
    svm: bool = True,
    svm_rows: int | None = None,
    cleanlab: bool | None = None,
    draws: int = 5,
    shares: Sequence[float] = SHARES,
    announce: Callable[[str], None] | None = None,
) -> Comparison:
    """Run the paper's experiments on a training and a test dataset of the same features.

    Parameters
    ----------
    train, test : xarray.Dataset
        Training images, whose masks may be unreliable, and test images, whose masks are right.
    truth : path, optional
        Folder of the true masks of the training photos, to evaluate the rankings.
    truth_format : MaskFormat, optional
        How the true masks are read. Default: as at ingest.
    svm : bool, default True
        Whether to include the SVM.
    svm_rows : int, optional
        Fit the SVM to at most this many superpixels, of whole images.
    cleanlab : bool, optional
        Whether to include cleanlab's softmin score as a rule. Default: if it is installed.
    draws : int, default 5
        Number of random choices of images to average.
    shares : sequence of float
        Shares of the images in Table 3.
    announce : callable, optional
        Called with a text at the start of each step.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from gpgc_dask import open_dataset
    >>> from gpgc_dask.experiments import compare
    >>> train, test = open_dataset("horses.zarr"), open_dataset("test.zarr")
    >>> results = compare(train, test, svm=False, cleanlab=False, draws=1, shares=(0.5,))
    >>> sorted({run.model for run in results.runs})
    ['GP', 'GP, c = 1', 'GP-GC', 'GP-GC, c = 1', 'GP-GC, second look']
    """
    _check_datasets(train, test)
    true_masks = None if truth is None else TrueMasks(train, truth, truth_format)
    runner = Runner(train, test, svm_rows, announce or (lambda text: None))
    fitted = _table_1(runner, svm=svm, truth=true_masks)
    scores = _scores(runner, fitted, cleanlab)
    _table_2(runner, scores, draws, svm=svm)
    reads = _table_3(runner, scores, shares)
    quality = None if true_masks is None else _quality(runner, scores, true_masks)
    return _collect(runner, scores, quality, reads)


def _collect(
    runner: Runner, scores: dict[str, Array], quality: pd.DataFrame | None, reads: int
) -> Comparison:
    return Comparison(
        train=provenance(runner.train),
        test=provenance(runner.test),
        runs=runner.runs,
        test_names=runner.truth.names,
        train_names=text_values(runner.train["image_name"]).tolist(),
        scores=scores,
        quality=quality,
        table3_reads=reads,
    )


def _check_datasets(train: xr.Dataset, test: xr.Dataset) -> None:
    check_same_features(test, provenance(train), train.sizes["feature"])
    if train.attrs["classes"] != test.attrs["classes"]:
        raise InputError(
            f"the datasets have other classes, {train.attrs['classes']} and "
            f"{test.attrs['classes']}: ingest both with the same options for masks"
        )


def _quality(runner: Runner, scores: dict[str, Array], truth: TrueMasks) -> pd.DataFrame:
    runner.announce("comparing the masks with the truth")
    train = runner.train
    empty = np.array(["empty mask" in flags for flags in text_values(train["flags"])])
    return quality_table(scores, true_iou(train, truth), empty)


def _table_1(runner: Runner, *, svm: bool, truth: TrueMasks | None) -> dict[str, FittedModel]:
    """Fit all models to all images, and the GP to the true masks as an upper bound."""
    fitted: dict[str, FittedModel] = {}
    for name in MODELS[0 if svm else 1 :]:
        model = runner.run(name, table=1)
        if model is None:
            raise InputError(
                f"{name} cannot be fitted on the training dataset ({runner.runs[-1].note}): it "
                "needs two classes and images with labelled superpixels"
            )
        fitted[name] = model
    if truth is not None:
        counts = PixelCounts.read(runner.train, truth).counts
        runner.run("GP", y=counts.argmax(1), rule="true masks", table=1)
    return fitted


def _scores(
    runner: Runner, fitted: dict[str, FittedModel], cleanlab: bool | None
) -> dict[str, Array]:
    """{rule: (photos,) scores of the training images}."""
    train = runner.train
    runner.announce("agreement of each image with the others")
    names = ("GP-GC, c = 1", "GP-GC", "GP-GC, second look")
    paper, solved, default = (fitted[name].review(train) for name in names)
    scores = {
        PAPER_RULE: -paper["noise_variance"].to_numpy(),
        "confidence": -solved["noise_variance"].to_numpy(),
        "agreement, c = 1": paper["agreement"].to_numpy(),
        AGREEMENT_RULE: solved["agreement"].to_numpy(),
        "quality": default["quality"].to_numpy(),
    }
    if "SVM" in fitted:
        svm = fitted["SVM"]
        scores["SVM margin"] = group_scores(train, svm.groups_, np.asarray(svm.group_margin))
    installed = importlib.util.find_spec("cleanlab") is not None
    if cleanlab and not installed:
        raise MissingDependencyError('cleanlab is not installed: pip install "gpgc_dask[cleanlab]"')
    if installed and cleanlab is not False:
        runner.announce("cleanlab's softmin score, out of fold")
        scores["cleanlab softmin"] = softmin_scores(train)
    return scores


def _table_2(runner: Runner, scores: dict[str, Array], draws: int, *, svm: bool) -> None:
    """Fit models to the best quarter by each rule, and to random quarters."""
    n = runner.train.sizes["photo"]
    chosen: list[tuple[str, int | None, Index]] = [
        (rule, None, best_photos(score, KEPT)) for rule, score in scores.items()
    ]
    chosen += [
        (RANDOM_RULE, draw, best_photos(random_scores(n, draw), KEPT)) for draw in range(draws)
    ]
    for name in RETRAINED[0 if svm else 1 :]:
        for rule, draw, photos in chosen:
            runner.run(name, photos, rule=rule, share=KEPT, draw=draw, table=2)


def _table_3(runner: Runner, scores: dict[str, Array], shares: Sequence[float]) -> int:
    """Fit the GP to growing shares; return the reads of the data for all fits with c = 1."""
    reads = 0
    for rule in (PAPER_RULE, AGREEMENT_RULE):
        runner.announce(f"GP, c = 1 on {len(shares)} nested subsets by {rule}")
        subsets = [best_photos(scores[rule], share) for share in sorted(shares)]
        start = time.perf_counter()
        models = fit_nested(runner.train, subsets)
        seconds = (time.perf_counter() - start) / len(models)
        for share, photos, model in zip(sorted(shares), subsets, models, strict=True):
            facts = {"rule": rule, "share": share, "table": 3}
            if model is None:
                runner.add_missing("GP, c = 1", len(photos), "a class is missing", **facts)
            else:
                runner.add("GP, c = 1", model, len(photos), seconds, **facts)
                reads = max(reads, model.n_reads_)
    for share in sorted(shares):
        photos = best_photos(scores[AGREEMENT_RULE], share)
        runner.run("GP", photos, rule=AGREEMENT_RULE, share=share, table=3)
    return reads
