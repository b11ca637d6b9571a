"""``gpgc ingest``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    MASKS,
    Classes,
    Foreground,
    Json,
    MaskSuffix,
    OnError,
    OnErrorOption,
    Overwrite,
    Resume,
    SoftThreshold,
    Void,
    check_choice,
    check_output,
    to_classes,
    to_colour,
    to_numbers,
)

if TYPE_CHECKING:
    from gpgc_dask.pipelines.ingest import IngestReport

__all__ = ["EXAMPLE", "ingest"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc ingest photos/ masks/ -o horses.zarr\n\n"
    "gpgc ingest JPEGImages/ SegmentationClass/ -o voc.zarr --foreground 13 --void 255\n\n"
    "gpgc ingest train2017/ --coco instances_train2017.json --category horse -o coco.zarr"
)

FEATURES = "Superpixels and features"


class Dtype(StrEnum):
    """Types that features are stored in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


@on_cluster()
def ingest(
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders.")],
    masks: Annotated[
        str | None,
        typer.Argument(help="Folder of masks: PNGs named as their photos. Or use --coco."),
    ] = None,
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", help="The dataset: a path, or a URL such as s3://…")
    ],
    foreground: Foreground = None,
    classes: Classes = None,
    void: Void = None,
    threshold: SoftThreshold = None,
    mask_suffix: MaskSuffix = "",
    coco: Annotated[
        str | None,
        typer.Option(help="COCO instances file instead of masks.", rich_help_panel=MASKS),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            help="Category of the COCO file to take; several become classes of their own.",
            rich_help_panel=MASKS,
        ),
    ] = None,
    with_empty: Annotated[
        bool,
        typer.Option(
            "--with-empty",
            help="Keep the COCO file's images that show none of the categories, too.",
            rich_help_panel=MASKS,
        ),
    ] = False,
    backbone: Annotated[
        str,
        typer.Option(
            help="lite0 (EfficientNet-Lite0, comes along), colour (no network) or FILE.onnx.",
            rich_help_panel=FEATURES,
        ),
    ] = "lite0",
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="Output or inner tensor of FILE.onnx to pool; may be given several times.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    input_side: Annotated[
        int | None,
        typer.Option(
            help="Longest side of the image that FILE.onnx sees; default 512, or what it fixes.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            help="RGB mean, of 0 to 255, that FILE.onnx wants subtracted; default ImageNet's.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            help="RGB deviation that FILE.onnx wants its input divided by.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    superpixels: Annotated[
        int, typer.Option(help="About how many an image.", rich_help_panel=FEATURES)
    ] = 150,
    compactness: Annotated[
        float, typer.Option(help="Of SLIC: larger is squarer.", rich_help_panel=FEATURES)
    ] = 20.0,
    side: Annotated[
        int,
        typer.Option(
            help="Longest side in pixels at which superpixels are made; larger photos are scaled.",
            rich_help_panel=FEATURES,
        ),
    ] = 512,
    dtype: Annotated[
        Dtype, typer.Option(help="Of the stored features.", rich_help_panel=FEATURES)
    ] = Dtype.FLOAT32,
    on_error: OnErrorOption = OnError.RAISE,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
    client: Any,
) -> None:
    """Make a dataset of a folder of images and a folder of masks.

    Cuts each photo into superpixels, labels them by the mask's majority, and computes features of
    each: a network's, the position and a constant. Work is kept as it is done: after a crash or
    Ctrl-C, the same command with --resume goes on. Runs on one process a core by default.
    """
    check_choice(resume=resume, overwrite=overwrite)
    check_output(folder=out, urls=True)
    options = {
        "side": input_side,
        "mean": to_colour(mean, "--mean"),
        "std": to_colour(std, "--std"),
    }
    from gpgc_dask.pipelines.ingest import ingest as ingest_images

    with Display() as display:
        report = ingest_images(
            images,
            masks,
            out,
            coco=coco,
            categories=category or (),
            with_empty=with_empty,
            mask_suffix=mask_suffix,
            foreground=to_numbers(foreground, "--foreground"),
            classes=to_classes(classes),
            void=to_numbers(void, "--void"),
            threshold=threshold,
            backbone=backbone,
            layers=layer or (),
            backbone_options={k: value for k, value in options.items() if value is not None},
            superpixels=superpixels,
            compactness=compactness,
            side=side,
            dtype=dtype.value,
            resume=resume,
            overwrite=overwrite,
            on_error=on_error.value,
            progress=display.work,
            client=client,
        )
    if json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: IngestReport) -> None:
    earlier = f", {report.resumed:,} of them by an earlier run" if report.resumed else ""
    print_out(
        f"[bold]{escape(report.target)}[/bold]: {report.images:,} images{earlier}; "
        f"{report.superpixels:,} superpixels × {report.features:,} features, "
        f"in {time_text(report.elapsed)}"
    )
    for flag, count in report.flagged.items():
        print_out(f"  {count:,} images flagged: {flag}")
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
    print_out(f"Look at it with: gpgc info {escape(quote(report.target))}")
