"""A Dask cluster of pods from Python, by dask-kubernetes."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Any

from dask.utils import parse_bytes
from distributed import Client, Security

from gpgc_dask.clusters.kubernetes.api import api_errors, list_nodes, list_pods
from gpgc_dask.clusters.kubernetes.forwarding import report_lost_ports_once
from gpgc_dask.clusters.kubernetes.manifests import dask_cluster
from gpgc_dask.clusters.kubernetes.nodes import choose_threads
from gpgc_dask.clusters.kubernetes.pending import PodWatch, is_ready
from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.clusters.kubernetes.settings import Settings
from gpgc_dask.clusters.kubernetes.waiting import (
    ANSWER_SECONDS,
    REPORT_SECONDS,
    wait_for_workers,
)
from gpgc_dask.clusters.request import ClusterRequest
from gpgc_dask.clusters.versions import check_versions, without_dasks_table
from gpgc_dask.core.errors import (
    ClusterError,
    InputError,
    MissingDependencyError,
    SchedulerNotFoundError,
)
from gpgc_dask.execution.private import encrypted_kube_cluster

__all__ = ["kube_cluster", "start_pods"]

OPERATOR_SECONDS = 60
"""Seconds within which the operator must make the scheduler's service."""


OTHER_IMAGE = (
    "choose an image that was built of this version (--image), or install its versions here (pip "
    "install gpgc_dask==…)"
)
"""What to do if the image holds other versions than this process."""


def start_pods(request: ClusterRequest) -> Any:
    """Start pods; the Dask operator must run in the Kubernetes cluster.

    Unless the settings have a name, it is a new one, so that several fits can run at a time.
    """
    if request.memory_limit is None:
        raise InputError(
            'the memory per pod is not known: give it as memory_limit="8GiB" (--memory-limit); '
            "gpgc plan shows how much a fit needs"
        )
    given = dict(request.settings)
    if not given.get("image"):
        raise InputError(
            "the image of the pods is not known: give it with --image, or in Python in settings"
        )
    given.setdefault("name", f"{Settings.name}-{secrets.token_hex(4)}")
    workers = request.start_count(int(given.pop("workers", Settings.workers)))
    settings = Settings(workers=workers, memory_limit=request.memory_limit, **given)
    security = None if request.tls is None else request.tls.security()
    if "threads" not in given:
        _check_installed()
        _check_certificates(settings, security)
        with api_errors():
            nodes = list_nodes()
        threads = choose_threads(int(parse_bytes(request.memory_limit)), nodes)
        settings = replace(settings, threads=threads)
    cluster = kube_cluster(settings, security)
    if request.is_adaptive:
        low, high = request.bounds(Settings.workers)
        cluster.adapt(minimum=low, maximum=high)
    return cluster


def kube_cluster(settings: Settings, security: Security | None = None) -> Any:
    """Start the pods that the manifests describe, and return them as a Dask cluster.

    The operator must run in the Kubernetes cluster of the usual configuration (``KUBECONFIG``, or
    the pod's service account), and the namespace and the Secrets that the settings name must
    exist. Returns when all workers are there, or after ten minutes if some are.

    Parameters
    ----------
    settings : Settings
        Settings of the cluster.
    security : distributed.Security, optional
        Certificates of the client; by default those of Dask's configuration. Not used if
        ``settings.tls_secret`` is None.

    Returns
    -------
    dask_kubernetes.operator.KubeCluster
        Has ``scale``, ``adapt`` and ``get_client``, as every Dask cluster. Closing it, or leaving
        it as a context, removes the pods::

            with kube_cluster(settings) as cluster, cluster.get_client():
                GPGC().fit(dataset)

    Notes
    -----
    KubeCluster waits for the DaskCluster's phase when it makes one itself, and the phase may stay
    Pending although all pods run (dask-kubernetes issue 968). So the DaskCluster is made first, and
    KubeCluster joins it by name, for which it asks the scheduler's pod only.
    """
    _check_installed()
    from dask_kubernetes.operator import KubeCluster
    from kr8s.objects import Service, new_class

    security = _check_certificates(settings, security)
    if security is not None:
        KubeCluster = encrypted_kube_cluster(security)
    report_lost_ports_once()
    kind = new_class("DaskCluster", "kubernetes.dask.org/v1", asyncio=False)
    with api_errors():
        made: Any = kind(dask_cluster(settings))
        made.create()
    try:
        watch = PodWatch(settings)
        with api_errors():
            _wait_for(Service(settings.scheduler_name, namespace=settings.namespace))
            _wait_for_scheduler(watch)
        cluster = KubeCluster.from_name(
            settings.name, namespace=settings.namespace, shutdown_on_close=True, quiet=True
        )
        with without_dasks_table(), Client(cluster, set_as_default=False) as client:
            wait_for_workers(client, settings.first_workers, report=watch.report)
            check_versions(client, OTHER_IMAGE)
    except BaseException:
        made.delete()
        raise
    return cluster


def _check_installed() -> None:
    """Raise a MissingDependencyError without dask-kubernetes."""
    try:
        import dask_kubernetes.operator  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"a cluster of pods needs dask-kubernetes ({error}): "
            "pip install 'gpgc_dask[kubernetes]'"
        ) from error


def _check_certificates(settings: Settings, security: Security | None) -> Security | None:
    """Return the client's certificates, None without encryption; InputError if they are missing."""
    if settings.tls_secret is None:
        return None
    security = security or Security(require_encryption=True)
    if security.tls_ca_file is None or security.tls_client_cert is None:
        raise InputError(
            "an encrypted cluster needs certificates, those in the Secret of its pods: name them "
            "with --tls-ca, --tls-cert and --tls-key, or in Dask's configuration "
            "(distributed.comm.tls), or turn encryption off with tls_secret=None (--no-tls)"
        )
    return security


def _wait_for(service: Any) -> None:
    """Wait until the operator has made the scheduler's service."""
    until = time.monotonic() + OPERATOR_SECONDS
    while not service.exists():
        if time.monotonic() > until:
            raise ClusterError(
                f"the service {service.name} was not made within {OPERATOR_SECONDS} s: check "
                "whether the Dask operator runs (kubectl get pods -A -l "
                "app.kubernetes.io/name=dask-kubernetes-operator)"
            )
        time.sleep(0.25)


def _wait_for_scheduler(watch: PodWatch) -> None:
    """Wait until the scheduler's pod is ready, and report what it waits for."""
    settings = watch.settings
    until = time.monotonic() + ANSWER_SECONDS
    while True:
        pods = list_pods(settings.namespace, settings.name)
        if any(is_ready(pod) and _is_scheduler(pod) for pod in pods):
            return
        reason = watch.report()
        if time.monotonic() > until:
            raise SchedulerNotFoundError(
                f"the scheduler's pod of {settings.name} is not ready after {ANSWER_SECONDS} s: "
                f"{reason or 'see kubectl describe pod and kubectl logs'}"
            )
        time.sleep(min(REPORT_SECONDS, ANSWER_SECONDS))


def _is_scheduler(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("dask.org/component") == "scheduler")
