"""``gpgc plan``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import listing, print_json, print_out
from gpgc_dask.cli.fit import Method, MethodName, Redundancy, to_redundancy
from gpgc_dask.cli.options import RUNNING, Json, Workers

if TYPE_CHECKING:
    from gpgc_dask.planning.plan import Plan

__all__ = ["EXAMPLE", "plan"]

EXAMPLE = (
    "Examples:\n\ngpgc plan horses.zarr --calibrate\n\n"
    "gpgc plan horses.zarr --workers 20 --threads 16 --memory 64GB\n\n"
    "gpgc plan --images 10000 --features 489\n\ngpgc plan --paper --workers 20 --threads 16"
)


def plan(
    data: Annotated[
        str | None, typer.Argument(help="The dataset, as gpgc ingest made it; or use --images.")
    ] = None,
    *,
    images: Annotated[
        int | None, typer.Option(min=1, help="Instead of a dataset: so many images.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, help="With --images: numbers a superpixel.")
    ] = 489,
    paper: Annotated[
        bool, typer.Option("--paper", help="Instead of a dataset: the paper's six.")
    ] = False,
    method: Method = MethodName.GPGC,
    redundancy: Redundancy = "auto",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Run the parts of a fit for some seconds, and read a few chunks of the dataset, "
            "for a better estimate of the time.",
        ),
    ] = False,
    workers: Workers = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of each worker.", rich_help_panel=RUNNING)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Of each worker, as 4GB.", rich_help_panel=RUNNING)
    ] = None,
    json: Json = False,
) -> None:
    """Say what a fit will cost: memory, reads of the data, traffic, time. Fits nothing.

    For this machine, or for any number of workers that are as fast as it is.
    """
    given = [name for name, value in (("DATA", data), ("--images", images)) if value is not None]
    given += ["--paper"] if paper else []
    if len(given) != 1:
        told = " and ".join(given) or "nothing"
        raise typer.BadParameter(f"name a dataset, or --images, or --paper; got {told}")
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.models.registry import MODELS
    from gpgc_dask.planning.plan import PAPER, PAPER_FEATURES

    options = {"workers": workers, "threads": threads, "memory": memory}
    if data is None:
        if method is MethodName.SVM:
            raise typer.BadParameter("for the SVM name a dataset: --images and --paper are of GPs")
        sizes = PAPER if images is None else {f"{images:,} images": images}
        k = features if images is not None else PAPER_FEATURES
        _show_stated(sizes, k, method, redundancy, options, calibrate=calibrate, json=json)
        return
    dataset = open_dataset(data)
    if method is MethodName.SVM:
        _plan_svm(dataset, json=json)
        return
    estimator = MODELS[method.value](redundancy=to_redundancy(redundancy))
    classes = len(dataset.attrs["classes"])
    found = estimator.plan(dataset, n_classes=classes, calibrate=calibrate, **options)
    if json:
        print_json(_facts(found))
    else:
        print_out(escape(str(found)))


def _facts(found: Plan) -> dict[str, Any]:
    return asdict(found) | {"reads": found.reads, "fits": found.fits}


def _show_stated(
    sizes: dict[str, int],
    features: int,
    method: MethodName,
    redundancy: str,
    options: dict[str, Any],
    *,
    calibrate: bool,
    json: bool,
) -> None:
    """Plans of datasets that are not there, side by side."""
    from gpgc_dask.core.text import bytes_text
    from gpgc_dask.planning.machine import Machine
    from gpgc_dask.planning.plan import Resources, Shape, duration
    from gpgc_dask.planning.plan import plan as make_plan

    machine = Machine.calibrate(features) if calibrate else Machine.measure()
    resources = Resources.of(is_dask=True, **options)
    plans = {
        name: make_plan(
            Shape.stated(count, features),
            redundancy=to_redundancy(redundancy) == "auto",
            separable=method is MethodName.GPGC,
            resources=resources,
            machine=machine,
        )
        for name, count in sizes.items()
    }
    if json:
        print_json({name: _facts(found) for name, found in plans.items()})
        return
    if len(plans) == 1:
        print_out(escape(str(*plans.values())))
        return
    rows = [
        (
            name,
            f"{found.shape.n_groups:,}",
            bytes_text(found.shape.n_rows * features * 4),
            f"{found.reads:.2g}",
            bytes_text(found.worker_bytes),
            bytes_text(found.network_bytes),
            duration(found.seconds),
        )
        for name, found in plans.items()
    ]
    columns = ["dataset", "images", "data", "reads", "memory a worker", "network", "time"]
    title = (
        f"{features:,} features on {resources.workers} worker(s) of {resources.threads} thread(s), "
        f"{machine.products_per_second / 1e9:.0f} G multiply-adds/s each ({machine.name})"
    )
    print_out(listing(title, columns, rows))


def _plan_svm(dataset: Any, *, json: bool) -> None:
    from gpgc_dask.core.text import bytes_text
    from gpgc_dask.models.registry import MODELS
    from gpgc_dask.models.svm import available_bytes

    n, k = dataset.sizes["superpixel"], dataset.sizes["feature"]
    needed = MODELS["svm"]().memory_bytes(n, k, len(dataset.attrs["classes"]))
    there = available_bytes()
    if json:
        print_json({"memory_bytes": needed, "available_bytes": there, "fits": needed <= there})
        return
    verdict = "fits" if needed <= there else "DOES NOT FIT"
    print_out(
        f"memory           {bytes_text(needed)} of {bytes_text(there)}: {verdict} "
        "(an SVM holds all rows in memory)"
    )
