"""Pods of the scheduler, the workers and the driver, as plain dicts."""

from __future__ import annotations

import json
from typing import Any, Literal

from gpgc_dask.clusters.kubernetes.settings import (
    CERTIFICATES,
    CHECKPOINTS,
    COMM_PORT,
    DASHBOARD_PORT,
    Settings,
    Volume,
)
from gpgc_dask.clusters.kubernetes.sizes import MIB, Sizes
from gpgc_dask.clusters.versions import IMAGE_VARIABLE

__all__ = ["USER_ID", "Manifest", "driver_pod", "scheduler_pod", "worker_pod"]

Manifest = dict[str, Any]
Role = Literal["scheduler", "worker", "client"]

USER_ID = 10001
"""User id that the Dockerfile makes."""

ROUTES = [
    "distributed.http.scheduler.prometheus",
    "distributed.http.scheduler.info",
    "distributed.http.scheduler.json",
    "distributed.http.scheduler.api",
    "distributed.http.health",
    "distributed.http.proxy",
    "distributed.http.statics",
]
"""Dask's default routes and the API, by which the operator scales and detects idle clusters.
Without it the operator asks by tcp://, which TLS rejects, and then removes workers blindly."""

BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

DEATH_SECONDS = "300"
"""Seconds for which a worker looks for the scheduler, whose image may still be pulled."""

ALLOWED_FAILURES = 10
"""Workers that a task may lose: nodes are removed for reasons that are not the task's."""


def scheduler_pod(settings: Settings) -> Manifest:
    """The scheduler listens on all addresses of its pod: the service leads there."""
    dask = ["dask", "scheduler", "--host", "0.0.0.0", "--port", str(COMM_PORT)]
    dask += ["--dashboard-address", f":{DASHBOARD_PORT}"]
    dask += ["--protocol", _scheme(settings)]
    environment = {
        # A worker that holds a second task while others idle makes a sweep wait for it at the end.
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "1.0",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(ALLOWED_FAILURES),
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60s",
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": json.dumps(ROUTES),
    }
    health = {"httpGet": {"path": "/health", "port": "http-dashboard"}}
    container = _container(settings, "scheduler", dask, "scheduler", environment) | {
        "ports": [
            {"name": "tcp-comm", "containerPort": COMM_PORT, "protocol": "TCP"},
            {"name": "http-dashboard", "containerPort": DASHBOARD_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": health | {"initialDelaySeconds": 2, "periodSeconds": 5},
        "livenessProbe": health | {"initialDelaySeconds": 30, "periodSeconds": 20},
        "resources": _resources(1, Sizes.of(settings).scheduler),
    }
    return _pod(settings, container, "scheduler")


def worker_pod(settings: Settings) -> Manifest:
    """One process of several threads, under a nanny; each task has one BLAS thread.

    The address is an argument because the operator's own DASK_SCHEDULER_ADDRESS is tcp://; the name
    is what the operator knows the pod by and retires it by.
    """
    sizes = Sizes.of(settings)
    dask = ["dask", "worker", settings.scheduler_address, "--name", "$(DASK_WORKER_NAME)"]
    dask += ["--nworkers", "1", "--nthreads", str(settings.threads)]
    dask += ["--memory-limit", f"{sizes.worker_limit // MIB}MiB", "--local-directory", "/tmp"]
    dask += ["--no-dashboard", "--death-timeout", DEATH_SECONDS]
    environment = dict.fromkeys(BLAS_THREADS, "1")
    container = _container(settings, "worker", dask, "worker", environment, store=True) | {
        "resources": _resources(settings.threads, sizes.worker),
    }
    return _with_volumes(settings, _pod(settings, container, "worker"))


def driver_pod(settings: Settings) -> Manifest:
    """The driver waits until the scheduler itself answers, then runs its command or resumes it.

    The phase of a DaskCluster does not help: it may stay Pending although its pods run.
    """
    address = settings.scheduler_address
    wait = ["python", "-m", "gpgc_dask.clusters.kubernetes", address]
    wait += [str(settings.first_workers)]
    command = ["gpgc", *settings.job_arguments, "--scheduler", address]
    environment = dict.fromkeys(BLAS_THREADS, str(settings.driver_threads))
    resources = _resources(settings.driver_threads, Sizes.of(settings).driver)
    first = _container(settings, "wait", wait, "client", environment)
    name = settings.job_arguments[0]
    then = _container(settings, name, command, "client", environment, store=True)
    first["resources"] = then["resources"] = resources
    pod = _pod(settings, then, "client") | {"initContainers": [first], "restartPolicy": "Never"}
    if settings.claim is not None:
        _mount(pod, Volume(settings.claim, CHECKPOINTS), "checkpoints")
    return _with_volumes(settings, pod)


def _with_volumes(settings: Settings, pod: Manifest) -> Manifest:
    """A pod with the volumes of the settings in its container."""
    for number, volume in enumerate(settings.volumes, 1):
        _mount(pod, volume, f"volume-{number}")
    return pod


def _mount(pod: Manifest, volume: Volume, name: str) -> None:
    """Mount a volume claim in the container of a pod."""
    (container,) = pod["containers"]
    mode = {"readOnly": True} if volume.read_only else {}
    container["volumeMounts"].append({"name": name, "mountPath": volume.path} | mode)
    claim = {"claimName": volume.claim} | mode
    pod["volumes"].append({"name": name, "persistentVolumeClaim": claim})


def _scheme(settings: Settings) -> str:
    return settings.scheduler_address.partition("://")[0]


def _resources(cores: int, memory: int) -> Manifest:
    """Memory has a limit; cores have none, which would only throttle."""
    quantity = f"{memory // MIB}Mi"
    return {"requests": {"cpu": str(cores), "memory": quantity}, "limits": {"memory": quantity}}


def _container(
    settings: Settings,
    name: str,
    arguments: list[str],
    role: Role,
    environment: dict[str, str],
    *,
    store: bool = False,
) -> Manifest:
    """A container of the image, started through its entry point; it writes to /tmp only."""
    every = {IMAGE_VARIABLE: settings.image} | environment | _tls_environment(settings, role)
    container: Manifest = {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "env": [{"name": key, "value": value} for key, value in every.items()],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if store and settings.store_secret is not None:
        container["envFrom"] = [{"secretRef": {"name": settings.store_secret}}]
    if settings.tls_secret is not None:
        mount = {"name": "certificates", "mountPath": CERTIFICATES, "readOnly": True}
        container["volumeMounts"].append(mount)
    return container


def _tls_environment(settings: Settings, role: Role) -> dict[str, str]:
    """Dask's configuration of the pod's certificate; unencrypted connections are rejected."""
    if settings.tls_secret is None:
        return {}
    prefix = "DASK_DISTRIBUTED__COMM__"
    own = f"{prefix}TLS__{role.upper()}__"
    return {
        f"{prefix}REQUIRE_ENCRYPTION": "true",
        f"{prefix}TLS__CA_FILE": f"{CERTIFICATES}/ca.pem",
        f"{own}CERT": f"{CERTIFICATES}/{role}.pem",
        f"{own}KEY": f"{CERTIFICATES}/{role}-key.pem",
    }


def _pod(settings: Settings, container: Manifest, role: Role) -> Manifest:
    """A pod that a namespace with the restricted pod security standard admits."""
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if settings.service_account is not None:
        pod["serviceAccountName"] = settings.service_account
    if settings.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": settings.pull_secret}]
    if settings.tls_secret is not None:
        # Each role sees its own key only; the group may read it because the user is not root.
        files = ["ca.pem", f"{role}.pem", f"{role}-key.pem"]
        secret = {
            "secretName": settings.tls_secret,
            "defaultMode": 0o440,
            "items": [{"key": file, "path": file} for file in files],
        }
        pod["volumes"].append({"name": "certificates", "secret": secret})
    return pod
