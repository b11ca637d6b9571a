"""Single runs: a model learned from some images and judged on the test images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.experiments.judging import Judge
from gpgc_dask.models.gp import GP, GPGC
from gpgc_dask.models.svm import MarginSVM

__all__ = ["Bench", "Run"]


@dataclass(frozen=True)
class Run:
    """One cell of a table, and all that is needed to make it again.

    accuracy : average class accuracy in pixels of all test images, a share; NaN where there is none
    per_image : (test images,) the same image by image
    table : of the paper, 1 to 3;  draw : of a random choice
    note : why there is no accuracy, or what to know of it
    """

    number: int
    table: int
    model: str
    rule: str
    share: float
    images: int
    accuracy: float
    per_image: Array
    draw: int | None = None
    reads: float = float("nan")
    seconds: float = 0.0
    redundancy: float = float("nan")
    note: str = ""


@dataclass
class Bench:
    """Trains and judges; keeps every run. ``tell`` hears what begins."""

    train: xr.Dataset
    test: xr.Dataset
    svm_rows: int | None = None
    tell: Callable[[str], None] = lambda text: None
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judge = Judge.of(self.test)

    def model(self, name: str) -> Any:
        """A new model of a name as the tables have it."""
        if name == "SVM":
            return MarginSVM(max_rows=self.svm_rows)
        kind = GPGC if name.startswith("GP-GC") else GP
        return kind(redundancy=1.0 if name.endswith("c = 1") else "auto")

    def run(
        self, name: str, photos: Index | None = None, y: Any = None, **told: Any
    ) -> tuple[Run, Any]:
        """Learn from some photos (None: all) and judge. (run, model or None where it failed).

        told : rule, share and draw of the run
        """
        data = self.train if photos is None else take_photos(self.train, photos)
        images = self.train.sizes["photo"] if photos is None else len(photos)
        of = "" if photos is None else f" on {images} images"
        self.tell(
            f"{name}{of}{' by ' + told['rule'] if 'rule' in told and photos is not None else ''}"
        )
        start = time.perf_counter()
        model = self.model(name)
        try:
            model.fit(data) if y is None else model.fit(data, y)
        except ValueError as error:
            return self._keep(name, images, None, note=_reason(error), **told), None
        return self.judged(name, model, images, time.perf_counter() - start, **told), model

    def judged(self, name: str, model: Any, images: int, seconds: float, **told: Any) -> Run:
        """Keep the run of a model that is fitted."""
        reads, c = getattr(model, "n_reads_", np.nan), getattr(model, "redundancy_", np.nan)
        if not getattr(model, "converged_", True):
            told.setdefault("note", "not settled")
        labels = np.asarray(model.predict(self.test))
        return self._keep(name, images, labels, reads=reads, redundancy=c, seconds=seconds, **told)

    def missing(self, name: str, images: int, note: str, **told: Any) -> Run:
        """Keep a run that could not be made, with its reason."""
        return self._keep(name, images, None, note=note, **told)

    def _keep(self, name: str, images: int, labels: Any, **facts: Any) -> Run:
        verdict = None if labels is None else self.judge(labels)
        unknown = np.full(len(self.judge.names), np.nan)
        told: dict[str, Any] = {"rule": "all", "share": 1.0} | facts
        run = Run(
            number=len(self.runs) + 1,
            model=name,
            images=images,
            accuracy=float("nan") if verdict is None else verdict.accuracy,
            per_image=unknown if verdict is None else verdict.per_image,
            **told,
        )
        self.runs.append(run)
        return run


def _reason(error: Exception) -> str:
    """The beginning of a message, short enough for a cell's note."""
    return str(error).split(":")[0]
