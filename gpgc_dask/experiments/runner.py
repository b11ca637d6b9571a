"""Single runs: a model fitted to some images and evaluated on the test images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.experiments.accuracy import PixelCounts
from gpgc_dask.models.gp import GP, GPGC
from gpgc_dask.models.protocol import Estimator, FittedModel
from gpgc_dask.models.svm import MarginSVM

__all__ = ["Run", "Runner"]


@dataclass(frozen=True)
class Run:
    """A fit and its accuracy: one cell of a table, or a part of it.

    Attributes
    ----------
    number : int
        Number of the run, from 1.
    table : int
        Table of the paper, 1 to 3.
    model, rule : str
        Name of the model, and the rule that chose the images.
    share : float
        Share of the training images.
    images : int
        Number of training images.
    accuracy : float
        Average class accuracy in pixels of all test images, a share; NaN if there is none.
    per_image : (test images,) array
        Average class accuracy of each test image.
    draw : int, optional
        Number of a random choice.
    reads, seconds : float
        Reads of the training data, and time of the fit.
    redundancy : float
        Learned redundancy; NaN if the model has none.
    note : str
        Why there is no accuracy, or a remark on it.
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
class Runner:
    """Fits models to a training dataset, evaluates them on a test dataset and keeps every run.

    Parameters
    ----------
    train, test : xarray.Dataset
        Datasets of the same features.
    svm_rows : int, optional
        Number of superpixels that the SVM is fitted to at most.
    announce : callable
        Called with a text at the start of each step.
    """

    train: xr.Dataset
    test: xr.Dataset
    svm_rows: int | None = None
    announce: Callable[[str], None] = lambda text: None
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.truth = PixelCounts.read(self.test)

    def new_model(self, name: str) -> Estimator:
        """A new model by its name in the tables; those of the paper have no second look."""
        if name == "SVM":
            return MarginSVM(max_rows=self.svm_rows)
        kind = GPGC if name.startswith("GP-GC") else GP
        rounds = 2 if name.endswith("second look") else 0
        return kind(redundancy=1.0 if name.endswith("c = 1") else "auto", rounds=rounds)

    def run(
        self, name: str, photos: Index | None = None, y: Any = None, **facts: Any
    ) -> FittedModel | None:
        """Fit a model and evaluate it.

        Parameters
        ----------
        name : str
            Name of the model in the tables.
        photos : (n,) array of int, optional
            Training photos. Default: all photos.
        y : (N,) array, optional
            Labels of the superpixels in place of the given ones.
        **facts
            Table, rule, share and draw of the run.

        Returns
        -------
        FittedModel or None
            None if the model cannot be fitted; the run has the reason.
        """
        data = self.train if photos is None else take_photos(self.train, photos)
        images = self.train.sizes["photo"] if photos is None else len(photos)
        rule = f" by {facts['rule']}" if "rule" in facts else ""
        self.announce(name if photos is None else f"{name} on {images} images{rule}")
        start = time.perf_counter()
        model = self.new_model(name)
        try:
            model.fit(data) if y is None else model.fit(data, y)
        except ValueError as error:
            self.add_missing(name, images, _reason(error), **facts)
            return None
        self.add(name, model, images, time.perf_counter() - start, **facts)
        return model

    def add(self, name: str, model: FittedModel, images: int, seconds: float, **facts: Any) -> None:
        """Add the run of a fitted model."""
        if not model.converged_:
            facts.setdefault("note", "not converged")
        redundancy = model.learned_redundancy
        self._add(
            name,
            images,
            np.asarray(model.predict(self.test)),
            reads=np.nan if redundancy is None else model.n_reads_,
            redundancy=np.nan if redundancy is None else redundancy,
            seconds=seconds,
            **facts,
        )

    def add_missing(self, name: str, images: int, note: str, **facts: Any) -> None:
        """Add a run that has no accuracy, with the reason."""
        self._add(name, images, None, note=note, **facts)

    def _add(self, name: str, images: int, labels: Any, **facts: Any) -> None:
        result = None if labels is None else self.truth.evaluate(labels)
        unknown = np.full(len(self.truth.names), np.nan)
        values: dict[str, Any] = {"rule": "all", "share": 1.0} | facts
        run = Run(
            number=len(self.runs) + 1,
            model=name,
            images=images,
            accuracy=float("nan") if result is None else result.accuracy,
            per_image=unknown if result is None else result.per_image,
            **values,
        )
        self.runs.append(run)


def _reason(error: Exception) -> str:
    """The beginning of a message, short enough for a note."""
    return str(error).split(":")[0]
