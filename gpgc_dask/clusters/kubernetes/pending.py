"""Why pods do not start, in the words of Kubernetes' scheduler and of the nodes."""

from __future__ import annotations

import logging
from collections import Counter

from gpgc_dask.clusters.kubernetes.api import api_errors, list_events, list_pods
from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.clusters.kubernetes.settings import Settings
from gpgc_dask.clusters.kubernetes.sizes import MIB, Sizes
from gpgc_dask.core.errors import GpgcError

__all__ = ["PodWatch", "is_ready"]

log = logging.getLogger("gpgc_dask")

STARTING = ("ContainerCreating", "PodInitializing")
"""What containers wait for when nothing is wrong."""


class PodWatch:
    """Reports in the log why the pods of a cluster do not start, each reason once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._reported: set[str] = set()

    def report(self) -> str:
        """Log the reasons that are new, and return all of them; "" if there is none."""
        settings = self.settings
        try:
            with api_errors():
                pods = list_pods(settings.namespace, settings.name)
                events = list_events(settings.namespace)
        except GpgcError as error:  # a look that fails must not end a wait that may succeed
            return str(error)
        reasons = Counter(find_reasons(pods, events, settings.name).values())
        lines = [
            f"{count} pod{'s' * (count > 1)} of {settings.name} cannot start: {reason}"
            f"{self._advice(reason)}"
            for reason, count in reasons.items()
        ]
        for reason, line in zip(reasons, lines, strict=True):
            if reason not in self._reported:
                log.warning("%s", line)
        self._reported.update(reasons)
        return "; ".join(lines)

    def _advice(self, reason: str) -> str:
        """What to do about a reason; "" if its text is enough."""
        settings = self.settings
        if "Insufficient cpu" in reason:
            return f" Workers request {settings.threads} cores: give them fewer (--threads)"
        if "Insufficient memory" in reason:
            request = f"{Sizes.of(settings).worker // MIB} MiB"
            return f" Workers request {request}: give them less (--memory-limit)"
        if "secret" in reason:
            return " (--tls-secret, --store-secret and --pull-secret name the Secrets)"
        if "ImagePull" in reason:
            return " (--image, --pull-secret)"
        return ""


def find_reasons(pods: list[Manifest], events: list[Manifest], cluster: str) -> dict[str, str]:
    """Reasons by the name of the pod, or of another object of a cluster that makes its pods."""
    ready = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
    reasons = {}
    for event in events:
        about = event["involvedObject"]
        # Names of other clusters may begin like this one: those of pods are compared as a whole.
        is_of_pod = about["name"] in {pod["metadata"]["name"] for pod in pods} - ready
        is_of_set = about["kind"] == "ReplicaSet" and about["name"].startswith(f"{cluster}-")
        if is_of_pod or (is_of_set and not pods):
            reasons[about["name"]] = f"{event.get('reason')}: {event.get('message')}"
    for pod in pods:
        reason = None if is_ready(pod) else _pod_reason(pod)
        if reason is not None:
            reasons[pod["metadata"]["name"]] = reason
    return reasons


def is_ready(pod: Manifest) -> bool:
    """Whether the containers of a pod run and answer."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _pod_reason(pod: Manifest) -> str | None:
    """The reason in the status of a pod that is not ready; None if it is just starting."""
    status = pod.get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason')}: {condition.get('message')}"
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting is not None and waiting.get("reason") not in STARTING:
            return f"{waiting.get('reason')}: {waiting.get('message')}"
    return None
