"""``gpgc update``."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.backbone_options import Features, PresentBackbone, to_backbone
from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import MASKS, Json, OnError, OnErrorOption, check_output

if TYPE_CHECKING:
    from gpgc_dask.pipelines.update import UpdateReport

__all__ = ["EXAMPLE", "update"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc update horses.zarr photos/ masks/\n\n"
    "gpgc update horses.zarr photos/ masks/ --prune --json\n\n"
    "gpgc update coco.zarr train2017/ instances_train2017.json"
)

ABOUT = "Groups and annotators"


@on_cluster()
def update(
    data: Annotated[str, typer.Argument(help="Dataset that gpgc ingest has written: path or URL.")],
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders.")],
    masks: Annotated[
        str, typer.Argument(help="Folder or file of masks, in the format of the dataset.")
    ],
    *,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Remove images from the dataset whose photo or mask is gone. Default: they are "
            "kept, and listed.",
        ),
    ] = False,
    answers: Annotated[
        str,
        typer.Option(
            help="FILE.csv that names the photo of each mask, as of gpgc ingest. Default: that of "
            "the dataset.",
            rich_help_panel=MASKS,
        ),
    ] = "",
    group: Annotated[
        str,
        typer.Option(
            help="Images that are judged without each other, as of gpgc ingest: a regular "
            "expression or FILE.csv. Default: as in the dataset.",
            rich_help_panel=ABOUT,
        ),
    ] = "",
    annotator: Annotated[
        str,
        typer.Option(
            help="Who drew the mask, as of gpgc ingest: a regular expression or FILE.csv. Default: "
            "as in the dataset.",
            rich_help_panel=ABOUT,
        ),
    ] = "",
    backbone: PresentBackbone = None,
    features: Features = None,
    on_error: OnErrorOption = OnError.RAISE,
    json: Json = False,
    client: Any,
) -> None:
    """Bring a dataset up to date: add new photos, and read changed masks again.

    Features are computed for new photos only, with the settings of the dataset. Images whose files
    are gone are listed, and removed with --prune. The dataset changes completely or not at all:
    after a crash or Ctrl-C, the same command continues. A model fitted before has to be fitted
    again. Runs one process per core by default.
    """
    check_output(folder=data, urls=True)
    from gpgc_dask.pipelines.ingest import ImageInfo, RunOptions
    from gpgc_dask.pipelines.update import update as update_dataset

    with Display() as display:
        report = update_dataset(
            data,
            images,
            masks,
            info=ImageInfo(group, annotator),
            answers=answers,
            backbone=to_backbone(backbone, features, images),
            prune=prune,
            run=RunOptions(on_error=on_error.value, progress=display.work, client=client),
        )
    if json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: UpdateReport) -> None:
    target = f"[bold]{escape(report.target)}[/bold]"
    counts = f"{report.unchanged:,} unchanged"
    if report.changed:
        again = f" ({report.replaced:,} of them changed photos)" if report.replaced else ""
        counts = f"{report.new:,} new{again}, {report.relabelled:,} relabelled, {counts}"
        counts += f", {report.removed:,} removed" if report.removed else ""
        target += f": {report.images:,} images"
    else:
        target += ": nothing has changed"
    print_out(f"{target}; {counts}, in {time_text(report.elapsed)}")
    if report.vanished:
        done = "removed" if report.removed else "kept; --prune removes them"
        rows = [(problem.name, problem.reason) for problem in report.vanished]
        title = f"{len(rows):,} images without photo or mask ({done})"
        print_out(listing(title, ["image", "why"], rows))
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
    if report.changed:
        name = escape(quote(report.target))
        print_out(f"Fit a model on it with: gpgc fit {name} -o MODEL.zarr --overwrite")
