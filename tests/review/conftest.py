"""A dataset with some corrupted masks, its model, and a server of its review."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.review.state import Review
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK
from tests.support.review import serving

HOSTILE = "<img src=x onerror=alert(1)>"
CORRUPTED = ("photo_004", "photo_011", "photo_020")


@pytest.fixture(scope="session")
def reviewed(tmp_path_factory):
    """images/, masks/, data.zarr and model.zarr of 34 images, four of them corrupted."""
    folder = tmp_path_factory.mktemp("reviewed")
    save_pairs(folder, 33)
    save_pair(folder, HOSTILE, 40)
    for name in (*CORRUPTED, HOSTILE):
        path = folder / f"masks/{name}.png"
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    ingest(folder / "images", folder / "masks", folder / "data.zarr", recipe=QUICK)
    train(folder / "data.zarr", folder / "model.zarr")
    return folder


@pytest.fixture
def place(reviewed, tmp_path):
    """A copy of the dataset, to which verdicts can be added."""
    target = tmp_path / "data.zarr"
    shutil.copytree(reviewed / "data.zarr", target)
    return target


@pytest.fixture
def review(reviewed, place):
    return Review(place, reviewed / "model.zarr")


@pytest.fixture
def server(review):
    with serving(review) as server:
        yield server
