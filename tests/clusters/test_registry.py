"""A new kind of cluster: one function and one line in the registry."""

from __future__ import annotations

import pytest
from distributed import LocalCluster

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.registry import CLUSTERS
from gpgc_dask.core.errors import InputError
from gpgc_dask.models.persistence import load


def start_threads(request):
    """Threads of this process."""
    return LocalCluster(
        n_workers=request.start_count(1), processes=False, dashboard_address=None, name="toy"
    )


@pytest.fixture
def toy():
    CLUSTERS.add("toy", start_threads)
    yield
    CLUSTERS.remove("toy")


def test_a_new_kind_is_connected_by_name(toy, reference):
    with connect("toy", workers=2) as client:
        assert client.cluster.name == "toy"
        assert len(client.nthreads()) == 2
        model = GPGC().fit(open_dataset(reference))
    assert model.converged_


def test_a_new_kind_is_an_option_of_commands(toy, run, reference, tmp_path):
    out = tmp_path / "model.zarr"
    code, _, err = run("fit", reference, "-o", out, "--cluster", "toy")
    assert (code, err.count("Traceback")) == (0, 0), err
    assert load(out).converged_


def test_errors_list_the_kinds(toy, run, reference, tmp_path):
    with pytest.raises(InputError, match=r"choose one of local, kubernetes, toy, or .* tcp://"):
        connect("nowhere").__enter__()
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", "--cluster", "nowhere")
    assert (code, "is not one of local, kubernetes, toy" in err) == (2, True)


def test_settings_of_another_kind():
    with pytest.raises(InputError, match="a local cluster has no setting image"):
        connect("local", settings={"image": "x:1"}).__enter__()


@pytest.mark.parametrize(
    "numbers",
    [
        {"workers": 0},
        {"workers": 2, "max_workers": 1},
        {"min_workers": 3, "max_workers": 2},
        {"min_workers": 3, "workers": 2},
    ],
)
def test_numbers_of_workers_that_contradict_each_other(numbers):
    with pytest.raises(InputError, match="workers"):
        connect("local", **numbers).__enter__()


def test_a_running_scheduler_has_its_workers_already():
    with pytest.raises(InputError, match="has workers already"):
        connect("tcp://127.0.0.1:9", workers=2).__enter__()
