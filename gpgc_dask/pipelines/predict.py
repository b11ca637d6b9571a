"""Masks of new photos by a model, at the photos' own size."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gpgc_dask.core.arrays import Array, Labels
from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.tiles import Tile, cut_scene, join_address
from gpgc_dask.execution.batches import translate_failures
from gpgc_dask.gp.oracle.numpy import NumpyOracle
from gpgc_dask.imaging.backbones import BackboneLike, restore_backbone
from gpgc_dask.imaging.features import Recipe, describe
from gpgc_dask.imaging.painting import encode_picture, mask_values, paint
from gpgc_dask.imaging.photos import Orientation, read_orientation
from gpgc_dask.models.decisions import class_probabilities, decide
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.outputs import Job, check_absent, find_jobs, output_folders
from gpgc_dask.pipelines.photo_jobs import make_pictures
from gpgc_dask.quality.calibration import Calibration
from gpgc_dask.storage.location import write_whole

__all__ = ["PredictReport", "predict_masks"]

MARK = ".gpgc-model"
"""File in a folder of masks that identifies the model that made them."""

FULL_SCALE = 65535
"""Value of probability 1 in a picture of 16 bits."""


@dataclass(frozen=True)
class PredictReport:
    """The outcome of :func:`gpgc_dask.predict_masks`.

    Attributes
    ----------
    target : str
        Folder of the masks.
    images : int
        Number of photos that have their pictures.
    skipped : list of Problem
        Photos that could not be used.
    probability, std : str or None
        Folders of the other pictures.
    resumed : int
        Number of photos that an earlier run had finished.
    elapsed : float
        Seconds that this run took.
    """

    target: str
    images: int
    skipped: list[Problem]
    probability: str | None = None
    std: str | None = None
    resumed: int = 0
    elapsed: float = 0.0


def predict_masks(
    model: FittedModel,
    images: str | PathLike[str],
    target: str | PathLike[str],
    *,
    probability: str | PathLike[str] | None = None,
    std: str | PathLike[str] | None = None,
    backbone: BackboneLike | None = None,
    tile: int | None = None,
    overlap: int | None = None,
    run: RunOptions | None = None,
) -> PredictReport:
    """Predict masks of photos by a model that was fitted on a dataset.

    Masks are PNGs at the photos' own size. Pictures are named after their photos and written as
    they are finished: after a crash, the same call with ``run=RunOptions(resume=True)`` continues.

    Parameters
    ----------
    model : FittedModel
        A fitted ``GPGC``, ``GP`` or ``MarginSVM``, as :func:`~gpgc_dask.load` reads it.
    images : path
        Folder of photos, with subfolders, or one photo.
    target : path
        Folder of the masks, with the mask values of the fit (0 and 255, or those of the classes).
    probability : path, optional
        Folder for the probability of the foreground (with several classes, of the predicted one) as
        16-bit PNGs, in which 65535 is 1.
    std : path, optional
        Folder for the posterior standard deviation of f as TIFFs of 32-bit floats.
    backbone : str, Backbone or callable, optional
        The present path of the model's ONNX file, or the Python function it was fitted with.
    tile, overlap : int, optional
        Longest side of the tiles in which larger photos are predicted, and the pixels that they
        share; see :class:`~gpgc_dask.PhotoFormat`. By default as in the model's dataset.
    run : RunOptions, optional
        Resuming, unusable photos, progress and cluster. Resuming keeps existing pictures; it is an
        error if another model made them.

    Returns
    -------
    PredictReport

    Examples
    --------
    >>> from gpgc_dask import load
    >>> from gpgc_dask import predict_masks
    >>> predict_masks(load("model.zarr"), "new-photos", "predicted").images
    3
    """
    start = time.perf_counter()
    run = run or RunOptions()
    folders = output_folders(mask=target, probability=probability, std=std)
    predictor = Predictor.from_model(model, backbone, with_variance=len(folders) > 1)
    predictor = predictor.with_tiles(tile, overlap)
    jobs = find_jobs(images, folders)
    predictor.recipe.extractor.check_photos([job.photo for job in jobs])
    if not (run.resume or run.overwrite):
        check_absent(jobs)
    _write_mark(folders["mask"], predictor.digest(), resume=run.resume)
    problems, resumed = make_pictures(predictor, jobs, run, name="predict")
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
    """The parts of a model that workers need.

    Attributes
    ----------
    recipe : Recipe
        How photos become rows.
    coef : (k,) array, or (k, classes) for more than two classes
        Posterior mean of the weights.
    classes : (classes,) array
        Class codes.
    values : array
        Mask value of each class code.
    noise : float
        ε̄², the typical noise variance.
    factor : (k, k) array or None
        T with posterior covariance TᵀT; None if only masks are needed.
    calibration : Calibration or None
        Probabilities of decision values, if the model has them.
    """

    recipe: Recipe
    coef: Array
    classes: Labels
    values: Labels
    noise: float
    factor: Array | None
    calibration: Calibration | None

    @classmethod
    def from_model(
        cls, model: FittedModel, backbone: BackboneLike | None, *, with_variance: bool
    ) -> Predictor:
        """Take what workers need from a model that was fitted on a dataset."""
        from sklearn.utils.validation import check_is_fitted  # which workers need not load

        check_is_fitted(model)
        origin = model.dataset_info or {}
        if not {"class_values", "backbone", "recipe"} <= origin.keys():
            raise InputError(
                "this model was fitted on arrays, without photos: fit a model on a dataset made "
                "by gpgc ingest, or in Python compute features as for the fit and call "
                "model.predict(X)"
            )
        values = mask_values(origin["class_values"])
        if with_variance and model.covariance_factor is None:
            raise InputError(
                f"{type(model).__name__} has no probabilities and no standard deviations: omit "
                "these folders, or use GPGC or GP"
            )
        if not np.isin(model.classes_, np.arange(values.size)).all():
            raise InputError(
                "this model was fitted with labels that are not the dataset's, so masks have no "
                "values for them: fit a model to the dataset's own labels, or in Python call "
                "model.predict and imaging.paint"
            )
        return cls(
            Recipe.from_json(restore_backbone(origin["backbone"], backbone), origin["recipe"]),
            model.coef_[0] if len(model.coef_) == 1 else model.coef_.T,
            model.classes_.astype(np.intp),
            values,
            np.nan if model.typical_noise is None else model.typical_noise,
            model.covariance_factor if with_variance else None,
            model.calibration,
        )

    def with_tiles(self, tile: int | None, overlap: int | None) -> Predictor:
        """The same for tiles of another size; None keeps what the dataset has."""
        if tile is None and overlap is None:
            return self
        photos = self.recipe.photos
        size = photos.tile if tile is None else tile
        shared = min(photos.overlap, size // 2) if overlap is None else overlap
        return replace(
            self, recipe=self.recipe.with_photos(replace(photos, tile=size, overlap=shared))
        )

    def digest(self) -> str:
        """Digest that identifies the model."""
        values = [self.coef, self.classes, self.values]
        if self.calibration is not None:
            values.append(self.calibration.to_array())
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in values)
        recipe = repr((self.recipe.extractor.provenance()["name"], self.recipe.superpixels))
        return hashlib.sha256(content + recipe.encode()).hexdigest()

    def check_features(self, n_features: int) -> None:
        """Raise an InputError if the backbone gives another number of features."""
        if n_features != len(self.coef):
            raise InputError(
                f"the backbone gives {n_features} features, but the model was fitted with "
                f"{len(self.coef)}: pass the backbone of the model's dataset"
            )

    def run(self, job: Job) -> None:
        """Write the pictures of a photo, each completely or not at all."""
        photos = self.recipe.photos
        if photos.tile:
            size = read_orientation(job.photo)
            tiles = [*cut_scene(size.height, size.width, photos.tile, photos.overlap)]
            if len(tiles) > 1:
                self._run_scene(job, size, [tile for _, _, tile in tiles])
                return
        for kind, painted in self._paint(job, os.fspath(job.photo)):
            write_whole(job.pictures[kind], encode_picture(painted))

    def _paint(self, job: Job, address: str) -> Iterator[tuple[str, Labels]]:
        """(kind, picture) of a photo, or of a tile by its address."""
        described = describe(address, self.recipe)
        features, size = described.features, described.orientation
        self.check_features(features.shape[1])
        for kind, values in self._values(NumpyOracle(features)):
            if kind in job.pictures:
                yield kind, paint(described.segments, values, size.height, size.width)

    def _run_scene(self, job: Job, size: Orientation, tiles: list[Tile]) -> None:
        """Write the pictures of a scene; each pixel is taken from the tile in whose core it is."""
        with TemporaryDirectory(prefix=".gpgc-", dir=_existing(job.pictures["mask"])) as place:
            scenes: dict[str, Labels] = {}
            for tile in tiles:
                for kind, painted in self._paint(job, join_address(job.photo, tile)):
                    if kind not in scenes:
                        shape = (size.height, size.width)
                        path = os.path.join(place, kind)  # on disk: larger than memory may be
                        scenes[kind] = np.memmap(path, painted.dtype, "w+", shape=shape)
                    scenes[kind][tile.core_slices] = tile.crop_core(painted)
            for kind in [*scenes]:
                write_whole(job.pictures[kind], encode_picture(scenes.pop(kind)))

    def _values(self, oracle: NumpyOracle) -> Iterator[tuple[str, Labels]]:
        """(kind of picture, (n,) value of each superpixel)."""
        mean = oracle.matvec(self.coef)
        yield "mask", self.values[decide(mean, self.classes, self.calibration)]
        if self.factor is None:
            return
        std = np.sqrt(oracle.variance(self.factor))
        yield "std", std.astype(np.float32)
        shares = class_probabilities(mean, std, self.noise, self.classes.size, self.calibration)
        chosen = shares[:, 1] if self.values.size == 2 else shares.max(1)
        yield "probability", np.round(chosen * FULL_SCALE).astype(np.uint16)


def _existing(picture: Path) -> Path:
    """The folder of a picture, which exists then."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    return picture.parent


def _write_mark(folder: Path, digest: str, *, resume: bool) -> None:
    """Record which model makes the masks of a folder; raise an InputError if it was another one."""
    mark = folder / MARK
    if resume and mark.exists() and mark.read_text() != digest:
        raise InputError(
            f"another model has made the masks in {folder}: continue with that model, choose "
            "another folder, or replace them with overwrite=True (--overwrite)"
        )
    with translate_failures(folder, MARK):
        write_whole(mark, digest.encode())
