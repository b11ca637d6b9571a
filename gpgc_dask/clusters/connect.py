"""Connect to a Dask cluster of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client

from gpgc_dask.clusters.registry import CLUSTERS
from gpgc_dask.clusters.remote import connect_remote
from gpgc_dask.clusters.request import ClusterRequest
from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.core.errors import InputError

__all__ = ["connect"]


@contextmanager
def connect(
    where: str = "local",
    *,
    workers: int | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    memory_limit: str | int | None = None,
    tls: TlsFiles | None = None,
    settings: dict[str, Any] | None = None,
) -> Iterator[Client]:
    """Connect to a Dask cluster, for as long as the context lasts.

    Parameters
    ----------
    where : str, default "local"
        Kind of cluster to start, or the address of a scheduler that is running already.
        ``"local"`` starts processes of one thread each on this machine, ``"kubernetes"`` starts
        pods with dask-kubernetes; both end with the context. An address is written as
        ``tcp://host:8786`` or ``tls://host:8786``.
    workers : int, optional
        Number of workers to start. By default one per core of this machine; for Kubernetes, see
        :class:`gpgc_dask.clusters.kubernetes.Settings`.
    min_workers, max_workers : int, optional
        If one of them is given, the number of workers follows the work between these bounds. The
        smallest number is 1 by default, the largest is ``workers``.
    memory_limit : str or int, optional
        Memory per worker, such as "4GB" or a number of bytes. By default an equal share of the
        memory of this machine. Kubernetes requires it.
    tls : TlsFiles, optional
        Certificates. By default, for ``tls://``, those of Dask's configuration.
    settings : dict, optional
        Further settings of this kind of cluster. For Kubernetes, fields of
        :class:`gpgc_dask.clusters.kubernetes.Settings`: ``image`` is required, and
        ``tls_secret=None`` turns encryption off.

    Yields
    ------
    distributed.Client

    Notes
    -----
    ``with connect(), distributed.performance_report("fit.html"):`` writes a page that shows what
    the workers did and when.

    Examples
    --------
    >>> from gpgc_dask import GPGC, open_dataset
    >>> from gpgc_dask import connect
    >>> with connect(workers=1) as client:
    ...     model = GPGC().fit(open_dataset("horses.zarr"))
    >>> model.groups_.size
    12
    """
    request = ClusterRequest(
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        memory_limit=memory_limit,
        tls=tls,
        settings=settings or {},
    )
    if where in CLUSTERS:
        with CLUSTERS[where](request) as cluster, Client(cluster) as client:
            yield client
    elif ":" in where:
        with connect_remote(where, request) as client:
            yield client
    else:
        raise InputError(
            f"there is no kind of cluster {where!r}: choose one of {', '.join(CLUSTERS)}, or give "
            "the address of a scheduler, such as tcp://host:8786"
        )
