"""``gpgc plan``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import print_json, print_out
from gpgc_dask.cli.fit import Method, Redundancy, Rounds, to_method, to_redundancy
from gpgc_dask.cli.options import RUNNING, Json, Workers

if TYPE_CHECKING:
    from gpgc_dask.planning.plan import Plan

__all__ = ["EXAMPLE", "plan"]

EXAMPLE = (
    "Examples:\n\ngpgc plan horses.zarr --calibrate\n\n"
    "gpgc plan horses.zarr --workers 20 --threads 16 --memory-limit 64GB\n\n"
    "gpgc plan --images 10000 --features 489"
)


def plan(
    data: Annotated[
        str | None, typer.Argument(help="Dataset that gpgc ingest has written; or use --images.")
    ] = None,
    *,
    images: Annotated[
        int | None, typer.Option(min=1, help="Number of images, instead of a dataset.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, help="With --images: number of features per superpixel.")
    ] = 489,
    method: Method = "gpgc",
    redundancy: Redundancy = "auto",
    rounds: Rounds = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Improve the estimate of the time: run the parts of ingest, fit and review for "
            "some seconds, and read a few chunks of the dataset.",
        ),
    ] = False,
    workers: Workers = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads per worker.", rich_help_panel=RUNNING)
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory per worker, such as 4GB.", rich_help_panel=RUNNING)
    ] = None,
    json: Json = False,
) -> None:
    """Estimate what a fit will cost: memory, reads of the data, network traffic and time.

    With --images the plan has the time and memory of gpgc ingest, too; gpgc fit includes the second
    look and the review of each mask.

    The estimate is for this machine, or for any number of workers that are as fast as it is.
    Nothing is fitted.
    """
    to_method(method)
    options = {"workers": workers, "threads": threads, "memory_limit": memory_limit}
    if data is None and images is not None:
        if method == "svm":
            raise typer.BadParameter("for the SVM name a dataset: --images is for GPs")
        estimator = _estimator(method, redundancy, rounds)
        _plan_images(images, features, estimator, options, calibrate=calibrate, json=json)
        return
    if data is None or images is not None:
        raise typer.BadParameter("name either a dataset or --images")
    from gpgc_dask.data.dataset import open_dataset

    dataset = open_dataset(data)
    if method == "svm":
        _plan_svm(dataset, json=json)
        return
    estimator = _estimator(method, redundancy, rounds)
    classes = len(dataset.attrs["classes"])
    cost = estimator.plan(dataset, n_classes=classes, calibrate=calibrate, **options)
    _print_plan(cost, json=json)


def _estimator(method: str, redundancy: str, rounds: int | None) -> Any:
    from gpgc_dask.models.registry import MODELS

    given = {} if rounds is None else {"rounds": rounds}
    return MODELS[method](redundancy=to_redundancy(redundancy), **given)


def _print_plan(cost: Plan, *, json: bool) -> None:
    if json:
        print_json(asdict(cost) | {"reads": cost.reads, "fits": cost.fits})
    else:
        print_out(escape(str(cost)))


def _plan_images(
    images: int,
    features: int,
    estimator: Any,
    options: dict[str, Any],
    *,
    calibrate: bool,
    json: bool,
) -> None:
    """Print the plan of a dataset that does not exist yet."""
    from gpgc_dask.imaging.features import Recipe
    from gpgc_dask.models.review_cost import measure_review
    from gpgc_dask.pipelines.ingest_cost import measure_ingest
    from gpgc_dask.planning.machine import Machine
    from gpgc_dask.planning.plan import plan as make_plan
    from gpgc_dask.planning.resources import Resources
    from gpgc_dask.planning.shape import Shape
    from gpgc_dask.planning.stages import TYPICAL_INGEST, TYPICAL_REVIEW
    from gpgc_dask.planning.sweeps import default_rounds

    shape, resources = Shape.from_images(images, features), Resources.detect(True, **options)
    ingest, review = TYPICAL_INGEST, TYPICAL_REVIEW
    if calibrate:
        ingest, review = measure_ingest(Recipe()), measure_review()
    cost = make_plan(
        shape,
        estimate_redundancy=estimator.redundancy == "auto",
        separable=type(estimator).__name__ != "GP",
        resources=resources,
        machine=Machine.calibrate(features) if calibrate else Machine.measure(),
        rounds=default_rounds(2) if estimator.rounds is None else estimator.rounds,
    )
    stages = ingest.stage(images, resources), review.stage(images, shape.n_rows, resources)
    _print_plan(replace(cost, stages=stages), json=json)


def _plan_svm(dataset: Any, *, json: bool) -> None:
    from gpgc_dask.core.text import bytes_text
    from gpgc_dask.models.registry import MODELS
    from gpgc_dask.models.svm_memory import available_bytes

    n, k = dataset.sizes["superpixel"], dataset.sizes["feature"]
    needed = MODELS["svm"]().memory_bytes(n, k, len(dataset.attrs["classes"]))
    available = available_bytes()
    if json:
        print_json(
            {"memory_bytes": needed, "available_bytes": available, "fits": needed <= available}
        )
        return
    verdict = "fits" if needed <= available else "DOES NOT FIT"
    print_out(
        f"memory             {bytes_text(needed)} of {bytes_text(available)}: {verdict} "
        "(an SVM holds all rows in memory)"
    )
