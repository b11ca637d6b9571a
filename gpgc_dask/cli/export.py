"""``gpgc export``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import note, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import By, ByOption, Json, ModelArgument, check_choice, check_output
from gpgc_dask.results.export.registry import EXPORTS

__all__ = ["EXAMPLE", "export"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc export model.zarr --to label-studio -o tasks.json --worst 50\n\n"
    "gpgc export model.zarr --to cvat -o worst.xml --worst 10%\n\n"
    "gpgc export model.zarr --to fiftyone -o horses.json --data horses.zarr\n\n"
    "gpgc export model.zarr --to coco -o scored.json\n\n"
    "gpgc export model.zarr --to cleanlab -o scores.npz"
)

LABEL_STUDIO = "Label Studio"


def export(
    model: ModelArgument,
    *,
    to: Annotated[str, typer.Option(help=f"Format of the file: {', '.join(EXPORTS.names())}.")],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="The file, .json, .xml for cvat or .npz for cleanlab; replaced if it exists.",
        ),
    ],
    worst: Annotated[
        str | None,
        typer.Option(
            help="Export the least reliable: a number such as 50, or a share such as 10%."
        ),
    ] = None,
    below: Annotated[
        float | None, typer.Option(help="Export all of a lower quality (or --by) than this.")
    ] = None,
    by: ByOption = By.QUALITY,
    data: Annotated[
        str | None,
        typer.Option(
            help="The dataset of the model, a path or URL: adds the prediction of a model that "
            "never saw the image. Not for cvat and coco."
        ),
    ] = None,
    document_root: Annotated[
        str | None,
        typer.Option(
            help="Folder that Label Studio serves files from. Default: the parent of the folder of "
            "photos.",
            rich_help_panel=LABEL_STUDIO,
        ),
    ] = None,
    image_prefix: Annotated[
        str | None,
        typer.Option(
            help="URL below which Label Studio finds the photos, instead of --document-root.",
            rich_help_panel=LABEL_STUDIO,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Export the images to another tool, worst first, to look at them and correct them there.

    The photos stay where they are. The file holds their masks and the columns of the ranking: tasks
    for Label Studio, annotations for CVAT, a dataset for FiftyOne, scores for cleanlab, or a COCO
    file with a score per annotation and proposals for missing ones. Other files
    that the tool needs (labels, masks) are written next to it. docs/interop.md describes the steps
    in each tool.
    """
    check_choice(worst=worst, below=below is not None)
    check_choice(document_root=document_root, image_prefix=image_prefix)
    check_output(out)
    if to not in EXPORTS:
        raise typer.BadParameter(f"{to!r} is not one of {', '.join(EXPORTS)}", param_hint="--to")
    from gpgc_dask.models.fitted_dataset import open_fitted
    from gpgc_dask.models.persistence import load
    from gpgc_dask.results.export import export as export_ranking

    options = {"document_root": document_root, "image_prefix": image_prefix}
    fitted = load(model)
    dataset = None if data is None else open_fitted(fitted, data)
    with Display() as display:
        report = export_ranking(
            fitted,
            out,
            to,
            count=worst,
            below=below,
            by=by.value,
            dataset=dataset,
            progress=display.work,
            **{name: value for name, value in options.items() if value is not None},
        )
    if json:
        print_json(asdict(report))
        return
    first, *others = report.files
    print_out(f"[bold]{escape(first)}[/bold]: {report.images:,} of {report.of:,} images")
    if others:
        print_out(f"Next to it: {', '.join(map(escape, others))}")
    if report.left_out:
        gone = report.left_out[0]
        note(
            f"{len(report.left_out):,} images are left out because their photo or mask cannot be "
            f"read any more, such as {gone.name}: {gone.reason}"
        )
