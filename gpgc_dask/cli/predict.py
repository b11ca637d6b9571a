"""``gpgc predict``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.backbone_options import Features, PresentBackbone, to_backbone
from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    Json,
    OnError,
    OnErrorOption,
    Overwrite,
    Resume,
    check_choice,
    check_output,
)

if TYPE_CHECKING:
    from gpgc_dask.pipelines.predict import PredictReport

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc predict model.zarr photos/ -o predicted/\n\n"
    "gpgc predict model.zarr horse.jpg -o predicted/ --probability probability/ --std std/"
)


@on_cluster()
def predict(
    model: Annotated[
        str, typer.Argument(help="The model that gpgc fit has written: a path or URL.")
    ],
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders, or one photo.")],
    *,
    out: Annotated[str, typer.Option("--out", "-o", help="Folder for the masks.")],
    probability: Annotated[
        str | None,
        typer.Option(
            help="Folder for the probability of the foreground (with several classes, of the "
            "predicted one): 16-bit PNGs, 65535 is 1."
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            help="Folder for the posterior standard deviation of f: TIFFs of 32-bit floats."
        ),
    ] = None,
    backbone: PresentBackbone = None,
    features: Features = None,
    tile: Annotated[
        int | None,
        typer.Option(
            help="Longest side in pixels of the tiles in which larger photos are predicted. "
            "Default: as in gpgc ingest."
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(help="Pixels that neighbouring tiles share. Default: as in gpgc ingest."),
    ] = None,
    on_error: OnErrorOption = OnError.RAISE,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
    client: Any,
) -> None:
    """Predict masks of new photos by a model: PNGs named after the photos, at their own size.

    The model records how its features are computed; the photos need no masks. Masks are written as
    they are finished: after a crash or Ctrl-C, the same command with --resume continues. Runs one
    process per core by default.
    """
    check_choice(resume=resume, overwrite=overwrite)
    for folder in (out, probability, std):
        check_output(folder=folder)
    from gpgc_dask.models.persistence import load
    from gpgc_dask.pipelines.options import RunOptions
    from gpgc_dask.pipelines.predict import predict_masks

    with Display() as display:
        report = predict_masks(
            load(model),
            images,
            out,
            probability=probability,
            std=std,
            backbone=to_backbone(backbone, features, images),
            tile=tile,
            overlap=overlap,
            run=RunOptions(resume, overwrite, on_error.value, display.work, client),
        )
    if json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: PredictReport) -> None:
    earlier = f", {report.resumed:,} of them by an earlier run" if report.resumed else ""
    print_out(
        f"[bold]{escape(report.target)}[/bold]: masks of {report.images:,} images{earlier}, "
        f"in {time_text(report.elapsed)}"
    )
    for folder, content in (
        (report.probability, "probabilities"),
        (report.std, "standard deviations"),
    ):
        if folder is not None:
            print_out(f"[bold]{escape(folder)}[/bold]: {content}")
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
