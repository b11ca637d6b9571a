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
    data: Annotated[str, typer.Argument(help="Dataset of the model: a path or URL.")],
    model: Annotated[str, typer.Argument(help="The model, as gpgc fit made it: a path or URL.")],
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", help="The HTML file; replaced if it exists.")
    ] = "report.html",
    title: Annotated[str | None, typer.Option(help="Title. Default: name of the dataset.")] = None,
    json: Json = False,
) -> None:
    """Write a page that shows the images with their masks, predictions and numbers.

    One HTML file that opens in any browser and needs no network: the number of suspect masks,
    distributions, and a gallery in which images can be sorted, filtered and marked.
    """
    check_output(out)
    from gpgc_dask.core.text import bytes_text
    from gpgc_dask.models.fitted_dataset import open_fitted
    from gpgc_dask.models.persistence import load
    from gpgc_dask.results.report import write_report

    fitted = load(model)
    dataset = open_fitted(fitted, data)
    with Display() as display:
        summary = write_report(dataset, fitted, out, title=title, progress=display.work)
    if json:
        print_json(asdict(summary))
        return
    print_out(
        f"[bold]{escape(summary.path)}[/bold]: {summary.suspect:,} of {summary.images:,} masks are "
        f"suspect ({bytes_text(summary.bytes)})"
    )
    if summary.gone:
        note(f"{summary.gone:,} photos are not where they were at ingest, or have another size")
    if summary.changed:
        note(
            f"{summary.changed:,} masks have changed since ingest; the numbers are those of the "
            "old masks: ingest and fit again with --overwrite"
        )
