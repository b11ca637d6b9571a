"""What the examples in docstrings find: a folder of photos, and what is made of it."""

from __future__ import annotations

import shutil

import pytest

from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from tests.support.ingesting import QUICK
from tests.support.places import save_folders, save_others


@pytest.fixture(scope="session")
def documented(tmp_path_factory):
    """photos/, masks/, horses.zarr and model.zarr, of colours alone: quick."""
    place = tmp_path_factory.mktemp("documented")
    photos, masks = save_folders(place)
    save_others(place)
    ingest(photos, masks, place / "horses.zarr", **QUICK)
    train(place / "horses.zarr", place / "model.zarr")
    ingest(place / "new-photos", place / "true-masks", place / "test.zarr", **QUICK)
    return place


@pytest.fixture(autouse=True)
def _folder_of_examples(request, monkeypatch, tmp_path):
    """Examples in docstrings run in a copy of it."""
    if isinstance(request.node, pytest.DoctestItem):
        here = tmp_path / "documented"
        shutil.copytree(request.getfixturevalue("documented"), here)
        monkeypatch.chdir(here)
