"""``gpgc info``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import facts, listing, print_json, print_out

__all__ = ["EXAMPLE", "info"]

EXAMPLE = "Example:\n\ngpgc info horses.zarr"


def info(
    data: Annotated[str, typer.Argument(help="The dataset: a path, or a URL such as s3://…")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say what is in a dataset: sizes, classes, flags, what was skipped, where it came from."""
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.data.summary import summary

    found = summary(open_dataset(data))
    if json:
        print_json(found)
    else:
        _show(data, found)


def _show(data: str, found: dict[str, Any]) -> None:
    per_image = found["superpixels_per_image"]
    rows: list[tuple[str, Any]] = [
        ("images", f"{found['images']:,}"),
        (
            "superpixels",
            f"{found['superpixels']:,}, {per_image['mean']:.0f} an image "
            f"({per_image['min']} … {per_image['max']})",
        ),
        ("features", ", ".join(f"{n:,} {name}" for name, n in found["features"].items())),
        ("stored as", f"{found['dtype']}, blocks of {found['block_rows']:,} rows"),
        *((f"source: {name}", _told(value)) for name, value in found["source"].items()),
        ("backbone", _pairs(found["backbone"]).removeprefix("name ")),
        ("recipe", _pairs(found["recipe"])),
        ("made with", _pairs(found["versions"])),
    ]
    print_out(f"[bold]{escape(data)}[/bold]", facts(rows))
    classes = [
        (c["name"], c["value"], f"{100 * c['superpixels']:.1f} %", f"{100 * c['pixels']:.1f} %")
        for c in found["classes"]
    ]
    columns = ["class", "mask value", "of superpixels", "of pixels"]
    print_out(listing("Labels", columns, classes))
    if found["void"]:
        print_out(f"  {100 * found['void']:.1f} % of superpixels are void: no weight in training")
    if found["flagged"]:
        flagged = [
            (flag, f"{len(names):,}", ", ".join(names[:3]) + (" …" if len(names) > 3 else ""))
            for flag, names in found["flagged"].items()
        ]
        print_out(listing("Flagged images", ["flag", "images", "such as"], flagged))
    if found["skipped"]:
        skipped = [(one["name"], one["reason"]) for one in found["skipped"]]
        print_out(listing(f"{len(skipped):,} files skipped", ["file", "why"], skipped))


def _told(value: Any) -> Any:
    """A setting; of several, those that were made."""
    if isinstance(value, dict):
        return _pairs({name: v for name, v in value.items() if v}) or "0 and one other value"
    return value


def _pairs(values: dict[str, Any]) -> str:
    """Names and values in a line; digests by their first digits."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return "+".join(map(str, value))
        return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)

    return ", ".join(f"{name} {text(value)}" for name, value in values.items())
