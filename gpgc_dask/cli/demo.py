"""``gpgc demo``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import facts, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import RUNNING, Json, check_output

if TYPE_CHECKING:
    from gpgc_dask.demo.run import DemoResult

__all__ = ["EXAMPLE", "demo"]

EXAMPLE = "Example:\n\ngpgc demo --out try-it"


@on_cluster(only=("workers",), always=False)
def demo(
    *,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="Folder for the results; replaces an earlier demo."),
    ] = "gpgc-demo",
    images: Annotated[int, typer.Option(min=30, help="Number of images to draw.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the images.")] = 0,
    backbone: Annotated[
        str, typer.Option(help="lite0 or colour, as for ingest.", rich_help_panel=RUNNING)
    ] = "lite0",
    json: Json = False,
    client: Any,
) -> None:
    """Show how corrupted masks are found, on images that the program draws.

    Draws photo-like scenes with masks, corrupts a third of the masks as annotators and tools do
    (shifted, dilated, a box, the wrong object, empty, left over from another image), then runs
    ingest, fit, rank and report and prints how many corrupted masks are in the worst third.
    """
    check_output(folder=out)
    from gpgc_dask.demo.run import DemoListener, run_demo

    with Display() as display:
        result = run_demo(
            out,
            n=images,
            seed=seed,
            backbone=backbone,
            listener=DemoListener(display.print_line, display.work, display.fit),
            client=client,
        )
    if json:
        print_json(asdict(result))
    else:
        _show(result)


def _show(result: DemoResult) -> None:
    print_out(
        f"[bold]{result.found} of the {result.corrupted} corrupted masks are among the worst "
        f"third[/bold] of the {result.images} images by quality"
    )
    rows = [(kind, f"{hit} of {of}") for kind, (hit, of) in result.kinds.items()]
    print_out(facts(rows))
    print_out(
        "Average class accuracy in pixels, compared with the true masks: "
        f"{100 * result.given_accuracy:.1f} % for the given masks, "
        f"{100 * result.learned_accuracy:.1f} % for the masks that the model predicts"
    )
    print_out(f"Took {time_text(sum(result.seconds.values()))}. Open the report:")
    print_out(escape(Path(result.report).absolute().as_uri()))
