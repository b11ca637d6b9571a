"""From a model and a folder of photos to masks at the photos' own size."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.progress import Listener
from gpgc_dask.execution.batches import translate_failures
from gpgc_dask.execution.client import Client
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.imaging.backbones import BackboneLike, backbone_of
from gpgc_dask.imaging.features import Recipe, describe
from gpgc_dask.imaging.painting import encoded, mask_values, paint
from gpgc_dask.models.decisions import likelihood_logits, to_labels, to_probabilities
from gpgc_dask.pipelines.ingest.work import OnError
from gpgc_dask.pipelines.outputs import Job, check_absent, find_jobs, output_folders
from gpgc_dask.pipelines.photo_jobs import check_manner, make_pictures
from gpgc_dask.storage.location import write_whole

__all__ = ["PredictReport", "predict_masks"]

MARK = ".gpgc-model"
"""File in a folder of masks that tells which model made them."""

FULL_SCALE = 65535
"""What stands for probability 1 in a picture of 16 bits."""


@dataclass(frozen=True)
class PredictReport:
    """What a prediction has made, and what it took.

    images : photos that have their pictures;  resumed : those that an earlier run had done
    elapsed : seconds of this run, by the clock
    """

    target: str
    images: int
    skipped: list[Problem]
    probability: str | None = None
    std: str | None = None
    resumed: int = 0
    elapsed: float = 0.0


def predict_masks(
    model: Any,
    images: str | PathLike[str],
    target: str | PathLike[str],
    *,
    probability: str | PathLike[str] | None = None,
    std: str | PathLike[str] | None = None,
    backbone: BackboneLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_error: OnError = "raise",
    progress: bool | Listener | None = None,
    client: Client | AbstractContextManager[Client] | None = None,
) -> PredictReport:
    """Masks of photos by a model that was fitted on a dataset: PNGs at the photos' own size.

    Pictures are named after their photos and written as they are done: after a kill, the same call
    with ``resume=True`` goes on.

    Parameters
    ----------
    model : a fitted ``GPGC`` or ``GP``, as ``load`` gives it
    images : a folder of photos, with subfolders, or one photo
    target : folder of the masks, with the values of the classes in the masks of the fit (0 and 255)
    probability : folder for the probability of the foreground, of several classes of the one
        predicted, as 16-bit PNGs: 65535 is 1
    std : folder for the posterior standard deviation of f, as TIFFs of 32-bit floats
    backbone : where the model's ONNX file lies now, or the Python callable it was fitted with
    resume : photos whose pictures are all there are left as they are; refused where another model
        made them
    overwrite : pictures that are there are removed, then made anew
    on_error : "raise" stops at a photo that cannot be used, "skip" leaves it out and lists it
    progress : True shows a live line in a notebook, prints lines to stderr elsewhere; a callable
        is called with a :class:`~gpgc_dask.core.progress.Progress` now and then
    client : a Dask client, or a context that gives one and is entered when there is work to do;
        default the active client, else threads of this process

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask import predict_masks
    >>> predict_masks(load("model.zarr"), "new-photos", "predicted").images
    3
    """
    start = time.perf_counter()
    check_manner(resume=resume, overwrite=overwrite, on_error=on_error)
    folders = output_folders(mask=target, probability=probability, std=std)
    predictor = Predictor.of(model, backbone, with_variance=len(folders) > 1)
    jobs = find_jobs(images, folders)
    if not (resume or overwrite):
        check_absent(jobs)
    _leave_mark(folders["mask"], predictor.digest(), resume=resume)
    problems, resumed = make_pictures(
        predictor,
        jobs,
        name="predict",
        resume=resume,
        overwrite=overwrite,
        on_error=on_error,
        progress=progress,
        client=client,
    )
    return PredictReport(
        target=str(folders["mask"]),
        images=len(jobs) - len(problems),
        skipped=sorted(problems, key=lambda problem: problem.name),
        probability=None if probability is None else str(folders["probability"]),
        std=None if std is None else str(folders["std"]),
        resumed=resumed,
        elapsed=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class Predictor:
    """What workers need of a model, and no more: it travels to each of them once.

    coef : (k,), or (k, classes) for more than two, posterior mean of the weights
    classes : (classes,) class numbers;  values : what stands for each number in a mask
    noise : ε̄², the typical noise variance
    factor : (k, k) T with posterior covariance TᵀT; None where only masks are asked for
    """

    recipe: Recipe
    coef: Array
    classes: Labels
    values: Labels
    noise: float
    factor: Array | None

    @classmethod
    def of(cls, model: Any, backbone: BackboneLike | None, *, with_variance: bool) -> Predictor:
        from sklearn.utils.validation import check_is_fitted  # which workers need not load

        check_is_fitted(model)
        origin = getattr(model, "dataset_", {})
        if not {"class_values", "backbone", "recipe"} <= origin.keys():
            raise InputError(
                "this model was fitted on arrays and knows of no photos: compute their features as "
                "for the fit and call model.predict(X) in Python, or fit one on a dataset made by "
                "gpgc ingest"
            )
        values = mask_values(origin["class_values"])
        if with_variance and not hasattr(model, "covariance_factor_"):
            raise InputError(
                f"a {type(model).__name__} knows no probabilities and no deviations: leave these "
                "folders out, or use a GPGC or GP"
            )
        if not np.isin(model.classes_, np.arange(values.size)).all():
            raise InputError(
                "this model was fitted with labels that are not the dataset's, so masks have no "
                "values for them: call model.predict and imaging.paint in Python"
            )
        return cls(
            Recipe(backbone_of(origin["backbone"], backbone), **origin["recipe"]),
            model.coef_[0] if len(model.coef_) == 1 else model.coef_.T,
            model.classes_.astype(np.intp),
            values,
            getattr(model, "typical_noise_", np.nan),
            model.covariance_factor_ if with_variance else None,
        )

    def digest(self) -> str:
        """Changes with the model."""
        values = (self.coef, self.classes, self.values)
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in values)
        told = repr((self.recipe.backbone.provenance()["name"], self.recipe.superpixels))
        return hashlib.sha256(content + told.encode()).hexdigest()

    def run(self, job: Job) -> None:
        """Describe a photo and write its pictures, each whole or not at all."""
        described = describe(job.photo, self.recipe)
        features, size = described.features, described.orientation
        if features.shape[1] != len(self.coef):
            raise InputError(
                f"the backbone gives {features.shape[1]} features, but the model was fitted with "
                f"{len(self.coef)}: pass the backbone of the model's dataset"
            )
        for kind, values in self._values(NumpyOracle(features)):
            if kind in job.pictures:
                painted = paint(described.segments, values, size.height, size.width)
                write_whole(job.pictures[kind], encoded(painted))

    def _values(self, oracle: NumpyOracle) -> Iterator[tuple[str, Labels]]:
        """(kind of picture, (n,) value of each superpixel)."""
        mean = oracle.matvec(self.coef)
        yield "mask", self.values[to_labels(mean, self.classes)]
        if self.factor is None:
            return
        std = np.sqrt(oracle.variance(self.factor))
        yield "std", std.astype(np.float32)
        shares = to_probabilities(likelihood_logits(mean, std, self.noise), self.classes.size)
        chosen = shares[:, 1] if self.values.size == 2 else shares.max(1)
        yield "probability", np.round(chosen * FULL_SCALE).astype(np.uint16)


def _leave_mark(folder: Path, digest: str, *, resume: bool) -> None:
    """Keep which model makes the masks of a folder; a resume with another one is refused."""
    mark = folder / MARK
    if resume and mark.exists() and mark.read_text() != digest:
        raise InputError(
            f"another model has made the masks in {folder}: go on with that one, or choose another "
            "folder, or make them anew with overwrite=True (--overwrite)"
        )
    with translate_failures(folder, MARK):
        write_whole(mark, digest.encode())
