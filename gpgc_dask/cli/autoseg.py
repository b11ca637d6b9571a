"""``gpgc autoseg``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

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
    from gpgc_dask.pipelines.autoseg import AutosegReport

__all__ = ["EXAMPLE", "autoseg"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc autoseg photos/ boxes.csv -o rough-masks/\n\n"
    "gpgc autoseg photos/ boxes.csv -o bad-masks/ --jitter 0.7 --seed 1 --side 512"
)


@on_cluster()
def autoseg(
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders.")],
    boxes: Annotated[
        str,
        typer.Argument(
            help="CSV file with the columns image (path within IMAGES), x, y, width, height, in "
            "pixels of the upright photo. Several rows of one image: the union of the boxes."
        ),
    ],
    *,
    out: Annotated[str, typer.Option("--out", "-o", help="Folder for the masks.")],
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of GrabCut.")] = 5,
    jitter: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Displace the boxes at random: the IoU of each with the original is drawn from "
            "1 − jitter to 1.",
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of GrabCut and --jitter.")] = 0,
    side: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=8192,
            help="Longest side in pixels to which photos are scaled down: faster, less memory.",
        ),
    ] = None,
    on_error: OnErrorOption = OnError.RAISE,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
    client: Any,
) -> None:
    """Make rough masks from bounding boxes, by OpenCV's GrabCut: PNGs named after the photos.

    Use them with gpgc ingest to fit a model, and to find the masks that went wrong. Photos without
    a box get no mask. Masks are written as they are finished: after a crash or Ctrl-C, the same
    command with --resume continues. Runs one process per core by default. Requires
    pip install "gpgc_dask[grabcut]".
    """
    check_choice(resume=resume, overwrite=overwrite)
    check_output(folder=out)
    from gpgc_dask.pipelines.autoseg import autoseg as make_masks
    from gpgc_dask.pipelines.options import RunOptions

    with Display() as display:
        report = make_masks(
            images,
            boxes,
            out,
            iterations=iterations,
            jitter=jitter,
            seed=seed,
            side=side,
            run=RunOptions(resume, overwrite, on_error.value, display.work, client),
        )
    if json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: AutosegReport) -> None:
    earlier = f", {report.resumed:,} of them by an earlier run" if report.resumed else ""
    print_out(
        f"[bold]{escape(report.target)}[/bold]: masks of {report.images:,} images{earlier}, "
        f"in {time_text(report.elapsed)}"
    )
    if report.without_box:
        print_out(f"  {report.without_box:,} photos have no box, and no mask")
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
