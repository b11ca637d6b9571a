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
    train: Annotated[str, typer.Argument(help="The training dataset, whose masks are in doubt.")],
    *,
    test: Annotated[
        str, typer.Option(help="A dataset of the same features, whose masks are taken for true.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="A folder: tables as Markdown and CSV, every run, a plot."
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            help="Folder of the training photos' true masks, to judge the rankings by.",
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
            help="Train the SVM on at most so many superpixels, of whole images: it holds them "
            "in memory.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=0, help="Random choices of images to average.", rich_help_panel=RUNNING),
    ] = 5,
    json: Json = False,
    client: Any,
) -> None:
    """Run the paper's experiments on your own data: models, filtering rules, three tables.

    Table 1: SVM, GP and GP-GC on all images. Table 2: SVM and GP retrained on the best quarter of
    the images by several rules. Table 3: the GP on growing shares of the best images. Accuracies
    are of pixels of the test images, classes averaged; p values of Wilcoxon signed-rank tests on
    the images. How masks are read is said of --truth; by default as at ingest.
    """
    check_output(folder=out)
    given = (
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
        found = compare_models(
            open_dataset(train),
            open_dataset(test),
            truth=truth,
            truth_format=MaskFormat(*given) if any(given) else None,
            svm=not without_svm,
            svm_rows=svm_rows,
            draws=draws,
            announce=display.print_line,
        )
    written = [] if out is None else write_comparison(found, out)
    if json:
        print_json(_plain(found))
        return
    _show(found)
    if out is not None:
        print_out(f"{len(written)} files in [bold]{escape(out)}[/bold], tables.md first")


def _plain(found: Comparison) -> dict[str, Any]:
    from gpgc_dask.experiments.tables import table_1, table_2, table_3

    tables = {"table1": table_1(found), "table2": table_2(found), "table3": table_3(found)}
    if found.quality is not None:
        tables["quality"] = found.quality
    return {name: _records(table) for name, table in tables.items()}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if value != value else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _show(found: Comparison) -> None:
    from gpgc_dask.core.metrics import LEVEL
    from gpgc_dask.experiments.tables import table_1, table_2, table_3

    titles = {
        "Table 1: all images": table_1(found),
        "Table 2: retrained on the best quarter": table_2(found),
        "Table 3: the GP on growing shares of the best images": table_3(found),
    }
    if found.quality is not None:
        titles["The rankings against the truth (bad: IoU below 0.5)"] = found.quality
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
