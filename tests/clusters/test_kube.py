"""Clusters of pods that Python and the program start, at a stand-in for the Kubernetes API."""

from __future__ import annotations

import logging
import re
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import dask
import httpx
import kr8s
import pytest
from dask.utils import parse_bytes
from dask_kubernetes.operator.networking import run_port_forward
from distributed import Client

from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.kubernetes import kube_cluster
from gpgc_dask.clusters.kubernetes.api import api_errors, list_nodes
from gpgc_dask.clusters.kubernetes.forwarding import report_lost_ports_once
from gpgc_dask.clusters.kubernetes.nodes import choose_threads
from gpgc_dask.clusters.kubernetes.pending import PodWatch, find_reasons
from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.core.errors import (
    AccessDeniedError,
    ClusterError,
    ExistsError,
    InputError,
    exit_code,
)
from tests.support.images import save_pairs
from tests.support.kubernetes_api import EVENTS, NODES, condition, serve_api
from tests.support.manifests import SETTINGS, VARIANTS, one
from tests.support.pods import local, own_config, processes
from tests.support.ports import free_ports

pytestmark = pytest.mark.newest

PLAIN = VARIANTS["plain"]


def test_pods_from_python_need_certificates_and_dask_kubernetes(monkeypatch):
    with pytest.raises(
        ValueError, match=r"needs certificates.*--tls-ca.* or turn encryption off with .*--no-tls"
    ):
        kube_cluster(SETTINGS)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'gpgc_dask[kubernetes]'")):
        kube_cluster(SETTINGS)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One API for the module: clients of Kubernetes cache its address."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with pytest.MonkeyPatch.context() as patch, serve_api(folder) as (fake, config):
        patch.setenv("KUBECONFIG", str(config))
        yield fake


@pytest.fixture
def api(served):
    served.reset()
    return served


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """Ports of a scheduler with one worker, without encryption."""
    ports = free_ports(2)
    with processes() as start:
        for name in ("scheduler", "worker"):
            start(*local(replace(PLAIN, workers=1), name, *ports, tmp_path_factory.mktemp("none")))
        yield ports


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


def on_pods(*more):
    """Options of a command on pods without encryption."""
    options = {"image": PLAIN.image, "workers": 1, "memory-limit": "3GB"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return ["--cluster", "kubernetes", "--no-tls", "--store-secret", "", *words, *more]


def test_the_options_of_the_program(api, ports, run, reference, tmp_path):
    """A whole fit, whose pods are those of the options."""
    api.ports = ports
    options = ["--threads", 3, "--namespace", "lab", "--pull-secret", "registry"]
    fit = ("fit", reference, "--max-iter", 1, "--rounds", 0)
    code, _, err = run(*fit, "-o", tmp_path / "a.zarr", *on_pods(*options, "--name", "horses"))
    assert code == 0, err
    first = api.created[-1]
    assert first["metadata"] == {"name": "horses", "namespace": "lab"}
    pod = first["spec"]["worker"]["spec"]
    (worker,) = pod["containers"]
    assert worker["resources"]["requests"]["cpu"] == "3"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "envFrom" not in worker
    assert api.cluster is None


PLAIN_SETTINGS = {"image": PLAIN.image, "tls_secret": None, "store_secret": None}


def test_two_fits_do_not_collide(api, monkeypatch):
    monkeypatch.setattr("gpgc_dask.clusters.kubernetes.kube.OPERATOR_SECONDS", 0.1)
    api.ports = None
    for _ in range(2):
        with pytest.raises(ClusterError, match="Dask operator runs"):
            connect("kubernetes", memory_limit="3GB", settings=PLAIN_SETTINGS).__enter__()
    first, second = (made["metadata"]["name"] for made in api.created[-2:])
    assert first != second
    assert all(re.fullmatch("gpgc-[0-9a-f]{8}", name) for name in (first, second))


def test_a_name_that_exists(api, ports):
    api.ports = ports
    settings = replace(PLAIN, workers=1)
    with kube_cluster(settings):
        with pytest.raises(ExistsError, match=r"already exists: choose another name \(--name\)"):
            kube_cluster(settings)
        assert api.cluster is not None, "the cluster of another fit was deleted"


NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available"


def no_room():
    unscheduled = condition("PodScheduled", "False", reason="Unschedulable", message=NO_ROOM)
    return {"phase": "Pending", "conditions": [unscheduled]}


def test_a_pod_without_room_is_reported_at_once(api, ports, run, reference, tmp_path, monkeypatch):
    """The fit waits for more nodes, or for Ctrl-C; here it gives up at once."""
    api.ports, api.late = ports, 10**6
    api.waiting = {"x-scheduler-2": no_room()}
    monkeypatch.setattr("gpgc_dask.clusters.kubernetes.kube.ANSWER_SECONDS", 0.1)
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *on_pods("--threads", 16))
    assert code == 1, err
    note, error = err.splitlines()
    assert re.search(r"1 pod of gpgc-\w+ cannot start: Unschedulable: 0/3 nodes .*cpu", note)
    assert "Workers request 16 cores: give them fewer (--threads)" in note
    assert "is not ready after 0.1 s: 1 pod of" in error
    assert api.cluster is None


def test_a_fit_goes_on_when_there_is_room(api, ports, caplog):
    """The first lists of pods have no ready scheduler, and two workers never find room."""
    api.ports, api.late = ports, 3
    api.waiting = {"gpgc-worker-2": no_room(), "gpgc-worker-3": no_room()}
    with kube_cluster(replace(PLAIN, workers=1)) as cluster, Client(cluster) as client:
        assert len(client.nthreads()) == 1
    told = [record.message for record in caplog.records if record.name == "gpgc_dask"]
    assert [text.split(":")[0] for text in told] == ["2 pods of gpgc cannot start"]


def event(kind, name, reason, message):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "gpgc"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": kind, "name": name},
    }


def pod(name, **status):
    return {"metadata": {"name": name}, "status": status}


def test_reasons_of_pods():
    ready = {"conditions": [condition("Ready")]}
    pull = {"reason": "ImagePullBackOff", "message": "not found"}
    pods = [
        pod("a-1", **ready),
        pod("a-2", containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}]),
        pod("a-3", containerStatuses=[{"state": {"waiting": pull}}]),
        pod("a-4"),
    ]
    events = [
        event("Pod", "a-1", "Unhealthy", "it was slow"),
        event("Pod", "a-2", "FailedMount", 'secret "gpgc-tls" not found'),
        event("Pod", "ab-1", "FailedMount", "of another cluster"),
    ]
    assert find_reasons(pods, events, "a") == {
        "a-2": 'FailedMount: secret "gpgc-tls" not found',
        "a-3": "ImagePullBackOff: not found",
    }
    quota = event("ReplicaSet", "a-scheduler-5d", "FailedCreate", "exceeded quota")
    assert find_reasons([], [quota], "a") == {"a-scheduler-5d": "FailedCreate: exceeded quota"}


def test_a_missing_secret_is_named_with_its_option(api, ports, caplog):
    api.ports = ports
    api.waiting = {"gpgc-worker-2": {"phase": "Pending"}}
    api.events = [event("Pod", "gpgc-worker-2", "FailedMount", 'secret "gpgc-tls" not found')]
    with kube_cluster(replace(PLAIN, workers=1)):
        watch = PodWatch(PLAIN)
        assert 'secret "gpgc-tls" not found (--tls-secret' in watch.report()
        watch.report()
        assert len([r for r in caplog.records if "gpgc-tls" in r.message]) == 1
        api.forbidden = (EVENTS,)
        assert watch.report() == ""


def node(cpu, memory, **spec):
    return {"spec": spec, "status": {"allocatable": {"cpu": cpu, "memory": memory}}}


@pytest.mark.parametrize(
    ("limit", "nodes", "threads"),
    [
        ("8GiB", [], 2),
        ("3GB", [], 1),
        ("200GiB", [], 16),
        ("8GiB", [node("3920m", "12Gi"), node("1930m", "30Gi")], 2),
        ("8GiB", [node("16", "4Gi"), node("8", "16374124Ki")], 7),
        ("8GiB", [node("64", "256Gi")], 16),
        ("8GiB", [node("64", "256Gi", unschedulable=True), node("2", "16Gi")], 1),
        ("1GiB", [node("64", "256Gi")], 2),
        ("8GiB", [node("940m", "34359738368")], 1),
        ("64GiB", [node("8", "32Gi")], 16),
    ],
)
def test_threads_by_default(limit, nodes, threads):
    assert choose_threads(parse_bytes(limit), nodes) == threads


def test_threads_find_room_on_the_nodes(api, ports):
    api.ports = ports
    api.nodes[0]["status"]["allocatable"] = {"cpu": "5900m", "memory": "24Gi"}
    with connect("kubernetes", workers=1, memory_limit="3GB", settings=PLAIN_SETTINGS):
        (worker,) = api.created[-1]["spec"]["worker"]["spec"]["containers"]
        assert worker["resources"]["requests"]["cpu"] == "4"
    assert len(list_nodes()) == 1
    api.forbidden = (NODES,)
    assert list_nodes() == []


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (404, InputError, "the namespace must exist .* and the Dask operator must be installed"),
        (403, AccessDeniedError, "denies access"),
        (422, InputError, "rejects the request"),
        (429, ClusterError, "failed"),
        (503, ClusterError, "failed"),
        (httpx.ConnectError("refused"), ClusterError, "does not answer .*kubectl get pods"),
        (ValueError("no credentials"), InputError, "check KUBECONFIG"),
        (InputError("our own"), InputError, "^our own$"),
    ],
)
def test_errors_of_the_api(error, kind, message):
    if isinstance(error, int):
        error = kr8s.ServerError("it said why", response=httpx.Response(error))
    with pytest.raises(kind, match=message) as raised, api_errors():
        raise error
    assert exit_code(raised.value) == (1 if kind is ClusterError else 2)


def test_options_of_pods_need_pods(run, reference, tmp_path):
    fit = ("fit", reference, "-o", tmp_path / "m.zarr")
    for words in (("--threads", 2), ("--name", "a"), ("--no-tls",)):
        code, _, err = run(*fit, *words)
        assert (code, f"{words[0].replace('no-', '')}: for --cluster kubernetes" in err) == (
            2,
            True,
        )
    code, _, err = run(*fit, *on_pods("--name", "Horses"))
    assert (code, "name must consist of" in err) == (2, True)
    code, _, err = run(*fit, "--cluster", "kubernetes", "--image", PLAIN.image)
    assert (code, "--memory-limit" in err, "memory_limit" in err) == (2, True, False)
    pods = ("--cluster", "kubernetes", "--image", PLAIN.image, "--memory-limit", "3GB")
    code, _, err = run(*fit, *pods, "--threads", 1)
    assert (code, "tls_secret" in err, "with --no-tls" in err) == (2, False, True)


def forwarded(port):
    """Connect to a forwarded port; whatever happens to the pod, the connection ends."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.recv(1)


@pytest.mark.parametrize("debug", [False, True])
def test_a_deleted_scheduler_is_one_line(api, monkeypatch, caplog, debug):
    """The forwarding of kr8s, as KubeCluster starts it from outside of the cluster."""
    asyncio_log = logging.getLogger("asyncio")
    monkeypatch.setattr(asyncio_log, "filters", [])
    caplog.set_level(logging.DEBUG if debug else logging.WARNING, "gpgc_dask")
    for _ in range(2):
        report_lost_ports_once()
    assert len(asyncio_log.filters) == 1
    api.cluster, api.ports = one(PLAIN, "DaskCluster"), (1, 2)
    api.waiting, api.late = {"gpgc-scheduler-2": no_room()}, 10**6
    (port,) = free_ports(1)
    arguments = ("gpgc-scheduler", "gpgc", 8786, port)
    Thread(target=run_port_forward, args=arguments, daemon=True).start()
    wait_until_open(port)
    told = []
    while len(told) < (5 if debug else 1):  # a connection may end before its failure is logged
        for _ in range(5):
            forwarded(port)
        told = [record for record in caplog.records if record.name in ("asyncio", "gpgc_dask")]
    if debug:
        assert all("No ready pods found" in str(record.exc_info) for record in told)
        return
    (record,) = told
    assert "the connection to the scheduler's pod is lost (No ready pods found)" in record.message
    asyncio_log.error("something else")
    assert caplog.records[-1].message == "something else"


def wait_until_open(port):
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


def test_jobs_of_the_other_commands(ports, run, tmp_path):
    """What the jobs of an ingest, an update, a fit and a score call, on the cluster of pods."""
    images, masks = save_pairs(tmp_path, 12)
    data, model, scores = (str(tmp_path / name) for name in ("d.zarr", "m.zarr", "s.csv"))
    folders = (str(images), str(masks))
    quick = ("--backbone", "colour", "--superpixels", "20")
    for command in (
        ("ingest", *folders, "-o", data, *quick, "--resume"),
        ("update", data, *folders),
        ("fit", data, "-o", model, "--rounds", "0", "--resume"),
        ("score", model, *folders, "-o", scores),
    ):
        settings = replace(PLAIN, data=None, model=None, shape=None, command=command)
        arguments, _ = local(settings, command[0], *ports, tmp_path)
        assert arguments[0] == "gpgc"
        code, _, err = run(*arguments[1:])
        assert code == 0, err
    assert len(Path(scores).read_text().splitlines()) == 13
