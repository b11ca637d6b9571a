"""Datasets of photos of more than 8 bits equal those of the same photos of 8 bits."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GPGC, PhotoFormat, RunOptions, ingest, open_dataset, update
from gpgc_dask.core.errors import PipelineError
from gpgc_dask.imaging.features import describe
from gpgc_dask.pipelines.predict import Predictor
from tests.support.deep import to_depth, write_deep
from tests.support.images import draw, save_pair
from tests.support.ingesting import QUICK


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Eight photos of 8 bits as images/*.jpg, and of 12 bits in deep/*.png, and masks."""
    folder = tmp_path_factory.mktemp("deep")
    for number in range(8):
        save_pair(folder, f"photo_{number}", number)
        write_deep(folder / "deep" / f"photo_{number}.png", to_depth(draw(number)[0], 12))
    report = ingest(folder / "deep", folder / "masks", folder / "deep.zarr", recipe=QUICK)
    assert ["12-bit data in 16-bit photos" in note for note in report.notes] == [True]
    return folder


def test_levels_are_kept(place):
    stored = open_dataset(place / "deep.zarr").attrs["recipe"]["photos"]
    assert stored["stretch"] == "dataset"
    assert stored["levels"][0] >= 0
    assert 3000 < stored["levels"][1] <= 4095


def test_resumed_sets_keep_their_levels(place):
    folders, run = (place / "deep", place / "masks", place / "deep.zarr"), RunOptions(resume=True)
    assert ingest(*folders, recipe=QUICK, run=run).resumed == 8
    fixed = QUICK.with_photos(PhotoFormat(stretch=(0, 4095)))
    with pytest.raises(PipelineError, match="other settings"):
        ingest(*folders, recipe=fixed, run=run)


def test_models_and_updates_use_the_levels_of_their_dataset(place, tmp_path):
    dataset = open_dataset(place / "deep.zarr")
    levels = PhotoFormat.from_json(dataset.attrs["recipe"]["photos"])
    model = GPGC(rounds=0).fit(dataset)
    assert Predictor.from_model(model, None, with_variance=False).recipe.photos == levels
    shutil.copytree(place / "deep", tmp_path / "deep")
    shutil.copytree(place / "masks", tmp_path / "masks")
    shutil.copytree(place / "deep.zarr", tmp_path / "deep.zarr")
    photo, mask = draw(20)
    dark = tmp_path / "deep" / "dark.png"
    write_deep(dark, to_depth(photo // 4, 12))  # alone, it would be stretched to the full range
    Image.fromarray(mask).save(tmp_path / "masks" / "dark.png")
    assert update(tmp_path / "deep.zarr", tmp_path / "deep", tmp_path / "masks").new == 1
    now = open_dataset(tmp_path / "deep.zarr")
    own = now["features"].values[now["image"].values == now.sizes["photo"] - 1]
    np.testing.assert_array_equal(own, describe(dark, QUICK.with_photos(levels)).features)
