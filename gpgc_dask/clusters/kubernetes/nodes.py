"""Threads of a worker that fit on a node."""

from __future__ import annotations

from dask.utils import parse_bytes

from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.clusters.kubernetes.settings import MAX_THREADS
from gpgc_dask.clusters.kubernetes.sizes import NANNY_BYTES

__all__ = ["choose_threads"]

BYTES_PER_THREAD = 512 << 20
"""Memory that a thread needs: blocks of 4,113 features, see DEFAULT_BYTES."""

BYTES_PER_CORE = 4 << 30
"""Memory per core of nodes for general purposes."""


def choose_threads(memory_limit: int, nodes: list[Manifest]) -> int:
    """Threads per worker, one core each.

    As many as fit on the largest of the nodes that have the memory, where one core is left to
    pods of the system. If no such node is known, for example because it is started on demand, one
    per 4 GiB of memory, which nodes for general purposes have per core.

    Parameters
    ----------
    memory_limit : int
        Bytes per worker.
    nodes : list of dict
        Nodes of the cluster; empty if they are not known.
    """
    enough = max(1, memory_limit // BYTES_PER_THREAD)
    cores = [_free_cores(node) for node in nodes if _has_memory(node, memory_limit + NANNY_BYTES)]
    if not cores:
        return min(MAX_THREADS, max(1, memory_limit // BYTES_PER_CORE))
    return min(MAX_THREADS, enough, max(cores))


def _has_memory(node: Manifest, n_bytes: int) -> bool:
    allocatable = node.get("status", {}).get("allocatable", {})
    if node.get("spec", {}).get("unschedulable") or "cpu" not in allocatable:
        return False
    return _to_bytes(allocatable.get("memory", "0")) >= n_bytes


def _free_cores(node: Manifest) -> int:
    """Whole cores of a node that a pod may request."""
    text = str(node["status"]["allocatable"]["cpu"])
    cores = float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
    return max(1, int(cores) - 1)


def _to_bytes(quantity: str) -> int:
    """Bytes of a quantity, such as 16374Mi, 61G or 128974848."""
    return int(parse_bytes(quantity if quantity.isdigit() else f"{quantity}B"))
