"""``gpgc deploy``: the manifests of a fit on Kubernetes, as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLE", "deploy"]

EXAMPLE = (
    "Example:\n\n"
    "gpgc deploy --image registry.example.org/gpgc_dask:1.0 --data s3://horses/data.zarr "
    "--model s3://horses/model.zarr --images 10000 --workers 4 -o horses/"
)

STATED, SECRETS = "What the fit is of", "Names of what is in the cluster"


def deploy(
    *,
    image: Annotated[str, typer.Option(help="With a tag or a digest.")],
    data: Annotated[
        str | None,
        typer.Option(help="The dataset, as s3://bucket/horses.zarr; without: a cluster, no fit."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to make, as s3://bucket/model.zarr.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder to write to; default stdout.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the DaskCluster, and before all else.")] = "gpgc",
    namespace: Annotated[str, typer.Option(help="For all of it.")] = "gpgc",
    images: Annotated[
        int | None, typer.Option(min=1, help="How many, to size by.", rich_help_panel=STATED)
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, help="Numbers a superpixel.", rich_help_panel=STATED)
    ] = 489,
    plan: Annotated[
        Path | None,
        typer.Option(help="Instead: what gpgc plan DATA --json printed.", rich_help_panel=STATED),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Pods, at most.")] = 20,
    memory: Annotated[
        str | None, typer.Option(help="Of a worker, as 8GiB; default from the plan.")
    ] = None,
    min_workers: Annotated[
        int | None,
        typer.Option(min=1, help="Let an autoscaler go down to so many; default: fixed."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of a worker, a core each.")] = 16,
    driver_threads: Annotated[int, typer.Option(min=1, help="Of the driver's algebra.")] = 4,
    idle_seconds: Annotated[
        int, typer.Option(min=0, help="Remove the cluster after so long without work; 0: never.")
    ] = 3600,
    checkpoint: Annotated[
        str | None, typer.Option(help="URL of the fit's state; default beside the model.")
    ] = None,
    claim: Annotated[
        str | None, typer.Option(help="Keep it on a volume of this name instead.")
    ] = None,
    tls: Annotated[bool, typer.Option(help="Encrypt, and admit certificates only.")] = True,
    tls_secret: Annotated[
        str, typer.Option(help="With the files of gpgc certs.", rich_help_panel=SECRETS)
    ] = "gpgc-tls",
    store_secret: Annotated[
        str,
        typer.Option(
            help="With the store's environment variables; '' for none.", rich_help_panel=SECRETS
        ),
    ] = "gpgc-store",
    service_account: Annotated[
        str | None,
        typer.Option(help="That has an identity at the store.", rich_help_panel=SECRETS),
    ] = None,
    pull_secret: Annotated[
        str | None, typer.Option(help="To fetch the image with.", rich_help_panel=SECRETS)
    ] = None,
    operator_namespace: Annotated[
        str, typer.Option(help="Where the Dask operator runs.", rich_help_panel=SECRETS)
    ] = "dask-operator",
) -> None:
    """Write the Kubernetes manifests of a fit: Dask cluster, job, network policies, budgets."""
    from gpgc_dask.clusters.kubernetes.settings import Settings
    from gpgc_dask.clusters.kubernetes.sizes import shape_of
    from gpgc_dask.clusters.kubernetes.writing import to_yaml, write

    settings = Settings(
        image=image,
        data=data,
        model=model,
        shape=shape_of(images, features, plan),
        memory=memory,
        name=name,
        namespace=namespace,
        checkpoint=checkpoint,
        claim=claim,
        workers=workers,
        min_workers=min_workers,
        threads=threads,
        driver_threads=driver_threads,
        idle_seconds=idle_seconds,
        tls_secret=tls_secret if tls else None,
        store_secret=store_secret or None,
        service_account=service_account,
        pull_secret=pull_secret,
        operator_namespace=operator_namespace,
    )
    if out is None:
        print(to_yaml(settings), end="")
        return
    for path in write(settings, out):
        print(path)
