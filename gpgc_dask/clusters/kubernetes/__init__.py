"""Fits on Kubernetes: manifests from one set of settings, or the same cluster from Python."""

from __future__ import annotations

from gpgc_dask.clusters.kubernetes.kube import kube_cluster
from gpgc_dask.clusters.kubernetes.manifests import manifests
from gpgc_dask.clusters.kubernetes.settings import Settings, Volume

__all__ = ["Settings", "Volume", "kube_cluster", "manifests"]
