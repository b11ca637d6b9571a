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


@on_cluster(only=("workers",))
def demo(
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Folder for all of it; an earlier demo is replaced.")
    ] = "gpgc-demo",
    images: Annotated[int, typer.Option(min=30, help="How many to draw.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Another number, other images.")] = 0,
    backbone: Annotated[
        str, typer.Option(help="lite0 or colour, as for ingest.", rich_help_panel=RUNNING)
    ] = "lite0",
    json: Json = False,
    client: Any,
) -> None:
    """Do the whole job on images it draws itself: a third of the masks are spoilt, and found.

    Draws photo-like scenes with masks, spoils a third of the masks the way people and tools do
    (shifted, dilated, a box, the wrong object, empty, another image's), then runs ingest, fit,
    rank and report and says how many of the spoilt masks are among the worst third.
    """
    check_output(folder=out)
    from gpgc_dask.demo.run import DemoListener, run_demo

    with Display() as display:
        found = run_demo(
            out,
            n=images,
            seed=seed,
            backbone=backbone,
            listener=DemoListener(display.say, display.work, display.fit),
            client=client,
        )
    if json:
        print_json(asdict(found))
    else:
        _show(found)


def _show(found: DemoResult) -> None:
    print_out(
        f"[bold]{found.found} of the {found.spoilt} spoilt masks are among the worst third[/bold] "
        f"of the {found.images} images by agreement"
    )
    rows = [(kind, f"{hit} of {of}") for kind, (hit, of) in found.kinds.items()]
    print_out(facts(rows))
    print_out(
        f"Pixels right, classes averaged, against the true masks: {100 * found.given_accuracy:.1f} "
        f"% of the given masks, {100 * found.learned_accuracy:.1f} % of those the model predicts "
        "after learning from them"
    )
    print_out(f"Took {time_text(sum(found.seconds.values()))}. Now look at it:")
    print_out(escape(Path(found.report).absolute().as_uri()))
