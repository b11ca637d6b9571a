"""The way of a mask through another tool: exported, corrected there, imported, fitted again."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gpgc_dask import GPGC, RunOptions, load, open_dataset
from gpgc_dask.data.verdicts import VerdictLog
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.storage.location import Location
from tests.support.verdict_files import SHIFTED, SMALL, make_dataset, name, save_mask, true_mask

EXPORTED = 6
"""Number of images that are exported, worst first."""

WRONG = [name(number) for number in SHIFTED]


@dataclass(frozen=True)
class Start:
    """A dataset with wrong masks, its model, and the dataset of the corrected masks."""

    folder: Path
    ranking: pd.DataFrame
    fresh: Path


def make_start(folder: Path) -> Start:
    """Ingest and fit; the wrong masks are the worst of the ranking."""
    make_dataset(folder)
    ranking = train(folder / "data.zarr", folder / "model.zarr").quality_.set_index("image")
    assert {*ranking.index[: len(WRONG)]} == {*WRONG}
    assert (ranking.loc[WRONG, "quality"] < 0.5).all()
    masks = shutil.copytree(folder / "masks", folder / "true")
    for number in SHIFTED:
        save_mask(masks / f"photo_{number:03d}.png", 255 * true_mask(number))
    ingest(folder / "images", masks, folder / "fresh.zarr", recipe=SMALL)
    return Start(folder, ranking, folder / "fresh.zarr")


def copy_start(start: Start, target: Path) -> Path:
    """A folder with copies of dataset and model; the photos stay where they are."""
    for part in ("data.zarr", "model.zarr"):
        shutil.copytree(start.folder / part, target / part)
    return target


def call(run, *arguments) -> str:
    """Run a command that succeeds; what it prints on stdout."""
    code, out, err = run(*arguments)
    assert code == 0, err
    return out


def import_and_fit(start: Start, folder: Path, file: Path, run, *options) -> pd.DataFrame:
    """Import a file in which the wrong masks are corrected, and fit again; check what follows.

    Returns the new ranking, by image.
    """
    place = folder / "data.zarr"
    report = json.loads(call(run, "verdicts", place, "--import", file, "--json", *options))
    assert report["counts"]["corrected"] == len(WRONG)
    check_dataset(place, start.fresh)
    old = load(folder / "model.zarr")
    again = RunOptions(overwrite=True)
    new = train(place, folder / "model.zarr", start=folder / "model.zarr", run=again)
    ranking = new.quality_.set_index("image")
    assert (ranking.loc[WRONG, "quality"] == 1).all()
    assert ranking.loc[WRONG, "flags"].str.contains("corrected").all()
    assert (ranking.loc[WRONG, "agreement"] > start.ranking.loc[WRONG, "agreement"] + 0.2).all()
    assert not {*ranking.index[: len(WRONG)]} & {*WRONG}
    check_predictions(place, old, new)
    return ranking


def check_dataset(place: Path, fresh: Path) -> None:
    """The masks in the log are the true ones, and the dataset equals that of the true masks."""
    log = VerdictLog(Location.of(place)).read()
    masks = {one.image: one.correction.mask for one in log if one.correction is not None}
    assert {*masks} == {*WRONG}
    for number in SHIFTED:
        np.testing.assert_array_equal(masks[name(number)], true_mask(number))
    own, expected = open_dataset(place), open_dataset(fresh)
    for variable in ("label", "mask"):
        np.testing.assert_array_equal(own[variable].values, expected[variable].values)


def check_predictions(place: Path, old: GPGC, new: GPGC) -> None:
    """The predictions for the images that were not corrected have changed, for each of them."""
    dataset = open_dataset(place)
    features, images = dataset["features"].values, dataset["image"].values
    before, after = (model.decision_function(features) for model in (old, new))
    for number in {*images.tolist()} - {*SHIFTED}:
        own = images == number
        assert np.abs(after - before)[own].max() > 1e-3 * np.abs(before)[own].max()
