"""Kinds of clusters by name.

A kind is a function that takes a :class:`~gpgc_dask.clusters.request.ClusterRequest` and returns a
Dask cluster, such as ``distributed.LocalCluster``, that is a context and closes when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpgc_dask.core.registry import Registry

if TYPE_CHECKING:
    from gpgc_dask.clusters.request import ClusterRequest

__all__ = ["CLUSTERS", "StartCluster"]

StartCluster = Callable[["ClusterRequest"], Any]

CLUSTERS: Registry[StartCluster] = Registry(
    "kind of cluster",
    {
        "local": "gpgc_dask.clusters.local:start_local",
        "kubernetes": "gpgc_dask.clusters.kubernetes.kube:start_pods",
    },
    "gpgc_dask.clusters",
)
