"""The Kubernetes objects of a deployment, by the file that each is written to."""

from __future__ import annotations

from gpgc_dask.clusters.kubernetes.pods import Manifest, driver_pod, scheduler_pod, worker_pod
from gpgc_dask.clusters.kubernetes.settings import (
    CLUSTER_FILE,
    COMM_PORT,
    DASHBOARD_PORT,
    JOB_FILE,
    NAMESPACE_FILE,
    Settings,
)
from gpgc_dask.core.errors import EXIT_PERMANENT

__all__ = ["dask_cluster", "manifests"]

RETRIES = 4


def manifests(settings: Settings) -> dict[str, list[Manifest]]:
    """Objects by file name, in the order in which they are to be applied.

    What is kept when a cluster is replaced, the namespace and the volume claim, is in the first
    file.

    The Secrets are not included: they are made from files by ``kubectl create secret``, so that no
    key is ever written next to the manifests.
    """
    cluster = [dask_cluster(settings)]
    if settings.worker_bounds is not None:
        cluster.append(_autoscaler(settings, *settings.worker_bounds))
    scheduler = _budget(settings, settings.scheduler_name, _cluster_labels(settings, "scheduler"))
    claims = [] if settings.claim is None else [_claim(settings, settings.claim)]
    files = {
        NAMESPACE_FILE: [_namespace(settings), *claims],
        CLUSTER_FILE: [_cluster_policy(settings), scheduler, *cluster],
    }
    if settings.job_arguments:
        driver = _budget(settings, settings.job_name, _driver_labels(settings))
        files[JOB_FILE] = [_driver_policy(settings), driver, _job(settings)]
    return files


def dask_cluster(settings: Settings) -> Manifest:
    """The DaskCluster, from which the operator makes deployments and the scheduler's service."""
    labels = _cluster_labels(settings, "scheduler")
    ports = {"tcp-comm": COMM_PORT, "http-dashboard": DASHBOARD_PORT}
    service = {
        "type": "ClusterIP",
        "selector": labels,
        "ports": [
            {"name": name, "protocol": "TCP", "port": port, "targetPort": name}
            for name, port in ports.items()
        ],
    }
    spec = {
        "idleTimeout": settings.idle_seconds,
        "scheduler": {"spec": scheduler_pod(settings), "service": service},
        "worker": {"replicas": settings.workers, "spec": worker_pod(settings)},
    }
    return _object(settings, "kubernetes.dask.org/v1", "DaskCluster", settings.name, spec)


def _autoscaler(settings: Settings, minimum: int, maximum: int) -> Manifest:
    spec = {"cluster": settings.name, "minimum": minimum, "maximum": maximum}
    return _object(settings, "kubernetes.dask.org/v1", "DaskAutoscaler", settings.name, spec)


def _job(settings: Settings) -> Manifest:
    """The driver. The loss of a node is not counted as a try.

    An error that would come again ends the job at once, in whichever container.
    """
    spec = {
        "backoffLimit": RETRIES,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {
                    "action": "FailJob",
                    "onExitCodes": {"operator": "In", "values": [EXIT_PERMANENT]},
                },
            ]
        },
        "template": {
            "metadata": {"labels": _driver_labels(settings)},
            "spec": driver_pod(settings),
        },
    }
    return _object(settings, "batch/v1", "Job", settings.job_name, spec)


def _claim(settings: Settings, name: str) -> Manifest:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    return _object(settings, "v1", "PersistentVolumeClaim", name, spec)


def _cluster_policy(settings: Settings) -> Manifest:
    """Scheduler and workers accept each other and the driver; the dashboard, the operator."""
    peers = [
        {"podSelector": {"matchLabels": _cluster_labels(settings)}},
        {"podSelector": {"matchLabels": _driver_labels(settings)}},
    ]
    label = {"kubernetes.io/metadata.name": settings.operator_namespace}
    spec = {
        "podSelector": {"matchLabels": _cluster_labels(settings)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": peers},
            {
                "from": [{"namespaceSelector": {"matchLabels": label}}],
                "ports": [{"protocol": "TCP", "port": DASHBOARD_PORT}],
            },
        ],
    }
    return _object(settings, "networking.k8s.io/v1", "NetworkPolicy", settings.name, spec)


def _driver_policy(settings: Settings) -> Manifest:
    """The driver accepts no connection."""
    spec = {"podSelector": {"matchLabels": _driver_labels(settings)}, "policyTypes": ["Ingress"]}
    return _object(settings, "networking.k8s.io/v1", "NetworkPolicy", settings.job_name, spec)


def _budget(settings: Settings, name: str, labels: dict[str, str]) -> Manifest:
    """Draining a node waits for this pod: there is only one, and a fit depends on it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    return _object(settings, "policy/v1", "PodDisruptionBudget", name, spec)


def _namespace(settings: Settings) -> Manifest:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": settings.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _cluster_labels(settings: Settings, component: str | None = None) -> dict[str, str]:
    """Labels that the operator gives its pods."""
    labels = {"dask.org/cluster-name": settings.name}
    return labels if component is None else labels | {"dask.org/component": component}


def _driver_labels(settings: Settings) -> dict[str, str]:
    """Labels of the driver: with the operator's labels it would be taken for a worker."""
    return {"app.kubernetes.io/name": "gpgc-driver", "app.kubernetes.io/instance": settings.name}


def _object(settings: Settings, version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "namespace": settings.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
