"""The same Dask cluster from Python, by dask-kubernetes."""

from __future__ import annotations

import time
from typing import Any

from gpgc_dask.deploy.manifests import dask_cluster
from gpgc_dask.deploy.settings import Settings

__all__ = ["kube_cluster"]

OPERATOR_SECONDS = 60
"""How long the operator may take to make the scheduler's service."""


def kube_cluster(settings: Settings) -> Any:
    """A ``dask_kubernetes.operator.KubeCluster`` of the pods that the manifests describe.

    The operator must run in the Kubernetes cluster that the usual configuration (``KUBECONFIG``, or
    the pod's service account) leads to. Closing the result, or leaving it as a context, removes the
    pods. It has ``scale``, ``adapt`` and ``get_client``, as every Dask cluster::

        with kube_cluster(settings) as cluster, cluster.get_client():
            GPGC().fit(dataset)

    KubeCluster waits for the DaskCluster's phase when it makes one itself, and the phase may stay
    Pending though all pods run (dask-kubernetes issue 968). So the DaskCluster is made first, and
    KubeCluster joins it by name, for which it asks the scheduler's pod only.

    KubeCluster knows no TLS: ``settings.tls_secret`` must be None. For encryption apply the
    manifests and connect by address, which needs no dask-kubernetes at all.
    """
    if settings.tls_secret is not None:
        raise ValueError(
            "dask-kubernetes' KubeCluster speaks tcp:// only. For an encrypted cluster apply the "
            "manifests of python -m gpgc_dask.deploy and connect, from a pod, to "
            f"{settings.scheduler_address}; or give up encryption with tls_secret=None"
        )
    try:
        from dask_kubernetes.operator import KubeCluster
        from kr8s.objects import Service, new_class
    except ImportError as error:
        raise ImportError(
            f"a cluster of pods needs dask-kubernetes ({error}): "
            "pip install 'gpgc_dask[kubernetes]'"
        ) from error
    kind = new_class("DaskCluster", "kubernetes.dask.org/v1", asyncio=False)
    made: Any = kind(dask_cluster(settings))
    made.create()
    try:
        _wait_for(Service(settings.scheduler_name, namespace=settings.namespace))
        return KubeCluster.from_name(
            settings.name, namespace=settings.namespace, shutdown_on_close=True, quiet=True
        )
    except BaseException:
        made.delete()
        raise


def _wait_for(service: Any) -> None:
    """Until the operator has made the scheduler's service."""
    until = time.monotonic() + OPERATOR_SECONDS
    while not service.exists():
        if time.monotonic() > until:
            raise TimeoutError(
                f"nobody made the service {service.name} within {OPERATOR_SECONDS} s: see whether "
                "the Dask operator runs (kubectl get pods -A -l "
                "app.kubernetes.io/name=dask-kubernetes-operator)"
            )
        time.sleep(0.25)
