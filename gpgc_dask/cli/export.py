"""``gpgc export``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import note, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import By, ByOption, Json, ModelArgument, check_choice, check_output

__all__ = ["EXAMPLE", "export"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc export model.zarr --to label-studio -o tasks.json --worst 50\n\n"
    "gpgc export model.zarr --to cvat -o worst.xml --worst 10%\n\n"
    "gpgc export model.zarr --to fiftyone -o horses.json --data horses.zarr\n\n"
    "gpgc export model.zarr --to cleanlab -o scores.npz"
)

LABEL_STUDIO = "Label Studio"


class Tool(StrEnum):
    """What images can be handed to."""

    LABEL_STUDIO = "label-studio"
    CVAT = "cvat"
    FIFTYONE = "fiftyone"
    CLEANLAB = "cleanlab"


def export(
    model: ModelArgument,
    *,
    to: Annotated[Tool, typer.Option(help="The tool that is to read the file.")],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="The file: .json, of cvat .xml, of cleanlab .npz; replaced if there.",
        ),
    ],
    worst: Annotated[
        str | None, typer.Option(help="The least reliable: a number as 50, or a share as 10%.")
    ] = None,
    below: Annotated[
        float | None, typer.Option(help="All with less agreement (or confidence) than this.")
    ] = None,
    by: ByOption = By.AGREEMENT,
    data: Annotated[
        str | None,
        typer.Option(
            help="The dataset of the model, a path or URL: adds what is predicted of each image by "
            "a model that never saw it. Not for cvat."
        ),
    ] = None,
    document_root: Annotated[
        str | None,
        typer.Option(
            help="The folder that Label Studio serves files from. Default: the one that the "
            "photos' folder lies in.",
            rich_help_panel=LABEL_STUDIO,
        ),
    ] = None,
    image_prefix: Annotated[
        str | None,
        typer.Option(
            help="A URL below which Label Studio finds the photos, instead.",
            rich_help_panel=LABEL_STUDIO,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Hand the images over to another tool, worst first, to be looked at and mended there.

    The photos stay where they are. The file holds their masks, rank, agreement, confidence and
    flags: tasks for Label Studio, annotations for CVAT, a dataset for FiftyOne, scores for
    cleanlab; what else the tool needs (labels, masks) is written beside it. docs/interop.md has the
    steps in each tool.
    """
    check_choice(worst=worst, below=below is not None)
    check_choice(document_root=document_root, image_prefix=image_prefix)
    check_output(out)
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.models.persistence import load
    from gpgc_dask.results.export import export as hand_over

    fitted = load(model)
    dataset = None if data is None else open_dataset(data)
    with Display() as display:
        found = hand_over(
            fitted,
            out,
            to.value,
            count=worst,
            below=below,
            by=by.value,
            dataset=dataset,
            document_root=document_root,
            image_prefix=image_prefix,
            progress=display.work,
        )
    if json:
        print_json(asdict(found))
        return
    first, *others = found.files
    print_out(f"[bold]{escape(first)}[/bold]: {found.images:,} of {found.of:,} images")
    if others:
        print_out(f"Beside it: {', '.join(map(escape, others))}")
    if found.left_out:
        gone = found.left_out[0]
        note(
            f"{len(found.left_out):,} images are left out, as their photo or mask cannot be read "
            f"any more, such as {gone.name}: {gone.reason}"
        )
