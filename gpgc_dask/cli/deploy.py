"""``gpgc deploy``: the manifests of a fit on Kubernetes, as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpgc_dask.cli.console import note

__all__ = ["EXAMPLE", "deploy"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc deploy --image registry.example.org/gpgc_dask:1.0 --data s3://horses/data.zarr "
    "--model s3://horses/model.zarr --images 10000 --workers 4 -o horses/\n\n"
    "gpgc deploy --image registry.example.org/gpgc_dask:1.0 --volume photos=/photos:ro "
    "--workers 16 --threads 1 --memory-limit 2GiB -o ingest/ -- ingest /photos/images "
    "/photos/masks -o s3://horses/data.zarr"
)

FIT, SIZE, NAMES = "The job", "Size of the cluster", "Names of objects in the cluster"


def deploy(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND ...]",
            help="Command of gpgc that runs on the cluster as a job, with its own options but "
            "those about the cluster: ingest, update, fit, score, predict, … A fit is described "
            "by --data and --model, too.",
        ),
    ] = None,
    *,
    image: Annotated[str, typer.Option(help="Container image, with a tag or a digest.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="URL of the dataset, such as s3://bucket/horses.zarr. Without it the manifests "
            "describe a cluster and no fit.",
            rich_help_panel=FIT,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="URL of the model to make, such as s3://bucket/model.zarr.", rich_help_panel=FIT
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the manifests. Default: print them."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="Name of the DaskCluster; the names of the other objects begin with it.",
            rich_help_panel=NAMES,
        ),
    ] = "gpgc",
    namespace: Annotated[
        str, typer.Option(help="Namespace of all objects.", rich_help_panel=NAMES)
    ] = "gpgc",
    images: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of images, from which the memory of the pods is computed.",
            rich_help_panel=FIT,
        ),
    ] = None,
    features: Annotated[
        int,
        typer.Option(min=1, help="With --images: features per superpixel.", rich_help_panel=FIT),
    ] = 489,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --images: a file with the output of gpgc plan DATA --json.",
            rich_help_panel=FIT,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of workers (pods).", rich_help_panel=SIZE)
    ] = 20,
    min_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Let the number of workers follow the work, down to this many (1 by default).",
            rich_help_panel=SIZE,
        ),
    ] = None,
    max_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Let the number of workers follow the work, up to this many (--workers by "
            "default).",
            rich_help_panel=SIZE,
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help="Memory per worker, such as 8GiB. Default: what the plan of the fit needs.",
            rich_help_panel=SIZE,
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads per worker, one core each.", rich_help_panel=SIZE)
    ] = 16,
    driver_threads: Annotated[
        int,
        typer.Option(min=1, help="Threads of the driver's linear algebra.", rich_help_panel=SIZE),
    ] = 4,
    idle_seconds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Remove the cluster after this many seconds without work; 0 means never.",
            rich_help_panel=SIZE,
        ),
    ] = 3600,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="URL at which an unfinished fit is kept. Default: next to the model.",
            rich_help_panel=FIT,
        ),
    ] = None,
    claim: Annotated[
        str | None,
        typer.Option(
            help="Keep an unfinished fit on the volume claim of this name instead.",
            rich_help_panel=FIT,
        ),
    ] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            help="Volume claim that workers and the job mount, such as photos=/photos, or "
            "photos=/photos:ro to read only; may be repeated.",
            metavar="CLAIM=/PATH",
            rich_help_panel=FIT,
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option(help="Encrypt all connections, and accept only known certificates.")
    ] = True,
    tls_secret: Annotated[
        str, typer.Option(help="Secret with the files of gpgc certs.", rich_help_panel=NAMES)
    ] = "gpgc-tls",
    store_secret: Annotated[
        str,
        typer.Option(
            help="Secret with the environment variables of the object store; '' for none.",
            rich_help_panel=NAMES,
        ),
    ] = "gpgc-store",
    service_account: Annotated[
        str | None,
        typer.Option(
            help="Service account that has an identity at the object store.", rich_help_panel=NAMES
        ),
    ] = None,
    pull_secret: Annotated[
        str | None,
        typer.Option(help="Secret with which the image is pulled.", rich_help_panel=NAMES),
    ] = None,
    operator_namespace: Annotated[
        str, typer.Option(help="Namespace of the Dask operator.", rich_help_panel=NAMES)
    ] = "dask-operator",
) -> None:
    """Write the Kubernetes manifests of a Dask cluster and of a job that runs on it.

    The job is a fit with --data and --model, or the command after two dashes. The manifests also
    contain network policies and disruption budgets. Apply them with kubectl apply -f;
    deploy/README.md describes the steps.
    """
    from gpgc_dask.clusters.kubernetes.settings import Settings, Volume
    from gpgc_dask.clusters.kubernetes.sizes import shape_of
    from gpgc_dask.clusters.kubernetes.writing import DELETE_WARNING, to_yaml, write

    settings = Settings(
        image=image,
        command=_to_job(command or []),
        volumes=tuple(Volume.parse(text) for text in volume or []),
        data=data,
        model=model,
        shape=shape_of(images, features, plan),
        memory_limit=memory_limit,
        name=name,
        namespace=namespace,
        checkpoint=checkpoint,
        claim=claim,
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
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
    written = write(settings, out)
    for path in written:
        print(path)
    note(DELETE_WARNING)
    others = sorted(path.name for path in {*out.glob("*.yaml")} - {*written})
    if others:
        note(f"kubectl apply -f {out} also applies {', '.join(others)}: remove what is not used")


def _to_job(words: list[str]) -> tuple[str, ...]:
    """The command of a job, which resumes its own work; a usage error if gpgc does not know it."""
    if not words:
        return ()
    from gpgc_dask.cli import app
    from gpgc_dask.cli.cluster_options import OPTIONS

    commands: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    command = commands.get(words[0])
    known = {each.name for each in command.params} if command else set()
    if "scheduler" not in known:
        names = [
            name for name, one in commands.items() if "scheduler" in {p.name for p in one.params}
        ]
        raise typer.BadParameter(f"{words[0]!r} is not one of {', '.join(names)}")
    given = command.make_context(words[0], list(words[1:])).params
    own = [f"--{name.replace('_', '-')}" for name in OPTIONS if given.get(name) is not None]
    if own:
        raise typer.BadParameter(f"{', '.join(own)}: the job has the cluster of these manifests")
    repeats = "resume" in known and not given["resume"]
    if repeats and given.get("overwrite"):
        raise typer.BadParameter(
            "--overwrite: each try of the job would begin again; remove the old result first"
        )
    return (*words, "--resume") if repeats else tuple(words)
