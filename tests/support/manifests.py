"""Settings of a fit on Kubernetes, and access to the parts of its manifests."""

from __future__ import annotations

from dataclasses import replace

from gpgc_dask.clusters.kubernetes import Settings, Volume, manifests
from gpgc_dask.planning.shape import Shape

SETTINGS = Settings(
    image="registry.example.org/gpgc_dask:1.0",
    data="s3://horses/data.zarr",
    model="s3://horses/model.zarr",
    shape=Shape.from_images(10_000, 489),
    threads=2,
)
VARIANTS = {
    "default": SETTINGS,
    "autoscaler": replace(SETTINGS, min_workers=2),
    "growing": replace(SETTINGS, workers=2, max_workers=40),
    "volume": replace(SETTINGS, claim="states"),
    "bucket": replace(SETTINGS, checkpoint="s3://states/horses.npz"),
    "plain": replace(SETTINGS, tls_secret=None, store_secret=None),
    "identity": replace(
        SETTINGS, store_secret=None, service_account="reader", pull_secret="registry"
    ),
    "no fit": Settings(image=SETTINGS.image),
    "ingest": Settings(
        image=SETTINGS.image,
        command=("ingest", "/photos/images", "/photos/masks", "-o", "s3://horses/data.zarr"),
        volumes=(Volume("photos", "/photos", read_only=True), Volume("results", "/results")),
    ),
}


def objects(settings):
    """All objects in the files of the manifests."""
    return [each for file in manifests(settings).values() for each in file]


def one(settings, kind, name=None):
    """The only object of a kind, or of a kind and name."""
    (result,) = (
        each
        for each in objects(settings)
        if each["kind"] == kind and name in (None, each["metadata"]["name"])
    )
    return result


def pods(settings):
    """Pod specs by role: scheduler, worker, driver."""
    spec = one(settings, "DaskCluster")["spec"]
    specs = {role: spec[role]["spec"] for role in ("scheduler", "worker")}
    if settings.job_arguments:
        specs["driver"] = one(settings, "Job")["spec"]["template"]["spec"]
    return specs


def containers(settings):
    """Containers of all pods by name."""
    return {
        container["name"]: container
        for pod in pods(settings).values()
        for container in pod.get("initContainers", []) + pod["containers"]
    }


def environment(container):
    """Environment variables of a container."""
    return {entry["name"]: entry["value"] for entry in container["env"]}
