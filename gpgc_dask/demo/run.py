"""The whole job on images that it draws itself: ingest, fit, rank, report, and how well it went."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from gpgc_dask.core.errors import ExistsError, NotAFolderError
from gpgc_dask.core.progress import Progress
from gpgc_dask.data.dataset import open_dataset
from gpgc_dask.demo.folders import write_set
from gpgc_dask.imaging.backbones import BackboneLike, find_backbone
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.models.review import rank
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.evaluation import evaluate
from gpgc_dask.results.ranking import to_csv
from gpgc_dask.results.report import write_report
from gpgc_dask.storage.location import write_whole

__all__ = ["DemoListener", "DemoResult", "run_demo"]

WRITTEN = (
    "images",
    "masks",
    "truth",
    "spoilt.csv",
    "data.zarr",
    "model.zarr",
    "ranking.csv",
    "predicted",
    "report.html",
)
"""All that a demo leaves in its folder, beside the mark that says it is one."""

MARK = "demo.json"


@dataclass(frozen=True)
class DemoResult:
    """How a demo went. ``found``: spoilt masks in the worst third of the ranking, by agreement.

    kinds : {way of spoiling: (found, of how many)}
    given_accuracy, learned_accuracy : average class accuracy in pixels against the true masks, of
        the masks that were given and of those that the model predicts after learning from them
    seconds : {stage: by the clock}
    """

    folder: str
    report: str
    images: int
    spoilt: int
    found: int
    kinds: dict[str, tuple[int, int]]
    given_accuracy: float
    learned_accuracy: float
    seconds: dict[str, float]


@dataclass(frozen=True)
class DemoListener:
    """Who hears of a demo's course: ``command`` what each stage would be on the command line."""

    command: Callable[[str], None] = lambda text: None
    progress: Callable[[Progress], None] | None = None
    fit: Callable[[dict[str, Any]], None] | None = None


def run_demo(
    folder: str | PathLike[str],
    *,
    n: int = 200,
    seed: int = 0,
    backbone: BackboneLike = "lite0",
    listener: DemoListener | None = None,
    client: AbstractContextManager[Any] | None = None,
) -> DemoResult:
    """Draw n images, spoil a third of their masks, and find out which.

    folder : a new or empty folder, or that of an earlier demo, whose files are replaced
    client : for the ingest, as :func:`gpgc_dask.pipelines.ingest.ingest` takes it
    """
    found_backbone = find_backbone(backbone)
    place = _cleared(Path(folder))
    hear = listener or DemoListener()
    clock = _Clock()
    with clock("drawing"):
        truth = write_set(place, n, seed=seed, progress=hear.progress)
    data, model_path, page = place / "data.zarr", place / "model.zarr", place / "report.html"
    chosen = f" --backbone {backbone}" if isinstance(backbone, str) and backbone != "lite0" else ""
    hear.command(f"$ gpgc ingest {place / 'images'} {place / 'masks'} -o {data}{chosen}")
    with clock("ingest"):
        ingest(
            place / "images",
            place / "masks",
            data,
            backbone=found_backbone,
            progress=hear.progress,
            client=client,
        )
    hear.command(f"$ gpgc fit {data} -o {model_path}")
    with clock("fit"):
        model = train(data, model_path, progress=hear.fit)
    ranking = rank(model.review_)
    hear.command(f"$ gpgc rank {model_path} -o {place / 'ranking.csv'}")
    write_whole(place / "ranking.csv", to_csv(ranking).encode())
    hear.command(f"$ gpgc report {data} {model_path} -o {page}")
    dataset = open_dataset(data)
    with clock("report"):
        write_report(dataset, model, page, title="gpgc demo", progress=hear.progress)
    with clock("evaluation"):
        write_masks(dataset, model.predict(dataset), place / "predicted")
        given, learned = (
            evaluate(place / name, place / "truth").average_class_accuracy
            for name in ("masks", "predicted")
        )
    kinds = _found(truth, ranking)
    result = DemoResult(
        folder=str(place),
        report=str(page),
        images=n,
        spoilt=sum(of for _, of in kinds.values()),
        found=sum(found for found, _ in kinds.values()),
        kinds=kinds,
        given_accuracy=given,
        learned_accuracy=learned,
        seconds=clock.seconds,
    )
    write_whole(place / MARK, json.dumps(asdict(result), indent=2).encode())
    return result


def _cleared(place: Path) -> Path:
    """The folder without an earlier demo's files; an error where it holds anything else."""
    if place.exists() and not place.is_dir():
        raise NotAFolderError(f"{place} is not a folder: choose another with --out")
    there = {path.name for path in place.iterdir()} if place.exists() else set()
    if there and MARK not in there:
        raise ExistsError(f"{place} is not empty and no earlier demo's: choose another (--out)")
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / MARK, b"{}")
    for name in WRITTEN:
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return place


def _found(truth: pd.DataFrame, ranking: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """{way of spoiling: (how many of them are in the worst third, of how many)}."""
    worst = set(ranking["image"].head(round(len(ranking) / 3)))
    spoilt = truth[truth["kind"] != ""]
    return {
        str(kind): (int(names.isin(worst).sum()), len(names))
        for kind, names in spoilt.groupby("kind")["image"]
    }


@dataclass
class _Clock:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start
