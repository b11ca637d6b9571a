"""All that may be chosen about a deployment, in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dask.utils import parse_bytes

from gpgc_dask.core.errors import InputError
from gpgc_dask.planning.shape import Shape

__all__ = ["COMM_PORT", "DASHBOARD_PORT", "Settings"]

COMM_PORT, DASHBOARD_PORT = 8786, 8787
"""Of the scheduler; the operator tells workers this comm port, whatever the manifest says."""

LONGEST_NAME = 40
"""Letters of a name: the operator adds its own to it, and Kubernetes stops at 63."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A Dask cluster and, where there are data and a model to make, one fit on it.

    image : with a tag or a digest, so that scheduler, workers and driver are the same program
    data, model : URLs that all pods see, as ``s3://bucket/horses.zarr``
    shape : of the data, to size the pods by
    memory : of a worker, as "8GiB" or bytes; default what the plan for the shape says, 8 GiB where
        there is no shape
    checkpoint : where the fit keeps its state; default beside the model
    claim : of a volume that the checkpoint is kept on instead; made if it is not there
    min_workers : down to which an autoscaler may go where there is nothing to do; default none
    threads : of a worker, a core each
    driver_threads : of the driver's algebra
    tls_secret : with the files of ``gpgc certs``; None leaves the traffic in the clear
    store_secret : whose entries become environment variables (``AWS_ACCESS_KEY_ID``, …) of what
        reads and writes the store; None where the platform gives pods an identity
    service_account : that the platform's identity belongs to
    pull_secret : to fetch the image with
    operator_namespace : where the Dask operator runs, which scales workers by the dashboard's port
    idle_seconds : after which the operator removes a cluster without work; 0 never
    """

    image: str
    data: str | None = None
    model: str | None = None
    shape: Shape | None = None
    memory: str | int | None = None
    name: str = "gpgc"
    namespace: str = "gpgc"
    checkpoint: str | None = None
    claim: str | None = None
    workers: int = 20
    min_workers: int | None = None
    threads: int = 16
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
            raise InputError("a fit needs data and a model to make: give both, or none for no fit")
        if self.checkpoint is not None and self.claim is not None:
            raise InputError("checkpoint and claim both say where the state is kept: choose one")

    def _check_sizes(self) -> None:
        if self.shape is None and self.data is not None:
            raise InputError(
                "shape must be given to size the pods of a fit by, as "
                "Shape.from_images(10_000, features=489) (--images or --plan)"
            )
        if self.memory is not None:
            parse_bytes(self.memory)
        for field in ("workers", "threads", "driver_threads"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be 1 or more, got {getattr(self, field)}")
        if self.min_workers is not None and not 1 <= self.min_workers <= self.workers:
            raise InputError(
                f"min_workers must be from 1 to the {self.workers} workers, got {self.min_workers}"
            )
        if self.idle_seconds < 0:
            raise InputError(f"idle_seconds must be 0 (never) or more, got {self.idle_seconds}")

    @property
    def scheduler_name(self) -> str:
        """Of the service and the deployment that the operator makes."""
        return f"{self.name}-scheduler"

    @property
    def scheduler_address(self) -> str:
        """Of the scheduler, for pods of any namespace."""
        scheme = "tcp" if self.tls_secret is None else "tls"
        return f"{scheme}://{self.scheduler_name}.{self.namespace}.svc:{COMM_PORT}"


def _check_name(field: str, text: str) -> None:
    if len(text) > LONGEST_NAME or not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", text):
        raise InputError(
            f"{field} must be small letters, digits and dashes, a letter first, at most "
            f"{LONGEST_NAME} of them; got {text!r}"
        )


def _check_image(image: str) -> None:
    """A moving tag gives workers that come later another program than the first ones have."""
    if "@sha256:" in image:
        return
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    if tag in ("", "latest"):
        raise InputError(
            f"{image} is not pinned: name a version, as {image.removesuffix(':latest')}:1.0, or a "
            "digest (@sha256:…)"
        )


def _check_url(field: str, url: str) -> None:
    if "://" not in url:
        raise InputError(
            f"{field} must be a URL that all pods see, as s3://bucket/name.zarr; got {url!r}"
        )
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InputError(
            f"{field} has credentials in its URL, which manifests show to everybody: put them into "
            "the store's Secret"
        )
