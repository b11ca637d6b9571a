"""Connect to a Dask cluster: processes of this machine, a scheduler by address, or Kubernetes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, Security, performance_report

from gpgc_dask.core import config
from gpgc_dask.core.errors import (
    ClusterError,
    InputError,
    MissingDependencyError,
    MissingFileError,
    SchedulerNotFoundError,
)
from gpgc_dask.execution.cancel import without_interrupts

__all__ = [
    "CONNECT_SECONDS",
    "LEAST_MEMORY",
    "OURS",
    "SAME_EVERYWHERE",
    "TlsFiles",
    "connect",
    "reported",
]


CONNECT_SECONDS = 10
"""How long a scheduler may take to answer at first."""


OURS = {
    # A worker that holds a second task while others idle makes a sweep wait for it at the end.
    "distributed.scheduler.worker-saturation": 1.0,
    # A worker that has stopped answering is given up after a minute, not five.
    "distributed.scheduler.worker-ttl": "60s",
    # By default each process looks at its own clock 50 times a second, and each worker at what it
    # is doing 100 times, which is missed where all cores multiply.
    "distributed.admin.tick.interval": "200ms",
    "distributed.worker.profile.interval": "100ms",
}
"""Settings of schedulers and workers that we start ourselves."""


LEAST_MEMORY = 256_000_000
"""Bytes below which a worker would be killed for what it is, before it has done anything."""


SAME_EVERYWHERE = ("gpgc_dask", "dask", "distributed")
"""Packages whose versions workers must share with the driver."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: who is trusted, who we are, and the key to that."""

    ca: str
    cert: str
    key: str

    def security(self) -> Security:
        for path in (self.ca, self.cert, self.key):
            if not Path(path).is_file():
                raise MissingFileError(
                    f"{path} does not exist: make certificates with gpgc certs DIR"
                )
        given: dict[str, Any] = {"tls_ca_file": self.ca, "require_encryption": True}
        for role in ("client", "scheduler", "worker"):
            given |= {f"tls_{role}_cert": self.cert, f"tls_{role}_key": self.key}
        return Security(**given)


@contextmanager
def connect(
    where: str = "local",
    *,
    workers: int | None = None,
    most_workers: int | None = None,
    memory_limit: str | int | None = None,
    tls: TlsFiles | None = None,
    kubernetes: dict[str, Any] | None = None,
) -> Iterator[Client]:
    """A client of a Dask cluster, for as long as the context lasts.

    Parameters
    ----------
    where : "local": processes of one thread each on this machine, which end with the context; an
        address as ``tcp://host:8786`` or ``tls://host:8786``: a scheduler that runs already;
        "kubernetes": pods that dask-kubernetes starts, and that end with the context
    workers : how many; default one a core, or what the address has
    most_workers : where given the cluster adapts, between ``workers`` and this many
    memory_limit : of each worker, as "4GB" or bytes; default its share of the machine
    tls : certificates; default, for ``tls://``, those of Dask's configuration
    kubernetes : settings as of :class:`gpgc_dask.clusters.kubernetes.Settings`, ``image`` at least;
        ``tls_secret=None`` gives up encryption

    ``with connect(), distributed.performance_report("fit.html"):`` writes a page of what the
    workers did and when.

    Examples
    --------
    >>> from gpgc_dask import GPGC, open_dataset
    >>> from gpgc_dask import connect
    >>> with connect(workers=1) as client:
    ...     model = GPGC().fit(open_dataset("horses.zarr"))
    >>> model.groups_.size
    12
    """
    if memory_limit is not None:
        _check_memory(memory_limit)
    with ExitStack() as stack:
        if where == "local":
            cluster = stack.enter_context(
                _local(workers or dask.system.CPU_COUNT, memory_limit, tls)
            )
        elif where == "kubernetes":
            cluster = stack.enter_context(_pods(workers, memory_limit, tls, kubernetes or {}))
        else:
            client = stack.enter_context(_remote(where, tls))
            _check_versions(client)
            yield client
            return
        if most_workers is not None:
            cluster.adapt(minimum=workers or 1, maximum=most_workers)
        yield stack.enter_context(Client(cluster))


@contextmanager
def reported(client: AbstractContextManager[Client], page: str) -> Iterator[Client]:
    """The client, in the end of whose context Dask's performance report is written to a file.

    The page stands by itself: it needs no network.
    """
    with client as opened:
        try:
            opened.run_on_scheduler(version, "bokeh")
        except PackageNotFoundError:
            raise MissingDependencyError(
                "the scheduler draws the performance report with bokeh and has none: pip install "
                '"gpgc_dask[dashboard]" where it runs, or leave --performance-report out'
            ) from None
        report = performance_report(page, mode="inline")
        report.__enter__()
        try:
            yield opened
        except BaseException:
            with suppress(Exception):  # the scheduler may be gone, and this must not hide why
                report.__exit__(None, None, None)
            raise
        report.__exit__(None, None, None)


def _check_memory(limit: str | int) -> None:
    try:
        known = parse_bytes(limit)
    except ValueError:
        raise InputError(
            f"{limit!r} is no amount of memory: say it as 4GB (--memory-limit)"
        ) from None
    if known < LEAST_MEMORY:
        raise InputError(
            f"{limit} of memory is too little for a worker: give it {LEAST_MEMORY // 10**6} MB or "
            "more (--memory-limit); gpgc plan says how much a fit takes"
        )


def _local(workers: int, memory_limit: str | int | None, tls: TlsFiles | None) -> LocalCluster:
    """Processes of one thread each, that leave Ctrl-C to this one and say no more than it does."""
    level = logging.getLogger("distributed").getEffectiveLevel()
    with without_interrupts(), dask.config.set(OURS):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=max(level, logging.WARNING),
            memory_limit=memory_limit or "auto",
            **({} if tls is None else {"security": tls.security(), "protocol": "tls://"}),
        )


def _pods(
    workers: int | None,
    memory_limit: str | int | None,
    tls: TlsFiles | None,
    given: dict[str, Any],
) -> Any:
    """A cluster of pods; the operator of dask-kubernetes must run in the Kubernetes cluster."""
    from gpgc_dask.clusters.kubernetes import Settings, kube_cluster

    if memory_limit is None:
        raise InputError(
            "how much memory a pod needs is not known: say so with --memory-limit (memory_limit); "
            "gpgc plan tells how much a fit takes"
        )
    asked = {"memory": memory_limit, **given}
    if workers is not None:
        asked["workers"] = workers
    return kube_cluster(Settings(**asked), None if tls is None else tls.security())


def _remote(scheduler: str, tls: TlsFiles | None) -> Client:
    security = _security(scheduler, tls)
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, security=security)
    except (OSError, ValueError, TimeoutError) as error:
        hint = " and the certificates" if security is not None else ""
        raise SchedulerNotFoundError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}): check the "
            f"address{hint}, or leave --scheduler out to work on this machine"
        ) from error
    # The same setting says how long it looks for a lost scheduler, which may take its time.
    client._timeout = config.seconds("cluster.reconnect-timeout")
    return client


def _security(scheduler: str, tls: TlsFiles | None) -> Security | None:
    encrypted = scheduler.startswith("tls://")
    if tls is not None:
        if not encrypted:
            raise InputError(
                f"{scheduler} is not encrypted: with certificates the scheduler's address begins "
                "with tls://"
            )
        return tls.security()
    if not encrypted:
        return None
    security = Security(require_encryption=True)
    if security.tls_ca_file is None or security.tls_client_cert is None:
        raise InputError(
            f"{scheduler} wants certificates: name them with --tls-ca, --tls-cert and --tls-key, "
            "or in Dask's configuration (distributed.comm.tls); gpgc certs DIR makes them"
        )
    return security


def _check_versions(client: Client) -> None:
    """Complain where a worker cannot do this work, or would do it by other rules."""
    for package in SAME_EVERYWHERE:
        here = version(package)
        # A function of Python's own: workers without the package must be able to run it.
        for worker, there in client.run(version, package, on_error="return").items():
            if there != here:
                has = "has no" if isinstance(there, Exception) else f"has version {there} of"
                raise ClusterError(
                    f"worker {worker} {has} {package}, and here it is version {here}: install the "
                    f"same on both sides (pip install {package}=={here})"
                )
