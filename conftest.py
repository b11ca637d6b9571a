"""How many processes run the tests, and the folder in which examples in docstrings run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dask.system import CPU_COUNT

from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from tests.support.ingesting import QUICK
from tests.support.places import save_folders, save_others

MAX_PROCESSES = 8
"""More would only wait for the longest files, each of which runs in one process."""


def pytest_xdist_auto_num_workers(config):
    """Run folders in one process per core, single files in the process of pytest itself."""
    paths = [Path(argument.partition("::")[0]) for argument in config.args]
    if not any(path.is_dir() for path in paths):
        return 0
    return min(CPU_COUNT, MAX_PROCESSES)


def pytest_collection_modifyitems(config, items):
    """Begin with the long files where processes share the tests: none idles at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("newest") is None)


@pytest.fixture(scope="session")
def documented(tmp_path_factory):
    """photos/, masks/, horses.zarr and model.zarr, made from colours only, which is quick."""
    place = tmp_path_factory.mktemp("documented")
    photos, masks = save_folders(place)
    save_others(place)
    ingest(photos, masks, place / "horses.zarr", recipe=QUICK)
    train(place / "horses.zarr", place / "model.zarr")
    ingest(place / "new-photos", place / "true-masks", place / "test.zarr", recipe=QUICK)
    return place


@pytest.fixture(autouse=True)
def _folder_of_examples(request, monkeypatch, tmp_path):
    """Run each example of a docstring in a copy of that folder."""
    if isinstance(request.node, pytest.DoctestItem):
        here = tmp_path / "documented"
        shutil.copytree(request.getfixturevalue("documented"), here)
        monkeypatch.chdir(here)
