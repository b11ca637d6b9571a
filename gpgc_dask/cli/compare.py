"""``gpgc compare``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    MASKS,
    RUNNING,
    Classes,
    Foreground,
    Json,
    SoftThreshold,
    Void,
    check_output,
    to_classes,
    to_numbers,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpgc_dask.experiments import Comparison

__all__ = ["EXAMPLE", "compare"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc compare horses.zarr --test test.zarr -o tables/\n\n"
    "gpgc compare horses.zarr --test test.zarr --truth true-masks/ --without-svm"
)


@on_cluster(always=False)
def compare(
    train: Annotated[str, typer.Argument(help="Training dataset, whose masks may be unreliable.")],
    *,
    test: Annotated[
        str, typer.Option(help="Test dataset of the same features, whose masks are right.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Folder for tables as Markdown and CSV, all runs, and a plot."
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            help="Folder of true masks of the training photos, to evaluate the rankings.",
            rich_help_panel=MASKS,
        ),
    ] = None,
    foreground: Foreground = None,
    classes: Classes = None,
    void: Void = None,
    threshold: SoftThreshold = None,
    without_svm: Annotated[
        bool,
        typer.Option("--without-svm", help="Leave the SVM out.", rich_help_panel=RUNNING),
    ] = False,
    svm_rows: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Maximum number of superpixels, of whole images, for the SVM, which holds them in "
            "memory.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=0, help="Number of random draws to average.", rich_help_panel=RUNNING),
    ] = 5,
    json: Json = False,
    client: Any,
) -> None:
    """Run the paper's experiments on your own data: models, filtering rules, three tables.

    Table 1: SVM, GP and GP-GC on all images. Table 2: SVM and GP refitted to the best quarter of
    the images by several rules. Table 3: the GP on growing shares of the best images. Accuracies
    are averages over the classes, in pixels of the test images; p values are those of Wilcoxon
    signed-rank tests on the images. The options for reading masks apply to --truth; the default is
    as at ingest.
    """
    check_output(folder=out)
    options = (
        tuple(to_numbers(foreground, "--foreground")),
        tuple(to_classes(classes).items()),
        tuple(to_numbers(void, "--void")),
        threshold,
    )
    from gpgc_dask.data.dataset import open_dataset
    from gpgc_dask.experiments import compare as compare_models
    from gpgc_dask.experiments.files import write_comparison
    from gpgc_dask.imaging.masks import MaskFormat

    with Display() as display, client or nullcontext():
        comparison = compare_models(
            open_dataset(train),
            open_dataset(test),
            truth=truth,
            truth_format=MaskFormat(*options) if any(options) else None,
            svm=not without_svm,
            svm_rows=svm_rows,
            draws=draws,
            announce=display.print_line,
        )
    written = [] if out is None else write_comparison(comparison, out)
    if json:
        print_json(_plain(comparison))
        return
    _show(comparison)
    if out is not None:
        print_out(f"{len(written)} files in [bold]{escape(out)}[/bold], tables.md first")


def _plain(comparison: Comparison) -> dict[str, Any]:
    from gpgc_dask.experiments.tables import table_1, table_2, table_3

    tables = {
        "table1": table_1(comparison),
        "table2": table_2(comparison),
        "table3": table_3(comparison),
    }
    if comparison.quality is not None:
        tables["quality"] = comparison.quality
    return {name: _records(table) for name, table in tables.items()}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if value != value else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _show(comparison: Comparison) -> None:
    from gpgc_dask.core.metrics import LEVEL
    from gpgc_dask.experiments.tables import table_1, table_2, table_3

    titles = {
        "Table 1: all images": table_1(comparison),
        "Table 2: refitted to the best quarter": table_2(comparison),
        "Table 3: the GP on growing shares of the best images": table_3(comparison),
    }
    if comparison.quality is not None:
        titles["The rankings against the truth (bad: IoU below 0.5)"] = comparison.quality
    for title, table in titles.items():
        used = [name for name in table if name != "runs" and not _is_empty(table[name])]
        rows = [
            tuple(_text(name, value) for name, value in zip(used, row, strict=True))
            for row in table[used].itertuples(index=False)
        ]
        print_out(listing(title, [name.replace("_", " ") for name in used], rows, limit=len(rows)))
    print_out(
        "Average class accuracy in pixels of the test images, %. p: Wilcoxon signed-rank test, "
        f"* below {LEVEL:g}"
    )


def _is_empty(column: Any) -> bool:
    return bool(column.isna().all() or (column.astype(str) == "").all())


def _text(name: str, value: Any) -> str:
    from gpgc_dask.core.metrics import LEVEL

    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "–" if name == "accuracy" or name.endswith("%") else ""
    if name.startswith("p against"):
        return f"{value:.2g}{' *' if value < LEVEL else ''}"
    return f"{value:.2f}"
