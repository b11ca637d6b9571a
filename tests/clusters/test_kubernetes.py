"""Manifests of a fit on Kubernetes."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from urllib.request import urlopen

import dask
import distributed
import jsonschema
import pytest
import s3fs
import typer
import yaml
from dask.utils import parse_bytes
from distributed import Client, Security
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from gpgc_dask.cli import app
from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.kubernetes import Settings, kube_cluster, manifests
from gpgc_dask.clusters.kubernetes.pods import USER_ID
from gpgc_dask.clusters.kubernetes.waiting import wait_for_scheduler, wait_for_workers
from gpgc_dask.clusters.kubernetes.writing import to_yaml
from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.core.errors import ClusterError
from gpgc_dask.planning.memory import USABLE_SHARE, worker_bytes
from gpgc_dask.planning.shape import Shape
from tests.support.kubernetes_api import serve_api
from tests.support.kubernetes_schemas import check

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"

SETTINGS = Settings(
    image="registry.example.org/gpgc_dask:1.0",
    data="s3://horses/data.zarr",
    model="s3://horses/model.zarr",
    shape=Shape.from_images(10_000, 489),
    threads=2,
)
VARIANTS = {
    "default": SETTINGS,
    "autoscaler": replace(SETTINGS, min_workers=2),
    "growing": replace(SETTINGS, workers=2, max_workers=40),
    "volume": replace(SETTINGS, claim="states"),
    "bucket": replace(SETTINGS, checkpoint="s3://states/horses.npz"),
    "plain": replace(SETTINGS, tls_secret=None, store_secret=None),
    "identity": replace(
        SETTINGS, store_secret=None, service_account="reader", pull_secret="registry"
    ),
    "no fit": Settings(image=SETTINGS.image),
}


def objects(settings):
    return [found for file in manifests(settings).values() for found in file]


def one(settings, kind, name=None):
    (found,) = (
        found
        for found in objects(settings)
        if found["kind"] == kind and name in (None, found["metadata"]["name"])
    )
    return found


def pods(settings):
    """Pod specs by what they are for."""
    spec = one(settings, "DaskCluster")["spec"]
    found = {role: spec[role]["spec"] for role in ("scheduler", "worker")}
    if settings.data is not None:
        found["driver"] = one(settings, "Job")["spec"]["template"]["spec"]
    return found


def containers(settings):
    return {
        container["name"]: container
        for pod in pods(settings).values()
        for container in pod.get("initContainers", []) + pod["containers"]
    }


def environment(container):
    return {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_manifests_are_valid(settings):
    found = objects(settings)
    for manifest in found:
        check(manifest)
    kinds = {manifest["kind"] for manifest in found}
    assert kinds >= {"Namespace", "NetworkPolicy", "PodDisruptionBudget", "DaskCluster"}
    assert ("DaskAutoscaler" in kinds) == (settings.worker_bounds is not None)
    assert ("PersistentVolumeClaim" in kinds) == (settings.claim is not None)
    assert ("Job" in kinds) == (settings.data is not None)
    assert list(yaml.safe_load_all(to_yaml(settings))) == found


def paths(value, before=()):
    """Where there are numbers or texts in a manifest."""
    if isinstance(value, dict):
        return [path for key, part in value.items() for path in paths(part, (*before, key))]
    if isinstance(value, list):
        return [path for at, part in enumerate(value) for path in paths(part, (*before, at))]
    return [before]


def set_at(manifest, path, value):
    broken = copy.deepcopy(manifest)
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return broken


def free(path):
    """Whether anything may stand there: names and values of labels are the user's own."""
    return bool({"metadata", "matchLabels", "selector"} & set(path)) or path[0] == "apiVersion"


@pytest.mark.parametrize("kind", ["DaskCluster", "DaskAutoscaler", "Job", "NetworkPolicy"])
def test_broken_manifests_are_not_valid(kind):
    settings = replace(SETTINGS, min_workers=2)
    manifest = next(found for found in objects(settings) if found["kind"] == kind)
    check(manifest)
    tried = 0
    for path in paths(manifest):
        if free(path) or path[0] == "kind":
            continue
        with pytest.raises(jsonschema.ValidationError):
            check(set_at(manifest, path, {"neither": "number nor text"}))
        tried += 1
    assert tried >= 3
    for path in {path[:-1] for path in paths(manifest) if not free(path)}:
        if path and isinstance(path[-1], str) and path[-1] not in ("requests", "limits"):
            place = manifest
            for key in path:
                place = place[key]
            if isinstance(place, dict):
                with pytest.raises(jsonschema.ValidationError):
                    check(set_at(manifest, (*path, "unknownField"), "x"))


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_pods_have_no_rights_and_no_secrets_in_them(settings):
    text = to_yaml(settings)
    assert not re.search(r"AWS_|SECRET_ACCESS|PRIVATE KEY|stringData", text)
    for pod in pods(settings).values():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == USER_ID
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
    for container in containers(settings).values():
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["image"] == settings.image
        assert set(container["resources"]["limits"]) == {"memory"}


def test_who_gets_the_credentials():
    with_store = {name for name, found in containers(SETTINGS).items() if "envFrom" in found}
    assert with_store == {"worker", "fit"}
    for role, pod in pods(SETTINGS).items():
        (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
        own = "client" if role == "driver" else role
        files = {item["key"] for item in secret["items"]}
        assert files == {"ca.pem", f"{own}.pem", f"{own}-key.pem"}
        assert secret["secretName"] == "gpgc-tls"


def test_the_user_is_the_images_own():
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert f"useradd --uid {USER_ID} --gid {USER_ID} --create-home" in dockerfile
    assert f"USER {USER_ID}:{USER_ID}" in dockerfile
    assert str(USER_ID) in (FOLDER / "build.sh").read_text()


def test_the_base_and_all_packages_are_pinned():
    (base,) = re.findall(r"^ARG BASE=(\S+)", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert re.search(r":\d+\.\d+\.\d+-slim-\w+$", base)
    lines = (FOLDER / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line) for line in pins)
    names = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    assert names >= {"dask", "distributed", "numpy", "zarr", "s3fs"}


def test_addresses_and_ports_agree():
    """The operator makes a service of this name; pods, policies and the fit must mean that."""
    cluster = one(SETTINGS, "DaskCluster")["spec"]
    ports = {port["name"]: port for port in cluster["scheduler"]["service"]["ports"]}
    assert {name: port["port"] for name, port in ports.items()} == {
        "tcp-comm": 8786,
        "http-dashboard": 8787,
    }
    assert cluster["scheduler"]["service"]["type"] == "ClusterIP"
    opened = {port["name"]: port for port in containers(SETTINGS)["scheduler"]["ports"]}
    for name, port in ports.items():
        assert opened[port["targetPort"]]["containerPort"] == port["port"]
        assert name == port["targetPort"]
    address = "tls://gpgc-scheduler.gpgc.svc:8786"
    fit = containers(SETTINGS)["fit"]["args"]
    assert fit[fit.index("--scheduler") + 1] == address
    assert containers(SETTINGS)["worker"]["args"][2] == address
    assert containers(SETTINGS)["wait"]["args"][-2:] == [address, "20"]
    assert one(SETTINGS, "PodDisruptionBudget", "gpgc-scheduler")
    plain = replace(SETTINGS, tls_secret=None)
    assert plain.scheduler_address == address.replace("tls", "tcp")
    assert "--protocol tcp" in " ".join(containers(plain)["scheduler"]["args"])
    assert not any("TLS" in name for name in environment(containers(plain)["worker"]))


def test_budgets_and_policies_select_what_they_mean():
    made_by_operator = {"dask.org/cluster-name": "gpgc", "dask.org/component": "scheduler"}
    driver = one(SETTINGS, "Job")["spec"]["template"]["metadata"]["labels"]
    budgets = [found for found in objects(SETTINGS) if found["kind"] == "PodDisruptionBudget"]
    selected = [found["spec"]["selector"]["matchLabels"] for found in budgets]
    assert selected == [made_by_operator, driver]
    policy = one(SETTINGS, "NetworkPolicy", "gpgc")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= made_by_operator.items()
    inside, operator = policy["ingress"]
    labels = [peer["podSelector"]["matchLabels"] for peer in inside["from"]]
    assert labels == [{"dask.org/cluster-name": "gpgc"}, driver]
    assert operator["ports"] == [{"protocol": "TCP", "port": 8787}]
    assert "ingress" not in one(SETTINGS, "NetworkPolicy", "gpgc-fit")["spec"]


def test_where_the_state_is_kept():
    def told(settings):
        fit = containers(settings)["fit"]["args"]
        assert "--resume" in fit
        return fit[fit.index("--checkpoint") + 1]

    assert told(SETTINGS) == "s3://horses/model.zarr.unfinished.npz"
    assert told(VARIANTS["bucket"]) == "s3://states/horses.npz"
    volume = VARIANTS["volume"]
    mounts = {
        mount["name"]: mount["mountPath"] for mount in containers(volume)["fit"]["volumeMounts"]
    }
    assert Path(told(volume)).parent == Path(mounts["checkpoints"])
    assert one(volume, "PersistentVolumeClaim", "states")


def test_workers_have_the_memory_of_the_plan():
    for k, threads in ((489, 2), (4113, 16)):
        settings = replace(SETTINGS, shape=Shape.from_images(111_668, k), threads=threads)
        worker = containers(settings)["worker"]
        arguments = worker["args"]
        limit = parse_bytes(arguments[arguments.index("--memory-limit") + 1])
        needed = worker_bytes(settings.shape, threads, estimate_redundancy=True)
        assert needed <= USABLE_SHARE * limit
        assert limit < 2 * needed + (1 << 30)
        assert parse_bytes(worker["resources"]["requests"]["memory"] + "B") > limit
        assert worker["resources"]["requests"]["cpu"] == str(threads)
    given = replace(SETTINGS, memory_limit="3GiB")
    assert "3072MiB" in containers(given)["worker"]["args"]
    assert limit < parse_bytes("8192MiB")  # what there is without a shape holds the paper's fits
    assert "8192MiB" in containers(VARIANTS["no fit"])["worker"]["args"]


def test_environment_names_are_dasks_own():
    path = Path(distributed.__file__).parent / "distributed.yaml"
    known = yaml.safe_load(path.read_text())
    checked = set()
    for container in containers(SETTINGS).values():
        ours = {k: v for k, v in environment(container).items() if k.startswith("DASK_")}
        for key in flat(dask.config.collect(paths=[], env=ours)):
            place = known
            for part in key:
                place = place[dask.config.canonical_name(part, place)]
            checked.add(".".join(dask.config.canonical_name(part, {}) for part in key))
    assert len(checked) >= 12


def flat(config, before=()):
    if not isinstance(config, dict):
        return [before]
    return [path for key, part in config.items() for path in flat(part, (*before, key))]


def test_routes_are_dasks_own_and_the_api():
    ours = json.loads(
        environment(containers(SETTINGS)["scheduler"])["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"]
    )
    # Not dask.config's: distributed adds to that list when a scheduler starts in this process.
    defaults = yaml.safe_load(Path(distributed.__file__).with_name("distributed.yaml").read_text())
    default = defaults["distributed"]["scheduler"]["http"]["routes"]
    assert set(ours) == {*default, "distributed.http.scheduler.api"}


FIT = typer.main.get_command(app).commands["fit"]


def test_the_fit_is_called_rightly():
    program, command, *arguments = containers(SETTINGS)["fit"]["args"]
    assert (program, command) == ("gpgc", "fit")
    given = FIT.make_context("fit", arguments).params
    assert given["data"] == SETTINGS.data
    assert given["resume"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image": "gpgc_dask"}, "not pinned: name a version, such as gpgc_dask:1.0"),
        ({"image": "host:5000/gpgc_dask:latest"}, "not pinned"),
        ({"name": "Horses"}, "name must consist of at most 40 lower-case letters"),
        ({"namespace": "n" * 50}, "namespace must consist of"),
        ({"data": "/data/horses.zarr"}, "data must be a URL that all pods can reach"),
        ({"model": "s3://key:word@horses/model.zarr"}, "credentials in its URL"),
        ({"model": None}, "give both"),
        ({"shape": None}, "shape must be given"),
        ({"checkpoint": "s3://a/b", "claim": "c"}, "choose one"),
        ({"workers": 0}, "workers must be 1 or more"),
        ({"min_workers": 21}, "from 1 to the 20 workers"),
        ({"max_workers": 19}, "at least the 20 workers"),
        ({"idle_seconds": -1}, "idle_seconds must be 0"),
        ({"memory_limit": "much"}, "'much' is no amount of memory"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(SETTINGS, **wrong)


def test_images_may_be_pinned_by_digest_or_come_from_a_port():
    for image in ("host:5000/gpgc_dask:1.0", "gpgc_dask@sha256:" + "0" * 64):
        assert replace(SETTINGS, image=image).image == image


def generate(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "gpgc_dask", "deploy", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_the_examples_are_what_the_guides_commands_write_today(tmp_path):
    text = (FOLDER / "README.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^gpgc deploy (.*)$", text, re.MULTILINE)
    for command in commands:
        done = generate(*shlex.split(command), cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    def texts(folder):
        return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.yaml")}

    assert len(commands) == 2
    assert texts(tmp_path / "deploy") == texts(FOLDER)
    kinds = [found["kind"] for text in texts(FOLDER).values() for found in yaml.safe_load_all(text)]
    assert {"DaskCluster", "DaskAutoscaler", "Job", "NetworkPolicy"} <= set(kinds)


def test_the_guides_costs_are_those_of_todays_plan():
    script = ROOT / "benchmarks/deployment.py"
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert "| worker | 20 | 16 |" in done.stdout
    assert done.stdout.strip() in (FOLDER / "README.md").read_text()


def call(*arguments):
    """The program, in this process."""
    return CliRunner().invoke(app, ["deploy", *map(str, arguments)])


def test_a_plan_sizes_as_the_images_do(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"shape": asdict(SETTINGS.shape), "seconds": 1.0}))
    common = ["--image", SETTINGS.image, "--data", SETTINGS.data, "--model", SETTINGS.model]
    common += ["--threads", 2]
    by_plan, by_images = call(*common, "--plan", plan), call(*common, "--images", 10_000)
    assert by_plan.output == by_images.output == to_yaml(SETTINGS)
    plan.write_text("{}")
    wrong = call(*common, "--plan", plan)
    assert wrong.exit_code == 1
    assert "is not the output of gpgc plan DATA --json" in wrong.output
    both = call(*common, "--plan", plan, "--images", 3)
    assert "choose one" in both.output


def free_ports(n):
    """Ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def processes():
    """A way to start processes that end with the context."""
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
            process.wait(timeout=20)


@pytest.fixture
def certificates(tmp_path):
    """Files as the Secret has them; one pair serves all roles."""
    own = Security.temporary()
    (tmp_path / "ca.pem").write_text(own.tls_ca_file)
    for role in ("scheduler", "worker", "client"):
        (tmp_path / f"{role}.pem").write_text(getattr(own, f"tls_{role}_cert"))
        (tmp_path / f"{role}-key.pem").write_text(getattr(own, f"tls_{role}_key"))
    return tmp_path


def local(settings, name, comm, dashboard, certificates):
    """(arguments, environment) of a container as a process here: other ports and paths."""

    def here(text):
        text = text.replace("gpgc-scheduler.gpgc.svc:8786", f"127.0.0.1:{comm}")
        text = text.replace("0.0.0.0", "127.0.0.1").replace(":8787", f"127.0.0.1:{dashboard}")
        text = text.replace("/certificates", str(certificates))
        return re.sub("^8786$", str(comm), text.replace("$(DASK_WORKER_NAME)", "pod-1"))

    container = containers(settings)[name]
    variables = {key: here(value) for key, value in environment(container).items()}
    return [here(argument) for argument in container["args"]], variables


def own_config(settings, certificates, name):
    """Dask's configuration in this process, as it is in a container."""
    _, variables = local(settings, name, 0, 0, certificates)
    return dask.config.merge(dask.config.config, dask.config.collect(paths=[], env=variables))


def test_the_containers_commands_make_a_cluster(certificates):
    """What the pods run, as processes here: only ports and paths are others."""
    settings = replace(SETTINGS, workers=1)
    ports = comm, dashboard = free_ports(2)
    address = f"tls://127.0.0.1:{comm}"
    with processes() as start:
        start(*local(settings, "scheduler", *ports, certificates))
        arguments, variables = local(settings, "worker", *ports, certificates)
        start(arguments, variables | {"DASK_SCHEDULER_ADDRESS": "tcp://127.0.0.1:1"})
        limit = arguments[arguments.index("--memory-limit") + 1]
        arguments, variables = local(settings, "wait", *ports, certificates)
        assert start([sys.executable, *arguments[1:]], variables).wait(timeout=60) == 0
        config = own_config(settings, certificates, "fit")
        with dask.config.set(config), Client(address, timeout=10) as client:
            (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
            assert worker["name"] == "pod-1"
            assert worker["nthreads"] == 2
            assert worker["memory_limit"] == parse_bytes(limit)
            assert client.submit(os.getenv, "OMP_NUM_THREADS").result(timeout=10) == "1"
            saturation = client.run_on_scheduler(
                lambda: dask.config.get("distributed.scheduler.worker-saturation")
            )
            assert saturation == 1.0
        for path in ("health", "api/v1/adaptive_target", "api/v1/check_idle"):
            with urlopen(f"http://127.0.0.1:{dashboard}/{path}", timeout=5) as answer:
                assert answer.status == 200
        with pytest.raises((OSError, TimeoutError)):
            Client(f"tcp://127.0.0.1:{comm}", timeout=2)
        strangers = Security.temporary()
        with pytest.raises((OSError, TimeoutError)):
            Client(address, timeout=2, security=strangers)


@pytest.fixture
def bucket(reference):
    """An S3 server that holds a dataset; what the store's Secret would say of it."""
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


def test_the_jobs_command_fits_in_a_bucket(certificates, bucket):
    """All four containers, over TLS, the store's credentials from the environment."""
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
                assert started.wait(timeout=120) == 0
    store.invalidate_cache()
    assert store.exists("horses/model.zarr/zarr.json")
    assert not store.exists("horses/model.zarr.unfinished.npz")


def test_waiting_says_what_is_missing():
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at .*: check whether"):
        wait_for_scheduler(f"tcp://127.0.0.1:{port}", answer_seconds=1)
    assert time.monotonic() - began < 20


def test_a_fit_begins_with_the_workers_that_came(client):
    address = client.scheduler.address
    assert wait_for_scheduler(address, 2) == 2
    assert wait_for_scheduler(address, 3, worker_seconds=0.5) == 2


def test_a_scheduler_without_workers_is_told():
    with (
        Client(processes=False, n_workers=0, dashboard_address=":0") as alone,
        pytest.raises(
            ConnectionError, match=r"has no worker after .*: find out why their pods wait"
        ),
    ):
        wait_for_workers(alone, 1, seconds=0.5)


def test_pods_from_python_need_certificates_and_dask_kubernetes(monkeypatch):
    with pytest.raises(ValueError, match=r"needs certificates.*or turn encryption off"):
        kube_cluster(SETTINGS)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'gpgc_dask[kubernetes]'")):
        kube_cluster(SETTINGS)


PLAIN = VARIANTS["plain"]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One for the module: clients of Kubernetes' API remember where it is."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with pytest.MonkeyPatch.context() as patch, serve_api(folder) as (fake, config):
        patch.setenv("KUBECONFIG", str(config))
        yield fake


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "encrypted"])
def test_pods_from_python_do_not_wait_for_the_phase(api, certificates, tls):
    """A DaskCluster that stays Pending (dask-kubernetes issue 968) is joined all the same."""
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
    """As --cluster kubernetes --image IMAGE --workers 1 --memory-limit 3GB --tls-ca … would."""
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
            assert client.submit(sum, [1, 2]).result(timeout=30) == 3
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
