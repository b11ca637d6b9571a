"""Ways to a cluster: processes of our own, a running scheduler, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import time
import warnings

import pytest
from distributed import Client, LocalCluster
from distributed.versions import VersionMismatchWarning

from gpgc_dask.clusters import remote
from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.performance import with_performance_report
from gpgc_dask.clusters.versions import _comparable
from gpgc_dask.core.errors import VersionError


def test_processes_of_our_own():
    with connect("local", workers=2, memory_limit="512MB") as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [worker["nthreads"] for worker in workers] == [1, 1]
        assert {worker["memory_limit"] for worker in workers} == {512_000_000}
        sockets = client.cluster.scheduler.http_server._sockets.values()
        assert {each.getsockname()[0] for each in sockets} == {"127.0.0.1"}, "seen from outside"
        assert client.cluster.scheduler.WORKER_SATURATION == 1.0


def slowly(number):
    time.sleep(0.2)
    return number


def test_as_many_workers_as_there_is_work():
    with connect("local", workers=1, max_workers=2) as client:
        client.wait_for_workers(1, timeout=30)
        futures = client.map(slowly, range(200))
        client.wait_for_workers(2, timeout=30)
        client.cancel(futures)


def test_a_running_scheduler(client):
    with connect(client.scheduler.address) as other:
        assert other.submit(sum, [1, 2]).result(timeout=30) == 3


def test_no_scheduler_answers(monkeypatch):
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 1)
    with (
        pytest.raises(ConnectionError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        connect("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize("package", ["gpgc_dask", "dask", "numpy", "zarr"])
def test_workers_of_another_version(tmp_path, package):
    """A worker of which a package says that it is another one is not worked with."""
    about = tmp_path / f"{package}-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    with LocalCluster(n_workers=0, dashboard_address=None) as old:
        address = old.scheduler_address
        paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        worker = subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--no-dashboard"],
            env=os.environ | {"PYTHONPATH": paths},
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            with Client(address) as client:
                client.wait_for_workers(1, timeout=60)
            with (
                warnings.catch_warnings(record=True, action="always") as caught,
                pytest.raises(
                    VersionError,
                    match=rf"worker tcp.* has {package} 0\.0\.1 \(here .*\): install the same",
                ),
                connect(address),
            ):
                pass
            assert not [one for one in caught if one.category is VersionMismatchWarning]
        finally:
            worker.kill()
            worker.wait()


def test_patch_releases_work_together():
    assert _comparable("python", "3.11.2.final.0") == _comparable("python", "3.11.9.final.0")
    assert _comparable("python", "3.11.2.final.0") != _comparable("python", "3.13.0.final.0")
    assert _comparable("numpy", "2.4.6") == _comparable("numpy", "2.4.1")
    assert _comparable("dask", "2026.8.0") != _comparable("dask", "2026.8.1")


def test_options_that_exclude_each_other(run, reference, tmp_path):
    model = tmp_path / "m.zarr"
    code, _, err = run("fit", reference, "-o", model, "--workers", 2, "--scheduler", "tcp://a:1")
    assert (code, "--workers and --scheduler exclude each other" in err) == (2, True)
    for option, value in (("--cluster", "kubernetes"), ("--image", "x"), ("--max-workers", 3)):
        code, _, err = run("fit", reference, "-o", model, option, value, "--scheduler", "tcp://a")
        assert (code, f"{option} and --scheduler exclude each other" in err) == (2, True)


@pytest.mark.parametrize("command", ["ingest", "fit", "compare"])
def test_every_long_command_looks_for_its_cluster(
    run, folders, reference, tmp_path, monkeypatch, command
):
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 1)
    out = ("-o", tmp_path / "out.zarr")
    given = {
        "ingest": (*folders, *out, "--backbone", "colour"),
        "fit": (reference, *out),
        "compare": (reference, "--test", reference),
    }[command]
    code, _, err = run(command, *given, "--scheduler", "tcp://127.0.0.1:9")
    assert code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err


@pytest.mark.parametrize(
    ("limit", "told"),
    [("lots", "'lots' is no amount of memory"), ("50MB", "50MB of memory is")],
)
def test_invalid_memory_limits(run, reference, tmp_path, limit, told):
    given = ("--workers", 1, "--memory-limit", limit)
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *given)
    assert code == 2
    assert told in err
    assert "--memory-limit" in err


# -- what happened on it -----------------------------------------------------------------------


def test_a_performance_report(run, reference, tmp_path):
    """A page that stands by itself, on which the reads of the fit are found by name."""
    page = tmp_path / "what happened.html"
    given = ("fit", reference, "-o", tmp_path / "m.zarr", "--workers", 1)
    code, _, err = run(*given, "--performance-report", page)
    assert code == 0, err
    text = page.read_text()
    assert "Dask Performance Report" in text
    assert "sweep-2" in text
    assert "leave-out" in text
    assert not re.search(r'<script[^>]* src=|rel="stylesheet"', text)


def test_a_performance_report_needs_a_cluster(run, reference, tmp_path):
    given = ("fit", reference, "-o", tmp_path / "m.zarr", "--performance-report")
    code, _, err = run(*given, tmp_path / "page.html")
    assert (code, "add --workers" in err) == (2, True)
    code, _, err = run(*given, tmp_path, "--workers", 1)
    assert (code, "is a folder" in err) == (2, True)
    assert not (tmp_path / "m.zarr").exists()


def test_a_performance_report_needs_bokeh(run, reference, tmp_path, monkeypatch):
    real = importlib.metadata.distribution

    def without_bokeh(name):
        if name == "bokeh":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", without_bokeh)
    given = ("--workers", 1, "--performance-report", tmp_path / "page.html")
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *given)
    assert code == 2
    assert 'pip install "gpgc_dask[dashboard]"' in err
    assert not (tmp_path / "m.zarr").exists()


def test_errors_are_raised_although_there_is_no_report(tmp_path, monkeypatch):
    def fail(*error):
        raise OSError("no scheduler")

    monkeypatch.setattr("distributed.performance_report.__exit__", fail)
    with (
        pytest.raises(ValueError, match="what went wrong"),
        with_performance_report(connect("local", workers=1), str(tmp_path / "page.html")),
    ):
        raise ValueError("what went wrong")
