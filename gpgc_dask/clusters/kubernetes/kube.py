"""The same Dask cluster from Python, by dask-kubernetes."""

from __future__ import annotations

import time
from typing import Any

from distributed import Client, Security, rpc

from gpgc_dask.clusters.kubernetes.manifests import dask_cluster
from gpgc_dask.clusters.kubernetes.settings import Settings
from gpgc_dask.clusters.kubernetes.waiting import wait_for_workers
from gpgc_dask.core.errors import InputError, MissingDependencyError

__all__ = ["kube_cluster"]

OPERATOR_SECONDS = 60
"""How long the operator may take to make the scheduler's service."""


def kube_cluster(settings: Settings, security: Security | None = None) -> Any:
    """A ``dask_kubernetes.operator.KubeCluster`` of the pods that the manifests describe.

    The operator must run in the Kubernetes cluster that the usual configuration (``KUBECONFIG``, or
    the pod's service account) leads to, and the namespace and the Secrets that the settings name
    must be there. Returns when the workers are there, or after ten minutes if some are. Closing the
    result, or leaving it as a context, removes the pods. It has ``scale``, ``adapt`` and
    ``get_client``, as every Dask cluster::

        with kube_cluster(settings) as cluster, cluster.get_client():
            GPGC().fit(dataset)

    security : the client's certificates; default those of Dask's configuration. Not used where
        ``settings.tls_secret`` is None

    KubeCluster waits for the DaskCluster's phase when it makes one itself, and the phase may stay
    Pending though all pods run (dask-kubernetes issue 968). So the DaskCluster is made first, and
    KubeCluster joins it by name, for which it asks the scheduler's pod only.
    """
    try:
        from dask_kubernetes.operator import KubeCluster
        from kr8s.objects import Service, new_class
    except ImportError as error:
        raise MissingDependencyError(
            f"a cluster of pods needs dask-kubernetes ({error}): "
            "pip install 'gpgc_dask[kubernetes]'"
        ) from error
    if settings.tls_secret is not None:
        KubeCluster = _encrypted(security or Security(require_encryption=True))
    kind = new_class("DaskCluster", "kubernetes.dask.org/v1", asyncio=False)
    made: Any = kind(dask_cluster(settings))
    made.create()
    try:
        _wait_for(Service(settings.scheduler_name, namespace=settings.namespace))
        cluster = KubeCluster.from_name(
            settings.name, namespace=settings.namespace, shutdown_on_close=True, quiet=True
        )
        with Client(cluster, set_as_default=False) as client:
            wait_for_workers(client, settings.min_workers or settings.workers)
    except BaseException:
        made.delete()
        raise
    return cluster


def _encrypted(own: Security) -> Any:
    """KubeCluster for a scheduler that wants certificates: by itself it speaks tcp:// only."""
    from dask_kubernetes.operator import KubeCluster
    from dask_kubernetes.operator.networking import get_scheduler_address, wait_for_scheduler

    if own.tls_ca_file is None or own.tls_client_cert is None:
        raise InputError(
            "an encrypted cluster wants certificates, those in the Secret of its pods: name them "
            "in Dask's configuration (distributed.comm.tls), or give up encryption with "
            "tls_secret=None"
        )

    class EncryptedKubeCluster(KubeCluster):
        """Clients of it find their certificates in ``security``."""

        security = own

        async def _connect_cluster(self) -> None:
            await wait_for_scheduler(self.name, self.namespace, timeout=self._resource_timeout)
            address = await self._get_scheduler_address()
            self.scheduler_comm = rpc(
                address.replace("tcp://", "tls://"),
                connection_args=own.get_connection_args("client"),
            )
            dashboard = await get_scheduler_address(
                f"{self.name}-scheduler",
                self.namespace,
                port_name="http-dashboard",
                port_forward_cluster_ip=self.port_forward_cluster_ip,
            )
            self.forwarded_dashboard_port = dashboard.rpartition(":")[2]

    return EncryptedKubeCluster


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
