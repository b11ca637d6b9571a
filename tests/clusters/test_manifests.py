"""Manifests of a fit on Kubernetes are valid and agree with each other."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import dask
import distributed
import jsonschema
import pytest
import typer
import yaml
from dask.utils import parse_bytes
from packaging.requirements import Requirement
from typer.testing import CliRunner

from gpgc_dask.cli import app
from gpgc_dask.clusters.kubernetes import Volume
from gpgc_dask.clusters.kubernetes.pods import USER_ID
from gpgc_dask.clusters.kubernetes.writing import to_yaml, write
from gpgc_dask.core.errors import EXIT_PERMANENT
from gpgc_dask.planning.memory import USABLE_SHARE, worker_bytes
from gpgc_dask.planning.shape import Shape
from tests.support.kubernetes_schemas import check
from tests.support.manifests import SETTINGS, VARIANTS, containers, environment, objects, one, pods

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_manifests_are_valid(settings):
    found = objects(settings)
    for manifest in found:
        check(manifest)
    kinds = {manifest["kind"] for manifest in found}
    assert kinds >= {"Namespace", "NetworkPolicy", "PodDisruptionBudget", "DaskCluster"}
    assert ("DaskAutoscaler" in kinds) == (settings.worker_bounds is not None)
    assert ("PersistentVolumeClaim" in kinds) == (settings.claim is not None)
    assert ("Job" in kinds) == bool(settings.job_arguments)
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
    pins = {**locked("constraints.txt"), **locked("build-constraints.txt")}
    assert pins.keys() >= {"dask", "distributed", "numpy", "zarr", "s3fs", "hatchling"}
    dockerfile = (FOLDER / "Dockerfile").read_text()
    for line in re.findall(r"/bin/pip .*", dockerfile):
        assert "--require-hashes" in line or "--no-index" in line or "pip check" in line


def locked(file):
    """{package: version} of a file in which every package has hashes."""
    text = re.sub(r"^#.*\n", "", (FOLDER / file).read_text(), flags=re.MULTILINE)
    pins = {}
    for block in text.replace("\\\n", " ").splitlines():
        pin, *hashes = block.split()
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
        name, version = re.fullmatch(r"([a-z0-9-]+)==([A-Za-z0-9.+]+)", pin).groups()
        pins[name] = version
    return pins


def test_the_image_has_the_required_dependencies():
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    listed = [Requirement(text) for text in project["dependencies"]]
    pins = locked("constraints.txt")
    for each in listed:
        assert each.specifier.contains(pins[each.name.lower().replace("_", "-")]), each


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


def deploy_job(run, *words, options=()):
    """Manifests of a job, by the program: (exit code, arguments of the job, stderr)."""
    code, out, err = run("deploy", "--image", SETTINGS.image, *options, "--", *words)
    jobs = [found for found in yaml.safe_load_all(out) if found["kind"] == "Job"]
    return code, [job["spec"]["template"]["spec"]["containers"][0]["args"] for job in jobs], err


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["ingest", "/p/images", "/p/masks", "-o", "s3://a/data.zarr"], ["--resume"]),
        (["ingest", "/p/images", "/p/masks", "-o", "s3://a/data.zarr", "--resume"], []),
        (["update", "s3://a/data.zarr", "/p/images", "/p/masks", "--prune"], []),
        (["fit", "s3://a/data.zarr", "-o", "s3://a/m.zarr", "--rounds", "0"], ["--resume"]),
        (["score", "s3://a/m.zarr", "/p/images", "/p/masks", "-o", "/p/scores.csv"], []),
        (["predict", "s3://a/m.zarr", "/p/images", "-o", "/p/predicted"], ["--resume"]),
    ],
)
def test_every_long_command_can_be_a_job(run, words, more):
    code, (arguments,), err = deploy_job(run, *words, options=["--volume", "photos=/p"])
    assert code == 0, err
    address = "tls://gpgc-scheduler.gpgc.svc:8786"
    assert arguments == ["gpgc", *words, *more, "--scheduler", address]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rank", "s3://a/m.zarr"], "'rank' is not one of ingest, update, fit"),
        (["ingest", "a", "b"], "--out"),
        (["update", "a", "b", "c", "--prun"], "--prun"),
        (["fit", "a", "-o", "b", "--workers", "3"], "--workers: the job has the cluster"),
        (["fit", "a", "-o", "b", "--scheduler", "tcp://a:1"], "--scheduler: the job has"),
        (["fit", "a", "-o", "b", "--overwrite"], "each try of the job would begin again"),
    ],
)
def test_wrong_jobs_are_rejected_before_there_is_a_cluster(run, words, message):
    code, jobs, err = deploy_job(run, *words)
    assert (code, jobs) == (2, [])
    assert message in " ".join(err.split())


def test_volumes_are_mounted_by_workers_and_the_job():
    settings = VARIANTS["ingest"]
    mounted = pods(settings)
    for role in ("worker", "driver"):
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]
            for volume in mounted[role]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        (container,) = mounted[role]["containers"]
        paths = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert claims[paths["/photos"]["name"]] == {"claimName": "photos", "readOnly": True}
        assert paths["/photos"]["readOnly"]
        assert claims[paths["/results"]["name"]] == {"claimName": "results"}
    assert not any("persistentVolumeClaim" in volume for volume in mounted["scheduler"]["volumes"])
    for text in ("photos", "photos=relative", "photos=/tmp/a", "Photos=/a", "a=/b c"):
        with pytest.raises(ValueError, match=r"is not a volume|volume must consist of"):
            Volume.parse(text)


def test_errors_that_come_again_end_the_job():
    """In the container that waits, too: it compares the versions."""
    for name in ("default", "ingest"):
        ignore, fail = one(VARIANTS[name], "Job")["spec"]["podFailurePolicy"]["rules"]
        assert ignore["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        assert fail == {
            "action": "FailJob",
            "onExitCodes": {"operator": "In", "values": [EXIT_PERMANENT]},
        }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"command": ("ingest", "a")}, "data and model describe a fit, command another"),
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
def test_wrong_settings_are_rejected(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(SETTINGS, **wrong)


def test_images_may_be_pinned_by_digest_or_come_from_a_port():
    for image in ("host:5000/gpgc_dask:1.0", "gpgc_dask@sha256:" + "0" * 64):
        assert replace(SETTINGS, image=image).image == image


def test_the_examples_are_what_the_guides_commands_write_today(tmp_path, monkeypatch, run):
    text = (FOLDER / "README.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^gpgc deploy (.*)$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for command in commands:
        code, _, err = run("deploy", *shlex.split(command))
        assert code == 0, err

    def texts(folder):
        return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.yaml")}

    assert len(commands) == 5
    assert {path.name for path in tmp_path.iterdir()} == {"deploy", "ingest", "update", "score"}
    assert texts(tmp_path / "deploy") == texts(FOLDER)
    kinds = [found["kind"] for text in texts(FOLDER).values() for found in yaml.safe_load_all(text)]
    assert {"DaskCluster", "DaskAutoscaler", "Job", "NetworkPolicy"} <= set(kinds)


def test_a_whole_folder_can_be_applied(tmp_path):
    """The namespace is made before what is in it, also by name."""
    written = write(VARIANTS["volume"], tmp_path)
    assert [path.name for path in written] == sorted(path.name for path in written)
    first, *others = (list(yaml.safe_load_all(path.read_text())) for path in written)
    assert [found["kind"] for found in first] == ["Namespace", "PersistentVolumeClaim"]
    assert not {found["kind"] for file in others for found in file} & {
        found["kind"] for found in first
    }, "kubectl replace would delete what has to be kept"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_reads_the_namespace_first():
    command = ["kubectl", "annotate", "--local", "-f", FOLDER / "example", "a=b", "-o", "name"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "namespace/gpgc",
        "networkpolicy.networking.k8s.io/gpgc",
        "poddisruptionbudget.policy/gpgc-scheduler",
        "daskcluster.kubernetes.dask.org/gpgc",
        "networkpolicy.networking.k8s.io/gpgc-fit",
        "poddisruptionbudget.policy/gpgc-fit",
        "job.batch/gpgc-fit",
    ]


def test_deleting_a_folder_is_warned_of(run, tmp_path):
    code, out, err = run("deploy", "--image", SETTINGS.image, "-o", tmp_path)
    assert code == 0
    assert [Path(line).name for line in out.split()] == ["1-namespace.yaml", "2-cluster.yaml"]
    assert "deletes everything in it: Secrets" in err
    assert "deletes everything in it: Secrets" in (tmp_path / "1-namespace.yaml").read_text()
    assert "also applies" not in err
    (tmp_path / "fit.yaml").write_text("of an earlier version")
    _, _, err = run("deploy", "--image", SETTINGS.image, "-o", tmp_path)
    assert "also applies fit.yaml: remove what is not used" in err


def test_the_guides_costs_are_those_of_todays_plan():
    script = ROOT / "benchmarks/deployment.py"
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
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
    assert wrong.exit_code == 2
    assert "is not the output of gpgc plan DATA --json" in wrong.output
    both = call(*common, "--plan", plan, "--images", 3)
    assert "choose one" in both.output
