"""The demo: ingest, fit, rank and report on drawn images, and how well that works."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from gpgc_dask.core.errors import ExistsError, NotAFolderError
from gpgc_dask.demo.events import Clock, DemoListener
from gpgc_dask.demo.folders import write_set
from gpgc_dask.imaging.backbones import BackboneLike, find_backbone
from gpgc_dask.storage.location import write_whole

__all__ = ["DemoListener", "DemoResult", "run_demo"]

WRITTEN = (
    "images",
    "masks",
    "truth",
    "corrupted.csv",
    "data.zarr",
    "model.zarr",
    "ranking.csv",
    "predicted",
    "report.html",
)
"""What a demo writes to its folder, next to ``MARK``."""

MARK = "demo.json"
"""The results; marks the folder of a demo."""


@dataclass(frozen=True)
class DemoResult:
    """Results of a demo.

    Attributes
    ----------
    folder, report : str
        Paths of the folder and of the report.
    images : int
        Number of images.
    corrupted : int
        Number of corrupted masks.
    found : int
        Number of corrupted masks in the worst third of the ranking by quality.
    kinds : dict
        {kind of corruption: (number found, number of masks)}.
    given_accuracy : float
        Average class accuracy of the given masks in pixels, compared with the true ones.
    learned_accuracy : float
        The same for the masks that the model predicts.
    seconds : dict
        {stage: seconds}.
    """

    folder: str
    report: str
    images: int
    corrupted: int
    found: int
    kinds: dict[str, tuple[int, int]]
    given_accuracy: float
    learned_accuracy: float
    seconds: dict[str, float]


def run_demo(
    folder: str | PathLike[str],
    *,
    n: int = 200,
    seed: int = 0,
    backbone: BackboneLike = "lite0",
    listener: DemoListener | None = None,
    client: AbstractContextManager[Any] | None = None,
) -> DemoResult:
    """Draw images, corrupt a third of their masks, and find the corrupted ones.

    Parameters
    ----------
    folder : path
        A new or empty folder, or the folder of an earlier demo, whose files are replaced.
    n : int, default 200
        Number of images.
    seed : int, default 0
        Seed of the images.
    backbone : str or Backbone, default "lite0"
        As in :func:`gpgc_dask.ingest`.
    listener : DemoListener, optional
        Functions to call while the demo runs.
    client : context manager, optional
        Dask client for the ingest.

    Returns
    -------
    DemoResult
    """
    loaded_backbone = find_backbone(backbone)
    place = _clear(Path(folder))
    events = listener or DemoListener()
    clock = Clock()
    with clock("drawing"), ThreadPoolExecutor(1) as pool:
        loading = pool.submit(import_module, "gpgc_dask.demo.commands")
        truth = write_set(place, n, seed=seed, progress=events.progress)
        commands = loading.result()
    model, ranking = commands.run_commands(place, backbone, loaded_backbone, events, clock, client)
    with clock("evaluation"):
        given, learned = commands.evaluate_masks(place, model)
    kinds = _count_found(truth, ranking)
    result = DemoResult(
        folder=str(place),
        report=str(place / "report.html"),
        images=n,
        corrupted=sum(of for _, of in kinds.values()),
        found=sum(found for found, _ in kinds.values()),
        kinds=kinds,
        given_accuracy=given,
        learned_accuracy=learned,
        seconds=clock.seconds,
    )
    write_whole(place / MARK, json.dumps(asdict(result), indent=2).encode())
    return result


def _clear(place: Path) -> Path:
    """Remove the files of an earlier demo; raise an error if the folder holds anything else."""
    if place.exists() and not place.is_dir():
        raise NotAFolderError(f"{place} is not a folder: choose another with --out")
    names = {path.name for path in place.iterdir()} if place.exists() else set()
    if names and MARK not in names:
        raise ExistsError(
            f"{place} is neither empty nor the folder of a demo: choose another (--out)"
        )
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / MARK, b"{}")
    for name in WRITTEN:
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return place


def _count_found(truth: pd.DataFrame, ranking: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """{kind of corruption: (number in the worst third, number of masks)}."""
    worst = set(ranking["image"].head(round(len(ranking) / 3)))
    corrupted = truth[truth["kind"] != ""]
    return {
        str(kind): (int(names.isin(worst).sum()), len(names))
        for kind, names in corrupted.groupby("kind")["image"]
    }
