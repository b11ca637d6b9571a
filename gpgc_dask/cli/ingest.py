"""``gpgc ingest``."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.backbone_options import (
    FEATURES,
    Features,
    InputSide,
    Layer,
    to_backbone,
)
from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, note, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    MASKS,
    ClassTable,
    Foreground,
    Invert,
    Json,
    MaskSuffix,
    OnError,
    OnErrorOption,
    Overwrite,
    PhotoSuffix,
    Resume,
    SoftThreshold,
    Void,
    check_choice,
    check_classes,
    check_output,
    to_colour,
    to_numbers,
    to_stretch,
)
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.backbones import list_backbones
from gpgc_dask.imaging.mask_sources import MASK_SOURCES

if TYPE_CHECKING:
    from gpgc_dask.imaging.backbones import Backbone
    from gpgc_dask.pipelines.ingest import IngestReport, MaskOptions, Recipe

__all__ = ["EXAMPLE", "ingest"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc ingest photos/ masks/ -o horses.zarr\n\n"
    "gpgc ingest JPEGImages/ SegmentationClass/ -o voc.zarr --foreground 13 --void 255\n\n"
    "gpgc ingest VOC2012/ --category horse --category cow -o animals.zarr\n\n"
    "gpgc ingest train2017/ --coco instances_train2017.json --category horse -o coco.zarr\n\n"
    "gpgc ingest photos/ masks/ -o videos.zarr --group '^(.+)_' --annotator '_(.+)[.]'"
)

PHOTOS = "Reading photos"
ABOUT = "Groups and annotators"


class Dtype(StrEnum):
    """Types of stored features."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


@on_cluster()
def ingest(
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders.")],
    masks: Annotated[
        str | None,
        typer.Argument(
            help="Folder of masks, PNGs named as their photos, or a file or folder of annotations, "
            "see --format. May be omitted if IMAGES is the root of a YOLO or VOC dataset."
        ),
    ] = None,
    *,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="The dataset to write: a path, or a URL such as s3://…"),
    ],
    mask_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Format of MASKS: auto, {', '.join(MASK_SOURCES.names())}. Default: auto, the "
            "one that the files have; masks is a folder of mask files.",
            rich_help_panel=MASKS,
        ),
    ] = None,
    foreground: Foreground = None,
    classes: ClassTable = None,
    void: Void = None,
    threshold: SoftThreshold = None,
    invert: Invert = False,
    mask_suffix: MaskSuffix = "",
    photo_suffix: PhotoSuffix = "",
    write_classes: Annotated[
        str | None,
        typer.Option(
            help="Only write a FILE.csv of the values or colours of the masks, with names to be "
            "changed, for --classes.",
            metavar="FILE.csv",
            rich_help_panel=MASKS,
        ),
    ] = None,
    answers: Annotated[
        str,
        typer.Option(
            help="FILE.csv with columns mask,image[,annotator,date] that names the photo of each "
            "mask, for several masks per photo. With --format answers alone, masks are in "
            "subfolders named as their photos.",
            rich_help_panel=MASKS,
        ),
    ] = "",
    coco: Annotated[
        str | None,
        typer.Option(
            help="COCO instances file instead of MASKS; the same as FILE --format coco.",
            rich_help_panel=MASKS,
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            help="Category of the annotations to take; may be repeated, for several classes. all: "
            "every category that has outlines.",
            rich_help_panel=MASKS,
        ),
    ] = None,
    with_empty: Annotated[
        bool,
        typer.Option(
            "--with-empty/--without-empty",
            help="Include images without an annotation of the categories, where objects may be "
            "missing, or leave them out.",
            rich_help_panel=MASKS,
        ),
    ] = True,
    group: Annotated[
        str,
        typer.Option(
            help="Images that are judged without each other, such as frames of a video: a regular "
            "expression searched in image names (its first group is the value), or FILE.csv with "
            "columns image,group.",
            rich_help_panel=ABOUT,
        ),
    ] = "",
    annotator: Annotated[
        str,
        typer.Option(
            help="Who drew the mask, for rank --people: a regular expression, which may have "
            "groups (?P<annotator>…) and (?P<date>…), or FILE.csv with columns "
            "image,annotator[,date].",
            rich_help_panel=ABOUT,
        ),
    ] = "",
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"Source of the features: {list_backbones()}. Default: lite0, EfficientNet-Lite0, "
            "which is included; colour needs no network. gpgc info --backbone describes one.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    features: Features = None,
    layer: Layer = None,
    input_side: InputSide = None,
    mean: Annotated[
        str | None,
        typer.Option(
            help="RGB mean, of values 0 to 255, subtracted from the input of an ONNX network. "
            "Default: ImageNet's, or that of the model on the hub.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            help="RGB standard deviation by which the input of an ONNX network is divided. "
            "Default: ImageNet's, or that of the model on the hub.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    superpixels: Annotated[
        int | None,
        typer.Option(
            help="Approximate number per image. Default: 300, and 500 with more than two classes.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    compactness: Annotated[
        float,
        typer.Option(
            help="Compactness of SLIC superpixels; larger values make them squarer.",
            rich_help_panel=FEATURES,
        ),
    ] = 20.0,
    side: Annotated[
        int,
        typer.Option(
            help="Longest side in pixels to which photos are scaled down. Superpixels are computed "
            "at half of it.",
            rich_help_panel=FEATURES,
        ),
    ] = 512,
    dtype: Annotated[
        Dtype, typer.Option(help="Type of the stored features.", rich_help_panel=FEATURES)
    ] = Dtype.FLOAT32,
    stretch: Annotated[
        str,
        typer.Option(
            help="Values of 16-bit, 32-bit and float photos that become black and white: "
            "percentiles 0.1 and 99.9 of the dataset or of each image, none (the full scale of the "
            "type), or two values such as 0,4095. Photos of 8 bits stay as they are.",
            metavar="dataset|image|none|LOW,HIGH",
            rich_help_panel=PHOTOS,
        ),
    ] = "dataset",
    bands: Annotated[
        str | None,
        typer.Option(
            help="Bands, from 1, that are used as red, green and blue, such as 4,3,2, or one as "
            "grey. Default: the first three, or the first.",
            rich_help_panel=PHOTOS,
        ),
    ] = None,
    page: Annotated[
        int,
        typer.Option(min=1, help="Page to use of TIFFs with several.", rich_help_panel=PHOTOS),
    ] = 1,
    tile: Annotated[
        int,
        typer.Option(
            help="Cut larger photos into tiles of at most this many pixels per side, each of which "
            "is an image; the tiles of a scene are a group. 0: do not cut.",
            rich_help_panel=PHOTOS,
        ),
    ] = 0,
    overlap: Annotated[
        int,
        typer.Option(help="Pixels that neighbouring tiles share.", rich_help_panel=PHOTOS),
    ] = 0,
    on_error: OnErrorOption = OnError.RAISE,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
    client: Any,
) -> None:
    """Make a dataset of a folder of images and their masks.

    Divides each photo into superpixels, labels each by the majority of its pixels in the mask, and
    computes its features: those of a network, the position and a constant. Finished images are
    kept: after a crash or Ctrl-C, the same command with --resume continues. Runs one process per
    core by default.
    """
    check_choice(resume=resume, overwrite=overwrite)
    check_output(folder=out, urls=True)
    _check_coco(masks, coco, mask_format)
    colours = {"mean": to_colour(mean, "--mean"), "std": to_colour(std, "--std")}
    backbone_options = {"layers": layer, "side": input_side, **colours}
    from gpgc_dask.imaging.photo_format import PhotoFormat
    from gpgc_dask.pipelines.ingest import ImageInfo, MaskOptions, Recipe, RunOptions
    from gpgc_dask.pipelines.ingest import ingest as ingest_images

    masks_as = MaskOptions(
        format=mask_format or ("coco" if coco else "auto"),
        suffix=mask_suffix,
        photo_suffix=photo_suffix,
        foreground=to_numbers(foreground, "--foreground"),
        classes=check_classes(classes),
        void=to_numbers(void, "--void"),
        threshold=threshold,
        invert=invert,
        categories=category or (),
        with_empty=with_empty,
        answers=answers,
    )
    place, masks_as = _recognise(images, masks or coco, masks_as)
    if write_classes:
        _write_classes(images, place, masks_as, write_classes)
        return

    def recipe() -> Recipe:
        network = _find_network(backbone, features, images, layer, backbone_options)
        return Recipe(
            network,
            superpixels=superpixels,
            compactness=compactness,
            side=side,
            dtype=dtype.value,
            photos=PhotoFormat(
                stretch=to_stretch(stretch),
                bands=tuple(to_numbers(bands, "--bands")),
                page=page,
                tile=tile,
                overlap=overlap,
            ),
        )

    with Display() as display:
        report = ingest_images(
            images,
            place,
            out,
            recipe=recipe,
            masks_as=masks_as,
            info=ImageInfo(group, annotator),
            run=RunOptions(resume, overwrite, on_error.value, display.work, client),
        )
    if json:
        print_json(asdict(report))
    else:
        _show(report)


def _check_coco(masks: str | None, coco: str | None, mask_format: str | None) -> None:
    """Raise an InputError if --coco is given with other masks or another format."""
    if masks is not None and coco is not None:
        raise InputError("--coco excludes MASKS: name one of them")
    if coco is not None and mask_format not in (None, "coco"):
        raise InputError(f"--coco excludes --format {mask_format}: choose one")


def _recognise(images: str, masks: str | None, options: MaskOptions) -> tuple[str, MaskOptions]:
    """The masks and their format, which a note describes unless the user has named it."""
    if options.format != "auto":
        return masks or images, options
    from gpgc_dask.imaging.mask_sources import recognise

    found = recognise(images, masks or images, options)
    if masks is None and not found.title:
        raise InputError("name the masks: a folder, a file with its --format, or --coco FILE")
    if found.title:
        note(f"{found.masks} is read as {found.title} (--format {found.format})")
    return found.masks, replace(options, format=found.format)


def _find_network(
    backbone: str | None,
    features: str | None,
    images: str,
    layers: list[str] | None,
    options: dict[str, Any],
) -> Backbone:
    """The source of the features; the layers that were chosen for the user are printed."""
    from gpgc_dask.imaging.backbones import find_backbone

    network = find_backbone(to_backbone(backbone, features, images, **options) or "lite0")
    if layers is None and backbone not in (None, "lite0") and network.layer_names():
        note(f"features of {backbone}: {', '.join(network.layer_names())} (--layer chooses others)")
    return network


def _write_classes(images: str, masks: str, options: MaskOptions, file: str) -> None:
    """Write a file of the values or colours of the masks."""
    from gpgc_dask.pipelines.mask_check import propose_classes
    from gpgc_dask.storage.location import write_whole

    check_output(file)
    content, found = propose_classes(images, masks, options)
    write_whole(Path(file), content.encode())
    print_out(
        f"[bold]{escape(file)}[/bold]: {len(content.splitlines()) - 1} classes. {escape(found)}.",
        "Change the names in it (void for what has no class), and give the same command with "
        f"--classes {escape(quote(file))} in place of --write-classes",
    )


def _show(report: IngestReport) -> None:
    earlier = f", {report.resumed:,} of them by an earlier run" if report.resumed else ""
    print_out(
        f"[bold]{escape(report.target)}[/bold]: {report.images:,} images{earlier}; "
        f"{report.superpixels:,} superpixels × {report.features:,} features, "
        f"in {time_text(report.elapsed)}"
    )
    print_out(f"  Found: {escape(report.found)}")
    for text in report.notes:
        print_out(f"  {escape(text)}")
    if report.objects:
        print_out(
            f"  {report.objects:,} annotations; {report.without_objects:,} images have none: "
            "candidates for missing objects"
        )
    for flag, count in report.flagged.items():
        print_out(f"  {count:,} images flagged: {flag}")
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
    print_out(f"Look at it with: gpgc info {escape(quote(report.target))}")
