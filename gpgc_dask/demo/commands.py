"""What the demo does with its images, as the commands do it.

This imports most of the package, which the demo does while it draws.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd

from gpgc_dask.data.dataset import open_dataset
from gpgc_dask.demo.events import Clock, DemoListener
from gpgc_dask.imaging.backbones import Backbone, BackboneLike
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import rank, require_review
from gpgc_dask.pipelines.ingest import Recipe, RunOptions, ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.evaluation import evaluate
from gpgc_dask.results.ranking import to_csv
from gpgc_dask.results.report import write_report
from gpgc_dask.storage.location import write_whole

__all__ = ["evaluate_masks", "run_commands"]


def run_commands(
    place: Path,
    backbone: BackboneLike,
    loaded_backbone: Backbone,
    events: DemoListener,
    clock: Clock,
    client: AbstractContextManager[Any] | None,
) -> tuple[FittedModel, pd.DataFrame]:
    """Ingest, fit, rank and report, as the commands do; return the model and the ranking."""
    data, model_path, page = place / "data.zarr", place / "model.zarr", place / "report.html"
    chosen = f" --backbone {backbone}" if isinstance(backbone, str) and backbone != "lite0" else ""
    events.command(f"$ gpgc ingest {place / 'images'} {place / 'masks'} -o {data}{chosen}")
    with clock("ingest"):
        ingest(
            place / "images",
            place / "masks",
            data,
            recipe=Recipe(backbone=loaded_backbone),
            run=RunOptions(progress=events.progress, client=client),
        )
    events.command(f"$ gpgc fit {data} -o {model_path}")
    with clock("fit"):
        model = train(data, model_path, run=RunOptions(progress=events.fit))
    ranking = rank(require_review(model))
    events.command(f"$ gpgc rank {model_path} -o {place / 'ranking.csv'}")
    write_whole(place / "ranking.csv", to_csv(ranking).encode())
    events.command(f"$ gpgc report {data} {model_path} -o {page}")
    with clock("report"):
        dataset = open_dataset(data)
        write_report(dataset, model, page, title="gpgc demo", progress=events.progress)
    return model, ranking


def evaluate_masks(place: Path, model: FittedModel) -> tuple[float, float]:
    """Average class accuracy of the given masks, and of those that the model predicts."""
    dataset = open_dataset(place / "data.zarr")
    write_masks(dataset, model.predict(dataset), place / "predicted")
    given, learned = (
        evaluate(place / name, place / "truth").average_class_accuracy
        for name in ("masks", "predicted")
    )
    return given, learned
