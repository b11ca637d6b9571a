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
from gpgc_dask.experiments.judging import Judge
from gpgc_dask.experiments.nested import fit_nested
from gpgc_dask.experiments.quality import TrueMasks, quality_table, true_iou
from gpgc_dask.experiments.rules import of_groups, random_scores, softmin_scores
from gpgc_dask.experiments.runs import Bench, Run
from gpgc_dask.imaging.masks import MaskFormat

__all__ = ["SHARES", "Comparison", "compare"]

SHARES = (0.01, 0.02, 0.05, 0.10, 0.15, 0.25, 0.50, 0.75)
"""Of the images by which the paper's Table 3 is made."""

KEPT = 0.25
"""Share of the images by which its Table 2 is made."""

MODELS = ("SVM", "GP, c = 1", "GP", "GP-GC, c = 1", "GP-GC")
RETRAINED = ("SVM", "GP, c = 1", "GP")

PAPER_RULE, AGREEMENT_RULE, RANDOM_RULE = "confidence, c = 1", "agreement", "random"


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    runs : every run;  test_names : the images of ``Run.per_image``
    scores : {rule: (training images,) its score, high = reliable}
    quality : how well each rule ranks, where the truth is known
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
    tell: Callable[[str], None] | None = None,
) -> Comparison:
    """Run the paper's experiments on a training and a test dataset of the same features.

    Parameters
    ----------
    train, test : as ``open_dataset`` gives them; the masks of ``test`` are taken for the truth
    truth : folder of the training photos' true masks, to judge the rankings by
    svm : with the SVM;  svm_rows : on at most so many rows of whole images
    cleanlab : with its softmin score as a rule; by default where it is installed
    draws : random choices of images, to be averaged
    tell : hears what begins

    Examples
    --------
    >>> from gpgc_dask import open_dataset
    >>> from gpgc_dask.experiments import compare
    >>> train, test = open_dataset("horses.zarr"), open_dataset("test.zarr")
    >>> found = compare(train, test, svm=False, cleanlab=False, draws=1, shares=(0.5,))
    >>> sorted({run.model for run in found.runs})
    ['GP', 'GP, c = 1', 'GP-GC', 'GP-GC, c = 1']
    """
    check_same_features(test, provenance(train), train.sizes["feature"])
    if train.attrs["classes"] != test.attrs["classes"]:
        raise InputError(
            f"the datasets have other classes, {train.attrs['classes']} and "
            f"{test.attrs['classes']}: ingest both with the same masks' options"
        )
    judged = None if truth is None else TrueMasks(train, truth, truth_format)
    bench = Bench(train, test, svm_rows, tell or (lambda text: None))
    fitted = _table_1(bench, svm=svm, truth=judged)
    scores = _scores(bench, fitted, cleanlab)
    _table_2(bench, scores, draws, svm=svm)
    reads = _table_3(bench, scores, shares)
    quality = None
    if judged is not None:
        bench.tell("comparing the masks with the truth")
        empty = np.array(["empty mask" in flags for flags in text_values(train["flags"])])
        quality = quality_table(scores, true_iou(train, judged), empty)
    return Comparison(
        train=provenance(train),
        test=provenance(test),
        runs=bench.runs,
        test_names=bench.judge.names,
        train_names=text_values(train["image_name"]).tolist(),
        scores=scores,
        quality=quality,
        table3_reads=reads,
    )


def _table_1(bench: Bench, *, svm: bool, truth: TrueMasks | None) -> dict[str, Any]:
    """All models on all images; and the GP on the true masks, as a ceiling."""
    fitted = {}
    for name in MODELS[0 if svm else 1 :]:
        _, fitted[name] = bench.run(name, table=1)
        if fitted[name] is None:
            raise InputError(
                f"{name} cannot be fitted on the training dataset ({bench.runs[-1].note}): it "
                "needs two classes and images with labelled superpixels"
            )
    if truth is not None:
        counts = Judge.of(bench.train, truth).counts
        bench.run("GP", y=counts.argmax(1), rule="true masks", table=1)
    return fitted


def _scores(bench: Bench, fitted: dict[str, Any], cleanlab: bool | None) -> dict[str, Array]:
    """{rule: score of each training image}."""
    train = bench.train
    bench.tell("agreement of every image with the others")
    paper, solved = (fitted[name].review(train) for name in ("GP-GC, c = 1", "GP-GC"))
    scores = {
        PAPER_RULE: -paper["noise_variance"].to_numpy(),
        "confidence": -solved["noise_variance"].to_numpy(),
        "agreement, c = 1": paper["agreement"].to_numpy(),
        AGREEMENT_RULE: solved["agreement"].to_numpy(),
    }
    if "SVM" in fitted:
        margin = fitted["SVM"]
        scores["SVM margin"] = of_groups(train, margin.groups_, margin.group_margin_)
    there = importlib.util.find_spec("cleanlab") is not None
    if cleanlab and not there:
        raise MissingDependencyError('cleanlab is not installed: pip install "gpgc_dask[cleanlab]"')
    if there and cleanlab is not False:
        bench.tell("cleanlab's softmin score, out of fold")
        scores["cleanlab softmin"] = softmin_scores(train)
    return scores


def _table_2(bench: Bench, scores: dict[str, Array], draws: int, *, svm: bool) -> None:
    """Models retrained on the best quarter by each rule, and on random quarters."""
    n = bench.train.sizes["photo"]
    chosen: list[tuple[str, int | None, Index]] = [
        (rule, None, best_photos(score, KEPT)) for rule, score in scores.items()
    ]
    chosen += [
        (RANDOM_RULE, draw, best_photos(random_scores(n, draw), KEPT)) for draw in range(draws)
    ]
    for name in RETRAINED[0 if svm else 1 :]:
        for rule, draw, photos in chosen:
            bench.run(name, photos, rule=rule, share=KEPT, draw=draw, table=2)


def _table_3(bench: Bench, scores: dict[str, Array], shares: Sequence[float]) -> int:
    """The GP on growing shares of the best; reads of the data that all with c = 1 took a rule."""
    reads = 0
    for rule in (PAPER_RULE, AGREEMENT_RULE):
        bench.tell(f"GP, c = 1 on {len(shares)} nested subsets by {rule}")
        subsets = [best_photos(scores[rule], share) for share in sorted(shares)]
        start = time.perf_counter()
        models = fit_nested(bench.train, subsets)
        seconds = (time.perf_counter() - start) / len(models)
        for share, photos, model in zip(sorted(shares), subsets, models, strict=True):
            told = {"rule": rule, "share": share, "table": 3}
            if model is None:
                bench.missing("GP, c = 1", len(photos), "a class is missing", **told)
            else:
                bench.judged("GP, c = 1", model, len(photos), seconds, **told)
                reads = max(reads, model.n_reads_)
    for share in sorted(shares):
        photos = best_photos(scores[AGREEMENT_RULE], share)
        bench.run("GP", photos, rule=AGREEMENT_RULE, share=share, table=3)
    return reads
