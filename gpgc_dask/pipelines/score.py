"""Quality of masks that a model has never seen, without a dataset of them."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

import dask
import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.errors import (
    InputError,
    PipelineError,
    Problem,
    UnusableFileError,
    list_problems,
)
from gpgc_dask.core.labels import find_labels
from gpgc_dask.core.metrics import group_agreement
from gpgc_dask.core.progress import Meter, work_listener
from gpgc_dask.core.threads import keep_freed_memory, one_blas_thread
from gpgc_dask.data.schema import VOID
from gpgc_dask.execution.batches import client_context, completed_batches, translate_failures
from gpgc_dask.execution.client import Client, KilledWorker, is_in_process
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.imaging.backbones import BackboneLike
from gpgc_dask.imaging.features import describe, label
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, Item, MaskOptions, open_source
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import silence_pillow
from gpgc_dask.imaging.scene_masks import cut_source
from gpgc_dask.models.decisions import decide
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import CLASS_IOU, require_review
from gpgc_dask.pipelines.batches import IMAGES_PER_TASK, killed_result, problem_error, tasks_ahead
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.predict import Predictor
from gpgc_dask.quality.scorer import MaskDescription, QualityScorer

__all__ = ["ScoreReport", "score"]


@dataclass(frozen=True)
class ScoreReport:
    """The outcome of :func:`gpgc_dask.score`.

    Attributes
    ----------
    table : DataFrame
        One row per mask, in the order of their names, with the columns of a review: ``image``,
        ``quality``, ``quality_low``, ``quality_high``, ``bad_probability``, ``agreement``,
        ``flags``, with more than two classes ``iou:CLASS``, ``superpixels``, ``image_path`` and
        ``mask_path``. ``noise_variance`` and ``confidence`` are NaN: they belong to images of a
        fit. Sort it with :func:`gpgc_dask.rank`.
    skipped : list of Problem
        Files that could not be used.
    in_fit : list of str
        Images of a name that was in the fit. If they are the same photos, the model has seen them,
        and the ranking of the model (``gpgc rank``) judges them better.
    elapsed : float
        Seconds that this run took.
    """

    table: pd.DataFrame
    skipped: list[Problem]
    in_fit: list[str]
    elapsed: float


def score(
    model: FittedModel,
    images: str | PathLike[str],
    masks: str | PathLike[str],
    *,
    masks_as: MaskOptions | None = None,
    backbone: BackboneLike | None = None,
    run: RunOptions | None = None,
) -> ScoreReport:
    """Estimate the quality of masks of photos that were not in the fit.

    The features of the photos are computed, the model predicts their masks, and the given masks are
    compared with these as those of the fit were. Nothing is stored.

    Parameters
    ----------
    model : FittedModel
        A model that was fitted on a dataset and reviewed, as :func:`~gpgc_dask.load` reads it.
    images : path
        Folder of photos, with subfolders.
    masks : path
        Folder or file of the masks.
    masks_as : MaskOptions, optional
        Format of the masks and meaning of their values; by default those of the model's dataset.
    backbone : str, Backbone or callable, optional
        The present path of the model's ONNX file, or the Python function it was fitted with.
    run : RunOptions, optional
        Unusable files, progress and cluster.

    Returns
    -------
    ScoreReport

    Examples
    --------
    >>> from gpgc_dask import load, rank, score
    >>> report = score(load("model.zarr"), "new-photos", "true-masks")
    >>> rank(report.table)["rank"].tolist()
    [1, 2, 3]
    """
    start = time.perf_counter()
    run = run or RunOptions()
    scorer = _Scorer.from_model(model, backbone)
    source = open_source(images, masks, masks_as or _stored_options(model))
    cut_source(source, scorer.predictor.recipe.photos)
    _check_classes(model, list(source.mask_format.names))
    if source.problems and (run.on_error == "raise" or not source.items):
        raise problem_error(source.problems)
    scorer.predictor.recipe.extractor.check_photos([item.pair.image for item in source.items])
    rows, problems = _run(scorer, source.items, run)
    if not rows:
        raise PipelineError(
            "none of the images could be used:\n" + list_problems(problems), problems
        )
    table = _table(sorted(rows, key=lambda row: row.image), scorer.quality, scorer.names)
    _, known = find_labels(model.groups_, table["image"].to_numpy(dtype=str))
    return ScoreReport(
        table=table,
        skipped=sorted([*source.problems, *problems], key=lambda problem: problem.name),
        in_fit=table["image"][known].tolist(),
        elapsed=time.perf_counter() - start,
    )


def _stored_options(model: FittedModel) -> MaskOptions:
    stored = (model.dataset_info or {})["source"]
    options: MaskOptions = MASK_SOURCES[stored["format"]].restore_options(stored)
    return options


def _check_classes(model: FittedModel, names: list[str]) -> None:
    expected = list((model.dataset_info or {})["classes"])
    if names != expected:
        raise InputError(
            f"the masks have the classes {', '.join(names)}, and the model was fitted with "
            f"{', '.join(expected)}: pass the same classes in the same order"
        )


# -- work on the cluster -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One mask, as a worker has judged it."""

    image: str
    image_path: str
    mask_path: str
    flags: str
    superpixels: int
    iou: float
    class_iou: Array
    description: MaskDescription | None


@dataclass(frozen=True)
class _Batch:
    rows: list[_Row]
    problems: list[Problem]


@dataclass(frozen=True)
class _Scorer:
    """The parts of a model that workers need."""

    predictor: Predictor
    quality: QualityScorer
    mask_format: MaskFormat
    names: list[str]

    @classmethod
    def from_model(cls, model: FittedModel, backbone: BackboneLike | None) -> _Scorer:
        predictor = Predictor.from_model(model, backbone, with_variance=False)
        require_review(model)
        if model.scorer is None:
            raise InputError(
                "the model was reviewed by an older version, which kept nothing to score other "
                "masks with: fit it again (gpgc fit --overwrite), or in Python "
                "model.review(dataset)"
            )
        origin = model.dataset_info or {}
        return cls(
            predictor,
            model.scorer,
            MaskFormat.from_json(origin["source"]["mask_format"]),
            [str(origin["classes"][number]) for number in model.classes_],
        )

    def run(self, item: Item) -> _Row:
        """Judge one mask."""
        described = describe(item.pair.image, self.predictor.recipe)
        codes = item.mask.read(described.orientation)
        n_stored = len(self.mask_format.names)
        labelled = label(described, codes, n_stored, self.mask_format.background)
        oracle = NumpyOracle(described.features)
        self.predictor.check_features(described.features.shape[1])
        values = oracle.matvec(self.predictor.coef)
        classes = self.predictor.classes
        own = np.full(VOID + 1, VOID, dtype=np.uint8)
        own[classes] = np.arange(classes.size)
        known = (own[labelled.label] != VOID) & (labelled.weight > 0)
        area = np.where(known, labelled.pixels, 0).astype(np.float64)
        given = np.where(known, own[labelled.label], 0).astype(np.intp)
        predicted = decide(values, np.arange(classes.size), self.predictor.calibration)
        image = np.zeros(area.size, dtype=np.intp)
        agreement = group_agreement(given, predicted, image, area, classes.size, np.arange(1))
        description = None
        if area.any():
            description = self.quality.describe(
                described.segments, values, own[labelled.mask], area
            )
        return _Row(
            item.pair.name, item.pair.image, item.pair.mask, ";".join(labelled.flags), area.size,
            float(agreement.iou[0]), agreement.class_iou[0], description,
        )  # fmt: skip


def _score_batch(items: Sequence[Item], scorer: _Scorer) -> _Batch:
    """Judge some masks. Runs on a worker."""
    keep_freed_memory()
    silence_pillow()
    rows, problems = [], []
    for item in items:
        try:
            rows.append(scorer.run(item))
        except UnusableFileError as error:
            problems.append(Problem(item.pair.name, str(error)))
        except Exception as error:
            error.add_note(f"while working on {item.pair.image}")
            raise
    return _Batch(rows, problems)


def _run(
    scorer: _Scorer, items: Sequence[Item], run: RunOptions
) -> tuple[list[_Row], list[Problem]]:
    rows: list[_Row] = []
    problems: list[Problem] = []
    with client_context(run.client) as client, work_listener(run.progress) as listener:
        meter = Meter(listener, "images", len(items), 0)
        limited = one_blas_thread() if is_in_process(client) else nullcontext()
        with limited, closing(_results(client, scorer, items)) as results:
            for size, batch in results:
                rows += batch.rows
                problems += batch.problems
                if batch.problems and run.on_error == "raise":
                    raise problem_error(batch.problems)
                meter(size, len(problems))
    return rows, problems


def _results(
    client: Client, scorer: _Scorer, items: Sequence[Item]
) -> Generator[tuple[int, _Batch]]:
    batches = [[*items[i : i + IMAGES_PER_TASK]] for i in range(0, len(items), IMAGES_PER_TASK)]
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        shared = client.submit(_identity, scorer, pure=False)
    ahead = tasks_ahead(client)
    for batch, future in completed_batches(
        "score", client, _score_batch, batches, (shared,), ahead
    ):
        with translate_failures("the workers", batch[0].pair.name):
            try:
                yield len(batch), future.result()
            except KilledWorker:
                yield len(batch), _Batch([], killed_result(batch[0].pair.name).problems)


def _identity(scorer: _Scorer) -> _Scorer:
    return scorer


# -- the table -----------------------------------------------------------------------------------


def _table(rows: list[_Row], scorer: QualityScorer, classes: list[str]) -> pd.DataFrame:
    judged = [row for row in rows if row.description is not None]
    estimated = scorer.estimate([row.description for row in judged if row.description is not None])
    is_judged = np.array([row.description is not None for row in rows])

    def of_judged(values: Any) -> Array:
        result = np.full(len(rows), np.nan)
        result[is_judged] = values
        return result

    columns: dict[str, Labels] = {"image": _text([row.image for row in rows])}
    columns |= {name: of_judged(values) for name, values in estimated.items()}
    columns["agreement"] = of_judged([row.iou for row in judged])
    if len(classes) > 2:
        for number, name in enumerate(classes):
            columns[CLASS_IOU + name] = of_judged([row.class_iou[number] for row in judged])
    unknown = np.full(len(rows), np.nan)
    columns |= {"noise_variance": unknown, "confidence": unknown}
    columns |= {
        name: _text([getattr(row, name) for row in rows])
        for name in ("flags", "image_path", "mask_path")
    }
    columns["superpixels"] = np.array([row.superpixels for row in rows])
    return pd.DataFrame(columns)


def _text(values: list[str]) -> Labels:
    return np.array(values, dtype=str)
