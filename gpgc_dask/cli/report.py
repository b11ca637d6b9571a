"""``gpgc report``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import note, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import Json, check_output

__all__ = ["EXAMPLE", "report"]

EXAMPLE = "Example:\n\ngpgc report horses.zarr model.zarr -o report.html"


def report(
    data: Annotated[str, typer.Argument(help="The dataset of the model: a path or URL.")],
    model: Annotated[str, typer.Argument(help="The model, as gpgc fit made it: a path or URL.")],
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", help="The page: one HTML file, replaced if it is there.")
    ] = "report.html",
    title: Annotated[str | None, typer.Option(help="Default: the dataset's name.")] = None,
    json: Json = False,
) -> None:
    """Show the images with their masks, the predictions made without them, and the numbers.

    One file that opens in any browser from disk and loads nothing from elsewhere: how many masks
    are suspect, distributions, and a gallery to sort, filter and mark images in.
    """
    check_output(out)
    from gpgc_dask.core.text import bytes_text
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.models.persistence import load
    from gpgc_dask.results.report import write_report

    dataset, fitted = open_dataset(data), load(model)
    with Display() as display:
        found = write_report(dataset, fitted, out, title=title, progress=display.work)
    if json:
        print_json(asdict(found))
        return
    print_out(
        f"[bold]{escape(found.path)}[/bold]: {found.suspect:,} of {found.images:,} masks are "
        f"suspect ({bytes_text(found.bytes)})"
    )
    if found.gone:
        note(f"{found.gone:,} photos are no longer where they were at ingest, or of another size")
    if found.changed:
        note(
            f"{found.changed:,} masks have changed since ingest, and their numbers are those of "
            "then: ingest and fit again with --overwrite"
        )
