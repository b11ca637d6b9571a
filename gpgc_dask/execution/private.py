"""Every use of interfaces that dependencies do not document, with its reason.

``tests/execution/test_private.py`` fails with a clear message if a new version of Dask or
dask-kubernetes changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask._task_spec import DataNode, GraphNode
from distributed import Client, Security, rpc

__all__ = [
    "DataNode",
    "GraphNode",
    "ask_scheduler",
    "encrypted_kube_cluster",
    "run_on_workers",
]

# Reason for DataNode and GraphNode: to send a block's part of a graph to a task, constants must be
# distinguished from other nodes, and ``dask.core.get_dependencies`` leaves out keys that are not in
# the graph (data that workers hold).


def ask_scheduler(
    client: Client, question: str, timeout: float, **arguments: Any
) -> dict[Any, Any]:
    """Answer of a scheduler's handler, such as "get_task_status"; TimeoutError if it takes longer.

    Reason: ``Client.processing`` and the like wait forever, and there is no method of the client
    for the states of tasks by key.
    """
    return client.sync(getattr(client.scheduler, question), **arguments, callback_timeout=timeout)


def run_on_workers(client: Client, function: Callable[..., Any], timeout: float) -> dict[str, Any]:
    """{worker: result} of ``function(dask_worker)``; TimeoutError if it takes longer.

    Reason: ``Client.run`` documents no time limit, but hands one on to ``Client.sync``. A worker
    that imports a large module answers late.
    """
    results: dict[str, Any] = client.run(function, on_error="ignore", callback_timeout=timeout)
    return results


def encrypted_kube_cluster(security: Security) -> Any:
    """KubeCluster for a scheduler that requires certificates.

    Reason: KubeCluster connects by tcp:// only and has no argument for certificates.
    """
    from dask_kubernetes.operator import KubeCluster
    from dask_kubernetes.operator.networking import get_scheduler_address, wait_for_scheduler

    own = security

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
