"""``gpgc verdicts``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import listing, note, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import Json, OnError, OnErrorOption
from gpgc_dask.results.verdicts.registry import IMPORTS

if TYPE_CHECKING:
    from gpgc_dask.results.verdicts import ImportReport

__all__ = ["EXAMPLE", "verdicts"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc verdicts horses.zarr\n\n"
    "gpgc verdicts horses.zarr -o verdicts.csv\n\n"
    "gpgc verdicts horses.zarr --import corrected-masks/ --by anna\n\n"
    "gpgc verdicts horses.zarr --import verdicts.csv"
)

IMPORTING = "Importing"


def verdicts(
    data: Annotated[
        str, typer.Argument(help="Dataset that gpgc ingest has written: a path or URL.")
    ],
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--import",
            help="File or folder with verdicts or corrected masks to add: a folder of masks, or a "
            "file of CVAT, Label Studio, COCO or CSV.",
            rich_help_panel=IMPORTING,
        ),
    ] = None,
    import_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Format of --import: {', '.join(IMPORTS.names())}. Default: recognised by its "
            "content.",
            rich_help_panel=IMPORTING,
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Who has decided. Default: as --import names them.", rich_help_panel=IMPORTING
        ),
    ] = "",
    confirm_unchanged: Annotated[
        bool | None,
        typer.Option(
            "--confirm-unchanged/--ignore-unchanged",
            help="Whether masks that are as given are confirmed. Default: if the file shows that a "
            "person has finished them; all in a folder of masks.",
            rich_help_panel=IMPORTING,
        ),
    ] = None,
    mask_suffix: Annotated[
        str,
        typer.Option(
            help="Text that the names of masks have in addition to those of their images, such as "
            "_corrected.",
            rich_help_panel=IMPORTING,
        ),
    ] = "",
    tasks: Annotated[
        str,
        typer.Option(
            help="JSON export of the Label Studio project whose PNG files are imported.",
            rich_help_panel=IMPORTING,
        ),
    ] = "",
    on_error: OnErrorOption = OnError.RAISE,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="FILE.csv for a table, with corrected masks in the folder FILE next to it; a "
            "folder for both; or FILE.json for a COCO file of the corrected masks.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="The whole log, with verdicts that do not count any more.")
    ] = False,
    json: Json = False,
) -> None:
    """List what people have decided about the masks of a dataset, and bring verdicts in and out.

    Confirmed and rejected masks, and corrected ones, are kept in the dataset. Corrected masks
    replace the given ones wherever the dataset is used. With --import, everything is checked before
    the first verdict is written, and what the dataset has already is not added again.
    docs/interop.md describes the steps in each tool.
    """
    _check_options(source, import_format, by, confirm_unchanged, mask_suffix, tasks, on_error)
    report = None
    if source is not None:
        from gpgc_dask.results.verdicts import import_verdicts

        with Display() as display:
            report = import_verdicts(
                data,
                source,
                format=import_format,
                by=by,
                on_error=on_error.value,
                confirm_unchanged=confirm_unchanged,
                mask_suffix=mask_suffix,
                tasks=tasks,
                progress=display.work,
            )
    result = _result(data, report, out, every=every)
    if json:
        print_json(result)
    else:
        _show(data, report, result)


def _check_options(source: str | None, *options: Any) -> None:
    if source is None and any(option not in (None, "", OnError.RAISE) for option in options):
        raise typer.BadParameter(
            "--format, --by, --confirm-unchanged, --mask-suffix, --tasks and --on-error are "
            "options of --import: name a file or folder"
        )


def _result(
    data: str, report: ImportReport | None, out: str | None, *, every: bool
) -> dict[str, Any]:
    """Everything that is printed."""
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.results.verdicts import list_verdicts, write_verdicts

    images = open_dataset(data, verdicts=False).sizes["photo"]
    written = None if out is None else write_verdicts(data, out, every=every)
    table = list_verdicts(data, every=every)
    counts = Counter(table.loc[table["current"], "verdict"])
    result: dict[str, Any] = {"images": images, "counts": dict(sorted(counts.items()))}
    if report is not None:
        result["imported"] = asdict(report)
    if written is not None:
        result["written"] = asdict(written)
    return result | {"verdicts": table.to_dict("records")}


def _show(data: str, report: ImportReport | None, result: dict[str, Any]) -> None:
    if report is not None:
        _show_import(report)
    elif result["verdicts"] and "written" not in result:
        columns = ["image", "verdict", "by", "at", "note"]
        rows = [
            (one["image"], one["verdict"], one["by"], one["at"][:16].replace("T", " "), one["note"])
            for one in result["verdicts"]
        ]
        print_out(listing("Verdicts", columns, rows, limit=len(rows), whole={"verdict", "at"}))
    counts, total = result["counts"], sum(result["counts"].values())
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    print_out(
        f"{total:,} of {result['images']:,} images have a verdict" + (f": {kinds}" * bool(kinds))
    )
    if "written" in result:
        print_out(f"Written: {escape(', '.join(result['written']['files']))}")
    if report is not None and report.added:
        print_out(f"Fit again to use them: gpgc fit {escape(quote(data))} -o MODEL.zarr")


def _show_import(report: ImportReport) -> None:
    counts = {
        "corrected": report.corrected,
        "confirmed": report.confirmed,
        "rejected": report.rejected,
        "withdrawn": report.withdrawn,
    }
    added = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    print_out(
        f"[bold]{escape(report.source)}[/bold] ({escape(report.title)}): {added or 'nothing new'}"
    )
    for count, text in (
        (report.known, "were known already"),
        (report.undecided, "are as given, and not marked as finished: no verdict"),
        (report.older, "do not count: there are later verdicts on these images"),
    ):
        if count:
            print_out(f"  {count:,} {text}")
    for text in report.notes:
        note(text)
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} skipped", ["image", "why"], rows))
