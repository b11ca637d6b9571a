"""What this package asks the API server of Kubernetes, by kr8s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.core.errors import (
    AccessDeniedError,
    ClusterError,
    ExistsError,
    GpgcError,
    InputError,
)

__all__ = ["api_errors", "list_events", "list_nodes", "list_pods"]


@contextmanager
def api_errors() -> Iterator[None]:
    """Turn errors of the API server, and of the way there, into those of this package."""
    import httpx
    import kr8s

    try:
        yield
    except kr8s.ServerError as error:
        raise _answer(error) from error
    except (httpx.HTTPError, kr8s.APITimeoutError) as error:
        raise ClusterError(
            f"the Kubernetes API does not answer ({type(error).__name__}: {error}): check whether "
            "kubectl get pods does"
        ) from error
    except ValueError as error:
        if isinstance(error, GpgcError):
            raise
        raise InputError(
            f"no Kubernetes cluster is configured ({error}): check KUBECONFIG; kubectl get pods "
            "uses the same"
        ) from error


def _answer(error: Any) -> GpgcError:
    """The error of an answer that is none of success."""
    code = 0 if error.response is None else error.response.status_code
    if code == 404:
        return InputError(
            f"{error}: the namespace must exist (kubectl create namespace NAME) and the Dask "
            "operator must be installed (see deploy/README.md)"
        )
    if code == 409:
        return ExistsError(
            f"{error}: choose another name (--name), or delete the cluster (kubectl delete "
            "daskcluster NAME)"
        )
    if code in (401, 403):
        return AccessDeniedError(f"the Kubernetes API denies access: {error}")
    if 400 <= code < 500 and code not in (408, 429):
        return InputError(f"the Kubernetes API rejects the request: {error}")
    return ClusterError(f"the Kubernetes API failed: {error}")


def list_pods(namespace: str, cluster: str) -> list[Manifest]:
    """Pods of a DaskCluster."""
    from kr8s.objects import Pod

    labels = {"dask.org/cluster-name": cluster}
    return [each.raw for each in Pod.list(namespace=namespace, label_selector=labels)]


def list_events(namespace: str) -> list[Manifest]:
    """Warnings of a namespace; none if this user may not read them."""
    import kr8s
    from kr8s.objects import Event

    try:
        found = Event.list(namespace=namespace, field_selector={"type": "Warning"})
        return [each.raw for each in found]
    except kr8s.ServerError:
        return []


def list_nodes() -> list[Manifest]:
    """Nodes; none if this user may not read them."""
    import kr8s
    from kr8s.objects import Node

    try:
        return [each.raw for each in Node.list()]
    except kr8s.ServerError:
        return []
