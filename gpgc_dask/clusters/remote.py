"""A scheduler that is running already, by its address."""

from __future__ import annotations

from importlib.metadata import version

from distributed import Client

from gpgc_dask.clusters.request import ClusterRequest
from gpgc_dask.clusters.tls import scheduler_security
from gpgc_dask.core import config
from gpgc_dask.core.errors import ClusterError, InputError, SchedulerNotFoundError

__all__ = ["CONNECT_SECONDS", "SAME_VERSIONS", "connect_remote"]

CONNECT_SECONDS = 10
"""Seconds within which a scheduler must answer at first."""

SAME_VERSIONS = ("gpgc_dask", "dask", "distributed")
"""Packages whose versions must be the same on the workers and here."""


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
        Client(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False).close()
        patience = config.seconds("cluster.reconnect-timeout")
        client = Client(address, timeout=patience, security=security)
    except (OSError, ValueError, TimeoutError) as error:
        hint = " and the certificates" if security is not None else ""
        raise SchedulerNotFoundError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}): check the "
            f"address{hint}, or leave --scheduler out to work on this machine"
        ) from error
    try:
        _check_versions(client)
    except BaseException:
        client.close()
        raise
    return client


def _check_versions(client: Client) -> None:
    """Raise a ClusterError if a worker has another version of a package, or none."""
    for package in SAME_VERSIONS:
        here = version(package)
        # A function of Python itself: workers without the package must be able to run it.
        for worker, there in client.run(version, package, on_error="return").items():
            if there != here:
                has = "has no" if isinstance(there, Exception) else f"has version {there} of"
                raise ClusterError(
                    f"worker {worker} {has} {package}, and here it is version {here}: install the "
                    f"same on both sides (pip install {package}=={here})"
                )
