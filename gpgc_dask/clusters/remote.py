"""A scheduler that is running already, by its address."""

from __future__ import annotations

from distributed import Client

from gpgc_dask.clusters.kubernetes.settings import REPLACE, is_of_pods
from gpgc_dask.clusters.request import ClusterRequest
from gpgc_dask.clusters.tls import scheduler_security
from gpgc_dask.clusters.versions import INSTALL, check_versions, without_dasks_table
from gpgc_dask.core import config
from gpgc_dask.core.errors import InputError, SchedulerNotFoundError

__all__ = ["CONNECT_SECONDS", "connect_remote"]

CONNECT_SECONDS = 10
"""Seconds within which a scheduler must answer at first."""


def connect_remote(address: str, request: ClusterRequest) -> Client:
    """Connect to a scheduler, and check that its workers can do the work."""
    if request.workers or request.is_adaptive or request.memory_limit:
        raise InputError(
            f"{address} has workers already: leave out workers, min_workers, max_workers and "
            "memory_limit"
        )
    request.reject_settings("running")
    security = scheduler_security(address, request.tls)
    try:
        # A client looks for a scheduler that it has lost for as long as for the first one. The
        # second client may look longer than a user waits for a wrong address.
        with without_dasks_table():
            first = Client(
                address, timeout=CONNECT_SECONDS, security=security, set_as_default=False
            )
            first.close()
            patience = config.seconds("cluster.reconnect-timeout")
            client = Client(address, timeout=patience, security=security)
    except (OSError, ValueError, TimeoutError) as error:
        hint = " and the certificates" if security is not None else ""
        raise SchedulerNotFoundError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}): check the "
            f"address{hint}, or leave --scheduler out to work on this machine"
        ) from error
    try:
        check_versions(client, REPLACE if is_of_pods(address) else INSTALL)
    except BaseException:
        client.close()
        raise
    return client
