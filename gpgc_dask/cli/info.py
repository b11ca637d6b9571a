"""``gpgc info``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.backbone_options import InputSide, Layer, describe_backbone
from gpgc_dask.cli.console import facts, listing, print_json, print_out
from gpgc_dask.imaging.backbones import list_backbones

__all__ = ["EXAMPLE", "info"]

EXAMPLE = "Examples:\n\ngpgc info horses.zarr\n\ngpgc info --backbone network.onnx --input-side 518"


def info(
    data: Annotated[
        str | None, typer.Argument(help="Dataset: a path, or a URL such as s3://…")
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(help="Model of this dataset: also show which classes it confuses."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"Describe a source of features in place of a dataset: {list_backbones()}."
        ),
    ] = None,
    layer: Layer = None,
    input_side: InputSide = None,
    side: Annotated[
        int, typer.Option(help="With --backbone: side in pixels of a square photo.")
    ] = 512,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Describe a dataset: sizes, classes, flagged images, skipped files and provenance.

    With --model, also a table of the pixels of each given class by the class that is predicted
    for them without their image. With --backbone instead of a dataset: the layers of a network,
    their channels, sizes and strides.
    """
    if (data is None) == (backbone is None):
        raise typer.BadParameter("name a dataset, or a network with --backbone")
    if backbone is not None:
        describe_backbone(backbone, side, json=json, layers=layer, input_side=input_side)
        return
    assert data is not None
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.data.summary import summary

    dataset = open_dataset(data)
    content = summary(dataset)
    if model is not None:
        from gpgc_dask.models.fitted_dataset import open_fitted
        from gpgc_dask.models.persistence import load
        from gpgc_dask.results.ranking import confusion

        fitted = load(model)
        content["confusion"] = confusion(fitted, open_fitted(fitted, data))
    if json:
        print_json(content)
    else:
        _show(data, content)


def _show(data: str, content: dict[str, Any]) -> None:
    per_image = content["superpixels_per_image"]
    rows: list[tuple[str, Any]] = [
        ("images", f"{content['images']:,}"),
        (
            "superpixels",
            f"{content['superpixels']:,}, {per_image['mean']:.0f} per image "
            f"({per_image['min']} … {per_image['max']})",
        ),
        ("features", ", ".join(f"{n:,} {name}" for name, n in content["features"].items())),
        ("stored as", f"{content['dtype']}, blocks of {content['block_rows']:,} rows"),
        *_source(content["source"]),
        ("backbone", _pairs(content["backbone"]).removeprefix("name ")),
        ("recipe", _pairs(content["recipe"])),
        ("made with", _pairs(content["versions"])),
    ]
    print_out(f"[bold]{escape(data)}[/bold]", facts(rows))
    classes = [
        (c["name"], c["value"], f"{100 * c['superpixels']:.1f} %", f"{100 * c['pixels']:.1f} %")
        for c in content["classes"]
    ]
    columns = ["class", "mask value", "of superpixels", "of pixels"]
    print_out(listing("Labels", columns, classes))
    if content["void"]:
        print_out(f"  {100 * content['void']:.1f} % of superpixels are void: no weight in training")
    if content["flagged"]:
        flagged = [
            (flag, f"{len(names):,}", ", ".join(names[:3]) + (" …" if len(names) > 3 else ""))
            for flag, names in content["flagged"].items()
        ]
        print_out(listing("Flagged images", ["flag", "images", "such as"], flagged))
    if "confusion" in content:
        _show_confusion(**content["confusion"])
    if content["skipped"]:
        skipped = [(one["name"], one["reason"]) for one in content["skipped"]]
        print_out(listing(f"{len(skipped):,} files skipped", ["file", "why"], skipped))


def _show_confusion(classes: list[str], pixels: list[list[int]]) -> None:
    rows = [
        (name, *(f"{100 * count / max(sum(counts), 1):.1f}" for count in counts))
        for name, counts in zip(classes, pixels, strict=True)
    ]
    print_out(listing("Predicted classes", ["given, in %", *classes], rows, limit=len(rows)))


def _source(source: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where the masks are from, and how they were read; only settings that are set."""
    for name, value in source.items():
        is_several = isinstance(value, dict)
        text = _pairs({key: v for key, v in value.items() if v}) if is_several else value
        default = "0 and one other value" if name == "mask_format" else ""
        if text or default:
            yield f"source: {name}", text or default


def _pairs(values: dict[str, Any]) -> str:
    """Names and values in one line; digests are shortened."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return "+".join(map(str, value))
        if isinstance(value, dict):
            return _pairs({name: v for name, v in value.items() if v})
        return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)

    return ", ".join(f"{name} {text(value)}" for name, value in values.items())
