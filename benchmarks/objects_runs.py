"""Datasets with known errors and models fitted on them, kept in a folder: for ``objects.py``."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import xarray as xr
from objects_sets import make_coco, make_parts

from gpgc_dask import GPGC, MaskOptions, Recipe, RunOptions, ingest, load, open_dataset
from gpgc_dask.data.training import training_arrays
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.models.review import leave_out_values

PARTS = {"horses": ("horses/train/images", "horses/train/truth"), "medical": ("kvasir",) * 2}
"""{set of one object per photo: folders of photos and of true masks}."""


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fit_set(
    name: str, seed: int, folder: Path, cache: Path, recipe: Recipe, min_images: int
) -> tuple[FittedModel, xr.Dataset, pd.DataFrame]:
    """Make a set with errors, ingest it and fit a model, unless the cache has them.

    Parameters
    ----------
    name : str
        "corrupted", "common" and "deleted" are sets of COCO; others are in PARTS.
    seed : int
    folder : Path
        Photos and true masks.
    cache : Path
        Folder in which sets and models are kept.
    recipe : Recipe
    min_images : int
        Categories of fewer images are left out.

    Returns
    -------
    model, dataset
    truth : pandas.DataFrame
        What is known about the errors.
    """
    place = cache / f"{name}-seed{seed}"
    if name in PARTS:
        photos, masks = PARTS[name]
        if name == "medical":
            photos, masks = f"{photos}/images", f"{masks}/masks"
        images, target, options = folder / photos, place / "masks", MaskOptions()
        truth = make_parts(images, folder / masks, target, seed)
    else:
        made = make_coco(folder / "coco", place, seed, name, min_images)
        images, target, truth = made.images, made.file, made.truth
        options = MaskOptions(format="coco", categories=["all"])
    data, fitted = place / "data.zarr", place / "model.zarr"
    if not fitted.exists():
        log(f"{name}, seed {seed}: ingest")
        run = RunOptions(overwrite=True)
        ingest(images, target, data, recipe=recipe, masks_as=options, run=run)
        log(f"{name}, seed {seed}: fit")
        dataset = open_dataset(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GPGC().fit(dataset)
        # The part of a review that reads the features.
        rows, values = training_arrays(dataset).digest(), leave_out_values(model, dataset)
        model.leave_out_ = KeptPredictions(rows, values.astype("float32"))
        model.save(fitted)
    return load(fitted), open_dataset(data), truth
