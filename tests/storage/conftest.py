"""An intact dataset and model, and a copy to corrupt."""

from __future__ import annotations

import shutil

import pytest

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.pipelines.ingest import ingest
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """A dataset of 12 photos in several chunks, as it should be."""
    folder = tmp_path_factory.mktemp("sound")
    images, masks = save_pairs(folder, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpgc_dask.data.writing.CHUNK_BYTES", 64 * 31 * 4)
        patch.setattr("gpgc_dask.data.writing.SEGMENT_BYTES", 4 * 2 * 60 * 80)
        ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    return folder / "data.zarr"


@pytest.fixture
def data(sound, tmp_path):
    """A copy of it to corrupt."""
    return shutil.copytree(sound, tmp_path / "data.zarr")


@pytest.fixture(scope="session")
def fitted(sound, tmp_path_factory):
    """A reviewed model on disk."""
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    dataset = open_dataset(sound)
    model = GPGC(redundancy=1.0).fit(dataset)
    model.review(dataset)
    model.save(path)
    return path
