from __future__ import annotations

from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import HealthCheck, settings

import gpgc_dask.gp.oracle.dask as dask_oracle
from gpgc_dask.cli import main
from gpgc_dask.pipelines.ingest import ingest
from tests.support.browser import FLAGS, find_chromium
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

settings.register_profile(
    "gpgc",
    deadline=None,
    derandomize=True,  # a run must not fail by chance
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("gpgc")

# Workers that tests start from their own process are forked from one that has imported everything:
# otherwise each would spend two seconds on imports. Programs that tests start are not affected.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
get_mp_context().set_forkserver_preload(
    ["distributed", "gpgc_dask.models.gp", "gpgc_dask.pipelines.predict"]
)

QUICK_PACKAGES = {"core", "data", "gp", "imaging", "models", "planning"}
"""Their tests, and the modules that are marked themselves, are what ``pytest -m quick`` runs."""


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if (
            item.path.is_relative_to(here)
            and item.path.relative_to(here).parts[0] in QUICK_PACKAGES
        ):
            item.add_marker(pytest.mark.quick)


@pytest.fixture
def small_tasks(monkeypatch):
    """Split small data into many tasks, too, so that partial sums and their trees are tested."""
    monkeypatch.setattr(
        dask_oracle, "count_tasks", lambda n_rows, n_features, n_threads: max(2, n_rows // 40)
    )


@pytest.fixture(scope="session")
def _cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit="2GB"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(_cluster):
    with Client(_cluster) as client:
        yield client


@pytest.fixture
def sync():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return save_pairs(tmp_path_factory.mktemp("photos"), 30)


@pytest.fixture(scope="session")
def reference(folders, tmp_path_factory):
    """The dataset of ``folders``, made without interruption by threads of this process."""
    target = tmp_path_factory.mktemp("reference") / "data.zarr"
    ingest(*folders, target, recipe=QUICK)
    return target


@pytest.fixture
def small_chunks(monkeypatch):
    """Split small data into several chunks, too, so that their borders are tested."""
    monkeypatch.setattr("gpgc_dask.data.writing.CHUNK_BYTES", 64 * 31 * 4)
    monkeypatch.setattr("gpgc_dask.data.writing.SEGMENT_BYTES", 4 * 2 * 60 * 80)


@pytest.fixture
def run(capsys):
    """Run the program in this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


@pytest.fixture(scope="module")
def browser():
    """A browser for the pages of results and reviews."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_chromium()
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
