"""The commands of the pods, run as processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import dask
import pytest
import s3fs
from dask.utils import parse_bytes
from distributed import Client, Security
from moto.server import ThreadedMotoServer

from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.kubernetes.settings import is_of_pods
from gpgc_dask.clusters.kubernetes.waiting import wait_for_scheduler, wait_for_workers
from gpgc_dask.clusters.versions import IMAGE_VARIABLE
from gpgc_dask.core.errors import EXIT_PERMANENT, VersionError
from tests.support.manifests import SETTINGS, VARIANTS
from tests.support.pods import local, own_config, processes
from tests.support.ports import free_ports

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
PLAIN = VARIANTS["plain"]


def test_the_commands_of_the_containers_make_a_cluster(certificates):
    """They run as processes here, with other ports and paths."""
    settings = replace(SETTINGS, workers=1)
    ports = comm, dashboard = free_ports(2)
    address = f"tls://127.0.0.1:{comm}"
    with processes() as start:
        start(*local(settings, "scheduler", *ports, certificates))
        arguments, variables = local(settings, "worker", *ports, certificates)
        start(arguments, variables | {"DASK_SCHEDULER_ADDRESS": "tcp://127.0.0.1:1"})
        limit = arguments[arguments.index("--memory-limit") + 1]
        arguments, variables = local(settings, "wait", *ports, certificates)
        assert start([sys.executable, *arguments[1:]], variables).wait(timeout=180) == 0
        config = own_config(settings, certificates, "fit")
        with dask.config.set(config), Client(address, timeout=60) as client:
            (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
            assert worker["name"] == "pod-1"
            assert worker["nthreads"] == 2
            assert worker["memory_limit"] == parse_bytes(limit)
            assert client.submit(os.getenv, "OMP_NUM_THREADS").result(timeout=60) == "1"
            saturation = client.run_on_scheduler(
                lambda: dask.config.get("distributed.scheduler.worker-saturation")
            )
            assert saturation == 1.0
        for path in ("health", "api/v1/adaptive_target", "api/v1/check_idle"):
            with urlopen(f"http://127.0.0.1:{dashboard}/{path}", timeout=60) as answer:
                assert answer.status == 200
        with pytest.raises((OSError, TimeoutError)):
            Client(f"tcp://127.0.0.1:{comm}", timeout=2)
        other_certificates = Security.temporary()
        with pytest.raises((OSError, TimeoutError)):
            Client(address, timeout=2, security=other_certificates)


@pytest.fixture
def bucket(reference):
    """An S3 server that holds a dataset, and the content of the Secret for it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    secret = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    store = s3fs.S3FileSystem(
        key="testing", secret="testing", endpoint_url=secret["AWS_ENDPOINT_URL"]
    )
    store.mkdir("horses")
    store.put(str(reference), "horses/data.zarr", recursive=True)
    yield store, secret
    server.stop()


def test_the_command_of_the_job_fits_data_in_a_bucket(certificates, bucket):
    """All four containers, over TLS, with the credentials of the store in the environment."""
    store, secret = bucket
    settings = replace(SETTINGS, workers=1)
    with processes() as start:
        ports = free_ports(2)
        start(*local(settings, "scheduler", *ports, certificates))
        for name in ("worker", "wait", "fit"):
            arguments, variables = local(settings, name, *ports, certificates)
            arguments[0] = {"python": sys.executable}.get(arguments[0], arguments[0])
            started = start(arguments, variables | secret)
            if name != "worker":
                assert started.wait(timeout=300) == 0
    store.invalidate_cache()
    assert store.exists("horses/model.zarr/zarr.json")
    assert not store.exists("horses/model.zarr.unfinished.npz")


def test_another_image_is_refused_before_the_fit(tmp_path, monkeypatch):
    """A running DaskCluster keeps its image when another one is applied."""
    new = replace(PLAIN, workers=1, image="registry.example.org/gpgc_dask:2.0")
    ports = comm, _ = free_ports(2)
    with processes() as start:
        for name in ("scheduler", "worker"):
            start(*local(replace(new, image=PLAIN.image), name, *ports, tmp_path))
        arguments, variables = local(new, "wait", *ports, tmp_path)
        waiting = subprocess.run(
            [sys.executable, *arguments[1:]],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert waiting.returncode == EXIT_PERMANENT, waiting.stderr
        (message,) = waiting.stderr.splitlines()
        assert "image registry.example.org/gpgc_dask:1.0 (here " in message
        assert message.endswith(
            "kubectl replace --force --cascade=foreground -f 2-cluster.yaml -f 3-job.yaml"
        )
        monkeypatch.setenv(IMAGE_VARIABLE, new.image)
        address = f"tcp://127.0.0.1:{comm}"
        with pytest.raises(VersionError, match="the scheduler has image registry"):
            connect(address).__enter__()
        monkeypatch.setenv(IMAGE_VARIABLE, PLAIN.image)
        assert wait_for_scheduler(address) == 1


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_addresses_of_pods_are_recognised(settings):
    assert is_of_pods(settings.scheduler_address)
    assert not is_of_pods("tcp://127.0.0.1:8786")


def test_waiting_for_a_missing_scheduler_ends():
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at .*: check whether"):
        wait_for_scheduler(f"tcp://127.0.0.1:{port}", answer_seconds=1)
    assert time.monotonic() - began < 20


def test_a_fit_begins_with_the_workers_that_have_connected(client):
    address = client.scheduler.address
    assert wait_for_scheduler(address, 2) == 2
    assert wait_for_scheduler(address, 3, worker_seconds=0.5) == 2


def test_a_scheduler_without_workers_is_reported():
    with (
        Client(processes=False, n_workers=0, dashboard_address=":0") as alone,
        pytest.raises(
            ConnectionError, match=r"has no worker after .*: find out why their pods wait"
        ),
    ):
        wait_for_workers(alone, 1, seconds=0.5)
