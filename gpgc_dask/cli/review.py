"""``gpgc review``."""

from __future__ import annotations

import tempfile
import webbrowser
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import note, print_out
from gpgc_dask.cli.options import check_output

__all__ = ["EXAMPLE", "review"]

EXAMPLE = "Example:\n\ngpgc review horses.zarr model.zarr"


class ReviewOrder(StrEnum):
    """Orders in which images are looked at."""

    QUALITY = "quality"
    AGREEMENT = "agreement"
    CONFIDENCE = "confidence"
    OBJECTS = "objects"


def review(
    data: Annotated[str, typer.Argument(help="Dataset of the model: a path or URL.")],
    model: Annotated[str, typer.Argument(help="The model, as gpgc fit made it: a path or URL.")],
    *,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port. Default: 8765, or another one if it is taken."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen at. Default: this machine only. 0.0.0.0 lets others in the "
            "network in who have the address with its token; it is not encrypted."
        ),
    ] = "127.0.0.1",
    by: Annotated[
        ReviewOrder,
        typer.Option(
            help="Order: worst images by quality, agreement or confidence, or the images with the "
            "most suspicious objects and regions first. The page can change it."
        ),
    ] = ReviewOrder.QUALITY,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    refit_to: Annotated[
        str | None,
        typer.Option(
            help="Model that the button Fit again writes: a path or URL. Default: a temporary one."
        ),
    ] = None,
) -> None:
    """Look at the worst masks in the browser, and confirm, reject or correct them.

    Verdicts are kept in the dataset, and the next gpgc fit uses them. Several people can review at
    the same time. Ctrl-C stops the server; nothing is lost, the next gpgc review continues.
    """
    check_output(folder=refit_to, urls=True)
    from gpgc_dask.review.refit import make_refit
    from gpgc_dask.review.server import ReviewServer, is_loopback, serve_review
    from gpgc_dask.review.state import Review

    with tempfile.TemporaryDirectory(prefix="gpgc-review-") as folder:
        state = Review(
            data,
            model,
            order=by.value,
            refit=make_refit(data, model, folder=folder, target=refit_to),
        )
        server = ReviewServer(state, host=host, port=port)
        if not is_loopback(host):
            note(
                f"others in the network can reach {host}: give the address with its token only to "
                "those who may see the photos and decide. The connection is not encrypted"
            )
        print_out(f"Review {escape(data)} at [bold]{escape(server.url)}[/bold]", "Stop it: Ctrl-C")
        serve_review(server, lambda: _open(server.url, wanted=browser))


def _open(url: str, *, wanted: bool) -> None:
    if wanted and not webbrowser.open(url):
        note("no browser was found: open the address above yourself")
