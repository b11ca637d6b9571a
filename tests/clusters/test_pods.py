"""The commands of the pods, run as processes on this machine, and clusters that Python starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
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
from gpgc_dask.clusters.kubernetes import kube_cluster
from gpgc_dask.clusters.kubernetes.settings import is_of_pods
from gpgc_dask.clusters.kubernetes.waiting import wait_for_scheduler, wait_for_workers
from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.clusters.versions import IMAGE_VARIABLE
from gpgc_dask.core.errors import EXIT_PERMANENT, ClusterError, VersionError
from tests.support.kubernetes_api import serve_api
from tests.support.manifests import SETTINGS, VARIANTS, containers, environment, one
from tests.support.ports import free_ports

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
PLAIN = VARIANTS["plain"]


@contextmanager
def processes():
    """Yield a function that starts processes, which end with the context."""
    running = []

    def start(arguments, variables):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        every = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | variables
        running.append(
            subprocess.Popen(arguments, env=every, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        )
        return running[-1]

    try:
        yield start
    finally:
        for process in reversed(running):  # workers before their scheduler
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture
def certificates(tmp_path):
    """The files of the Secret; one pair serves all roles."""
    own = Security.temporary()
    (tmp_path / "ca.pem").write_text(own.tls_ca_file)
    for role in ("scheduler", "worker", "client"):
        (tmp_path / f"{role}.pem").write_text(getattr(own, f"tls_{role}_cert"))
        (tmp_path / f"{role}-key.pem").write_text(getattr(own, f"tls_{role}_key"))
    return tmp_path


def local(settings, name, comm, dashboard, certificates):
    """(arguments, environment) with which a container runs as a process here."""

    def here(text):
        text = text.replace("gpgc-scheduler.gpgc.svc:8786", f"127.0.0.1:{comm}")
        text = text.replace("0.0.0.0", "127.0.0.1").replace(":8787", f"127.0.0.1:{dashboard}")
        text = text.replace("/certificates", str(certificates))
        return re.sub("^8786$", str(comm), text.replace("$(DASK_WORKER_NAME)", "pod-1"))

    container = containers(settings)[name]
    variables = {key: here(value) for key, value in environment(container).items()}
    return [here(argument) for argument in container["args"]], variables


def own_config(settings, certificates, name):
    """Dask's configuration in a container, for this process."""
    _, variables = local(settings, name, 0, 0, certificates)
    return dask.config.merge(dask.config.config, dask.config.collect(paths=[], env=variables))


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


def test_pods_from_python_need_certificates_and_dask_kubernetes(monkeypatch):
    with pytest.raises(ValueError, match=r"needs certificates.*or in Python turn encryption off"):
        kube_cluster(SETTINGS)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'gpgc_dask[kubernetes]'")):
        kube_cluster(SETTINGS)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API for the module: clients of Kubernetes cache its address."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with pytest.MonkeyPatch.context() as patch, serve_api(folder) as (fake, config):
        patch.setenv("KUBECONFIG", str(config))
        yield fake


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "encrypted"])
def test_pods_from_python_do_not_wait_for_the_phase(api, certificates, tls):
    """A DaskCluster that stays Pending (dask-kubernetes issue 968) is connected nevertheless."""
    settings = replace(SETTINGS if tls else PLAIN, workers=1)
    api.ports = comm, dashboard = free_ports(2)
    scheme = "tls" if tls else "tcp"
    with processes() as start, dask.config.set(own_config(settings, certificates, "fit")):
        for name in ("scheduler", "worker"):
            start(*local(settings, name, comm, dashboard, certificates))
        with kube_cluster(settings) as cluster, cluster.get_client() as client:
            assert client.scheduler.address == f"{scheme}://127.0.0.1:{comm}"
            assert len(client.nthreads()) == 1
            assert api.created[-1] == one(settings, "DaskCluster")
            assert api.cluster["status"] == {"phase": "Pending"}
        assert api.cluster is None


def test_connect_to_pods(api, certificates):
    """The same as --cluster kubernetes --image IMAGE --workers 1 --memory-limit 3GB --tls-ca …"""
    settings = replace(SETTINGS, workers=1)
    api.ports = comm, dashboard = free_ports(2)
    names = ("ca.pem", "client.pem", "client-key.pem")
    tls = TlsFiles(*(str(certificates / name) for name in names))
    image = {"image": settings.image}
    with processes() as start:
        for name in ("scheduler", "worker"):
            start(*local(settings, name, comm, dashboard, certificates))
        pods = connect("kubernetes", workers=1, memory_limit="3GB", tls=tls, settings=image)
        with pods as client:
            assert client.scheduler.address == f"tls://127.0.0.1:{comm}"
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
            worker = api.created[-1]["spec"]["worker"]
            assert worker["replicas"] == 1
            assert worker["spec"]["containers"][0]["image"] == settings.image
        assert api.cluster is None
    with pytest.raises(ValueError, match="--memory-limit"), connect("kubernetes", settings=image):
        pass


def test_pods_from_python_without_an_operator(api, monkeypatch):
    monkeypatch.setattr("gpgc_dask.clusters.kubernetes.kube.OPERATOR_SECONDS", 0.5)
    api.ports = None
    made = len(api.created)
    with pytest.raises(ClusterError, match="check whether the Dask operator runs"):
        kube_cluster(PLAIN)
    assert len(api.created) == made + 1
    assert api.cluster is None
