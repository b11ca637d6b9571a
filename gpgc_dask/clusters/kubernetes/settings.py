"""Settings of a deployment on Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dask.utils import parse_bytes

from gpgc_dask.core.errors import InputError
from gpgc_dask.planning.shape import Shape

__all__ = [
    "CERTIFICATES",
    "CHECKPOINTS",
    "CLUSTER_FILE",
    "COMM_PORT",
    "DASHBOARD_PORT",
    "JOB_FILE",
    "MAX_THREADS",
    "NAMESPACE_FILE",
    "REPLACE",
    "Settings",
    "Volume",
    "is_of_pods",
]

NAMESPACE_FILE, CLUSTER_FILE, JOB_FILE = "1-namespace.yaml", "2-cluster.yaml", "3-job.yaml"
"""Files of the manifests. kubectl applies a folder in the order of the names."""

REPLACE = (
    "a running DaskCluster keeps its image, and so do its new pods. In the folder of the manifests "
    f"replace it and its job: kubectl replace --force --cascade=foreground -f {CLUSTER_FILE} "
    f"-f {JOB_FILE}"
)
"""What to do if a cluster of pods runs another image than its driver."""

COMM_PORT, DASHBOARD_PORT = 8786, 8787
"""Ports of the scheduler. The operator passes this comm port to workers in any case."""

CERTIFICATES, CHECKPOINTS = "/certificates", "/checkpoints"
RESERVED = (CERTIFICATES, CHECKPOINTS, "/tmp", "/opt", "/home/gpgc")
"""Paths of the pods' own volumes and of the image."""

MAX_THREADS = 16
"""Threads per worker by default; more would wait for each other in Python."""

MAX_NAME_LENGTH = 40
"""Characters of a name. The operator appends its own text, and Kubernetes allows 63."""


@dataclass(frozen=True)
class Volume:
    """A volume claim that pods mount.

    Attributes
    ----------
    claim : str
        Name of the claim.
    path : str
        Absolute path in the pods.
    read_only : bool
        Whether the pods may only read.
    """

    claim: str
    path: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Volume:
        """Volume of the text CLAIM=/PATH or CLAIM=/PATH:ro."""
        claim, _, path = text.partition("=")
        volume = cls(claim, path.removesuffix(":ro"), path.endswith(":ro"))
        _check_name("volume", claim)
        if not re.fullmatch(r"/[\w./-]+", volume.path) or volume.path.startswith(RESERVED):
            raise InputError(
                f"{text!r} is not a volume: give it as CLAIM=/PATH or CLAIM=/PATH:ro; paths below "
                f"{', '.join(RESERVED)} are in use"
            )
        return volume


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a Dask cluster on Kubernetes, and of a command that runs on it as a job.

    The job is a fit if ``data`` and ``model`` are given, or the one of ``command``.

    Attributes
    ----------
    image : str
        Container image with a tag or a digest, so that scheduler, workers and driver run the same
        program.
    data, model : str or None
        URLs that all pods can reach, such as ``s3://bucket/horses.zarr``.
    command : tuple of str
        Arguments of gpgc, such as ``("ingest", "/photos", "/masks", "--out", "s3://…")``, without
        those about the cluster.
    volumes : tuple of Volume
        Volume claims that workers and driver mount, for example with photos. They must exist.
    shape : Shape or None
        Shape of the data, from which the memory of the pods is computed.
    memory_limit : str, int or None
        Memory per worker, such as "8GiB" or a number of bytes. By default what the plan for the
        shape needs, or 8 GiB if there is no shape.
    name, namespace : str
        Name of the DaskCluster, which also begins the names of the other objects, and the
        namespace of all objects.
    checkpoint : str or None
        URL at which the fit keeps its state; by default next to the model.
    claim : str or None
        Name of a volume claim on which the checkpoint is kept instead; created if it is missing.
    workers : int
        Number of worker pods to start.
    min_workers, max_workers : int or None
        If one of them is given, an autoscaler adapts the number of workers to the work between
        these bounds. The smallest number is 1 by default, the largest is ``workers``.
    threads : int
        Threads per worker, one core each.
    driver_threads : int
        Threads of the driver's linear algebra.
    tls_secret : str or None
        Name of the Secret with the files of ``gpgc certs``; None turns encryption off.
    store_secret : str or None
        Name of the Secret whose entries become environment variables (``AWS_ACCESS_KEY_ID``, …) of
        the pods that read and write the store; None if the platform gives pods an identity.
    service_account : str or None
        Name of the service account that has this identity.
    pull_secret : str or None
        Name of the Secret with which the image is pulled.
    operator_namespace : str
        Namespace of the Dask operator, which scales workers through the dashboard's port.
    idle_seconds : int
        Seconds without work after which the operator removes the cluster; 0 means never.
    """

    image: str
    data: str | None = None
    model: str | None = None
    command: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    shape: Shape | None = None
    memory_limit: str | int | None = None
    name: str = "gpgc"
    namespace: str = "gpgc"
    checkpoint: str | None = None
    claim: str | None = None
    workers: int = 20
    min_workers: int | None = None
    max_workers: int | None = None
    threads: int = MAX_THREADS
    driver_threads: int = 4
    tls_secret: str | None = "gpgc-tls"
    store_secret: str | None = "gpgc-store"
    service_account: str | None = None
    pull_secret: str | None = None
    operator_namespace: str = "dask-operator"
    idle_seconds: int = 3600

    def __post_init__(self) -> None:
        for field in ("name", "namespace", "operator_namespace"):
            _check_name(field, getattr(self, field))
        for field in ("claim", "tls_secret", "store_secret", "service_account", "pull_secret"):
            if getattr(self, field) is not None:
                _check_name(field, getattr(self, field))
        _check_image(self.image)
        for field in ("data", "model", "checkpoint"):
            if getattr(self, field) is not None:
                _check_url(field, getattr(self, field))
        self._check_sizes()
        if (self.data is None) != (self.model is None):
            raise InputError("a fit needs both data and model: give both, or neither for no fit")
        if self.data is not None and self.command:
            raise InputError("data and model describe a fit, command another job: choose one")
        if self.checkpoint is not None and self.claim is not None:
            raise InputError("checkpoint and claim both name a place for the state: choose one")

    def _check_sizes(self) -> None:
        if self.shape is None and self.data is not None:
            raise InputError(
                "shape must be given, to compute the memory of the pods: "
                "Shape.from_images(10_000, features=489) (--images or --plan)"
            )
        if self.memory_limit is not None:
            try:
                parse_bytes(self.memory_limit)
            except ValueError:
                raise InputError(
                    f"{self.memory_limit!r} is no amount of memory: give it as 8GiB "
                    "(--memory-limit)"
                ) from None
        for field in ("workers", "threads", "driver_threads"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be 1 or more, got {getattr(self, field)}")
        if self.min_workers is not None and not 1 <= self.min_workers <= self.workers:
            raise InputError(
                f"min_workers must be from 1 to the {self.workers} workers, got {self.min_workers}"
            )
        if self.max_workers is not None and self.max_workers < self.workers:
            raise InputError(
                f"max_workers must be at least the {self.workers} workers, got {self.max_workers}"
            )
        if self.idle_seconds < 0:
            raise InputError(f"idle_seconds must be 0 (never) or more, got {self.idle_seconds}")

    @property
    def job_arguments(self) -> tuple[str, ...]:
        """Arguments of gpgc in the job, without the scheduler; empty if there is no job."""
        if self.data is None or self.model is None:
            return self.command
        checkpoint = self.checkpoint or f"{self.model.rstrip('/')}.unfinished.npz"
        if self.claim is not None:
            checkpoint = f"{CHECKPOINTS}/{self.name}.npz"
        fit = ("fit", self.data, "--out", self.model, "--resume")
        return (*fit, "--checkpoint", checkpoint)

    @property
    def job_name(self) -> str:
        """Name of the job and of what belongs to it, such as gpgc-fit."""
        return f"{self.name}-{self.job_arguments[0]}"

    @property
    def worker_bounds(self) -> tuple[int, int] | None:
        """Bounds of the autoscaler; None if the number of workers is fixed."""
        if self.min_workers is None and self.max_workers is None:
            return None
        return self.min_workers or 1, self.max_workers or self.workers

    @property
    def first_workers(self) -> int:
        """Number of workers to wait for: an autoscaler removes idle ones."""
        return self.workers if self.worker_bounds is None else self.worker_bounds[0]

    @property
    def scheduler_name(self) -> str:
        """Name of the service and the deployment that the operator makes for the scheduler."""
        return f"{self.name}-scheduler"

    @property
    def scheduler_address(self) -> str:
        """Address of the scheduler, for pods of any namespace."""
        scheme = "tcp" if self.tls_secret is None else "tls"
        return f"{scheme}://{self.scheduler_name}.{self.namespace}.svc:{COMM_PORT}"


def is_of_pods(address: str) -> bool:
    """Whether this may be the address of a scheduler that ``Settings`` describes."""
    return (
        re.fullmatch(rf"\w+://[a-z0-9-]+-scheduler\.[a-z0-9-]+\.svc:{COMM_PORT}", address)
        is not None
    )


def _check_name(field: str, text: str) -> None:
    if len(text) > MAX_NAME_LENGTH or not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", text):
        raise InputError(
            f"{field} must consist of at most {MAX_NAME_LENGTH} lower-case letters, digits and "
            f"dashes, and begin with a letter; got {text!r}"
        )


def _check_image(image: str) -> None:
    """Raise an InputError for a moving tag: later workers would run another program."""
    if "@sha256:" in image:
        return
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    if tag in ("", "latest"):
        raise InputError(
            f"{image} is not pinned: name a version, such as {image.removesuffix(':latest')}:1.0, "
            "or a digest (@sha256:…)"
        )


def _check_url(field: str, url: str) -> None:
    if "://" not in url:
        raise InputError(
            f"{field} must be a URL that all pods can reach, such as s3://bucket/name.zarr; got "
            f"{url!r}"
        )
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InputError(
            f"{field} has credentials in its URL, and everyone can read manifests: put them into "
            "the store's Secret"
        )
