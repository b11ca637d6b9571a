"""``gpgc rank`` and ``gpgc select``."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import listing, note, print_json, print_out
from gpgc_dask.cli.options import By, ByOption, Json, ModelArgument, check_choice, check_output
from gpgc_dask.results.columns import (
    PEOPLE_COLUMNS,
    PEOPLE_FILE,
    Column,
    columns_in,
    describe_columns,
    format_cell,
    format_interval,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RANK_EXAMPLE",
    "SELECT_EXAMPLE",
    "rank_images",
    "select",
    "show_ranking",
    "write_ranking",
]

RANK_EXAMPLE = (
    "Examples:\n\ngpgc rank model.zarr\n\ngpgc rank model.zarr -o ranking.csv --by confidence\n\n"
    "gpgc rank model.zarr --objects -o objects.csv"
    "\n\ngpgc rank model.zarr --people -o people.csv"
)
SELECT_EXAMPLE = (
    "Examples:\n\n"
    "gpgc select model.zarr --top 25% -o keep.txt\n\n"
    "gpgc select model.zarr --min-score 0.7 --folder clean/\n\n"
    "gpgc select model.zarr --top 90% --rest -o look-again.txt\n\n"
    "gpgc select answers-model.zarr --best-answer --folder best/ --consensus agreed/"
)

SHOWN = 20


def rank_images(
    model: ModelArgument,
    *,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="File for the ranking: CSV, or JSON if it ends in .json."),
    ] = None,
    by: ByOption = By.QUALITY,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="List annotations, and regions that are missing, spurious or of a wrong class, "
            "instead of images.",
        ),
    ] = False,
    people: Annotated[
        bool,
        typer.Option(
            "--people",
            help="List the annotators instead, compared at equal difficulty of their images.",
        ),
    ] = False,
    scenes: Annotated[
        bool,
        typer.Option(
            "--scenes",
            help="List the scenes that gpgc ingest --tile has cut, by the mean of their tiles.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """List the images in the order of their reliability, worst first.

    Columns: {columns}; with more than two classes also iou:CLASS, the agreement in each class. A
    terminal shows the worst images; a pipe gets the whole list as CSV.

    With --objects: rank, annotation (its id), image, class, kind, score (the probability that
    the mask is right there; empty if it is too small to judge), x, y, width, height.

    With --people: {people}. JSON also contains an interval of the quality, the quality that is
    expected for the difficulty of the images, and the trend.

    With --scenes: rank, scene, tiles, pixels, quality, agreement.
    """
    check_output(out)
    if objects + people + scenes > 1:
        raise typer.BadParameter("--objects, --people and --scenes are separate lists: choose one")
    if (objects or people or scenes) and by != By.QUALITY:
        raise typer.BadParameter(
            "--by is for images: omit it with --objects, --people and --scenes"
        )
    if people:
        from gpgc_dask.cli.people import list_people

        list_people(model, out, json=json)
        return
    if scenes:
        from gpgc_dask.cli.scenes import list_scenes

        list_scenes(model, out, json=json)
        return
    if objects:
        _rank_objects(model, out, json=json)
        return
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import rank, require_review
    from gpgc_dask.results.ranking import records, to_csv

    ranking = rank(require_review(load(model), model), by.value)
    if out is not None:
        write_ranking(ranking, out)
    if json:
        print_json(records(ranking))
    elif out is None and not sys.stdout.isatty():
        print(to_csv(ranking), end="")
    else:
        show_ranking(ranking, out or f"gpgc rank {quote(model)} -o ranking.csv", by)


def _rank_objects(model: str, out: str | None, *, json: bool) -> None:
    from gpgc_dask.models.objects import require_objects
    from gpgc_dask.models.persistence import load
    from gpgc_dask.results.objects import object_headline, object_records, objects_to_csv
    from gpgc_dask.storage.location import write_whole

    table = require_objects(load(model), model)
    if out is not None:
        as_json = out.lower().endswith(".json")
        content = json_format.dumps(object_records(table), indent=1, ensure_ascii=False) + "\n"
        write_whole(Path(out), (content if as_json else objects_to_csv(table)).encode())
    if json:
        print_json(object_records(table))
    elif out is None and not sys.stdout.isatty():
        print(objects_to_csv(table), end="")
    else:
        worst = table.head(SHOWN)
        columns = ["rank", "annotation", "image", "class", "kind", "score"]
        rows = [
            (f"{rank:,}", annotation, image, name, kind, f"{score:.2f}")
            for rank, annotation, image, name, kind, score in worst[columns].itertuples(index=False)
        ]
        title = f"The worst {len(worst)} of {len(table):,} annotations and regions"
        print_out(listing(title, columns, rows, whole={"rank", "score"}))
        print_out(escape(object_headline(table).capitalize()))
        place = out or f"gpgc rank {quote(model)} --objects -o objects.csv"
        print_out(f"All of them: {escape(place)}")


def write_ranking(ranking: pd.DataFrame, out: str) -> None:
    """Write a ranking as CSV, or as JSON if the name ends in .json."""
    from gpgc_dask.results.ranking import records, to_csv
    from gpgc_dask.storage.location import write_whole

    if out.lower().endswith(".json"):
        text = json_format.dumps(records(ranking), indent=2, ensure_ascii=False) + "\n"
    else:
        text = to_csv(ranking)
    write_whole(Path(out), text.encode())


def show_ranking(ranking: pd.DataFrame, place: str, by: By = By.QUALITY) -> None:
    """Print the worst images, and where all of them are."""
    from gpgc_dask.results.ranking import headline, records

    hidden = {name for column in columns_in("files") for name in column.interval or ()}
    if by != By.CONFIDENCE:
        hidden.add("confidence")  # the order of the noise variance, and no space for both
    columns = [column for column in columns_in("files") if column.name not in hidden]
    worst = records(ranking.head(SHOWN))
    rows = [tuple(_cell(column, row) for column in columns) for row in worst]
    title = f"The worst {len(worst)} of {len(ranking):,} images"
    whole = {column.title for column in columns if column.kind in ("integer", "number")}
    print_out(listing(title, [column.title for column in columns], rows, whole=whole))
    print_out(escape(headline(ranking).capitalize()))
    print_out(f"All of them: {escape(place)}")


def _cell(column: Column, row: dict[str, Any]) -> str:
    text = format_cell(column, row[column.name])
    if column.interval is None:
        return text
    low, high = column.interval
    return text + format_interval(row[low], row[high])


rank_images.__doc__ = str(rank_images.__doc__).format(
    columns=describe_columns(),
    people=", ".join(column.name for column in PEOPLE_COLUMNS[:PEOPLE_FILE]),
)


def select(
    model: ModelArgument,
    *,
    top: Annotated[
        str | None,
        typer.Option(
            help="Select the most reliable: a share such as 25%, or a number such as 500."
        ),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="Select all with at least this quality (or --by).")
    ] = None,
    best_answer: Annotated[
        bool,
        typer.Option(
            "--best-answer",
            help="Select the best mask of each photo, if photos have several.",
        ),
    ] = False,
    by: ByOption = By.QUALITY,
    rest: Annotated[
        bool, typer.Option("--rest", help="Select the others instead, worst first.")
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="File for the image names, one per line.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(help="New folder with images/ and masks/ that link to the selected files."),
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy files to --folder.")] = False,
    coco: Annotated[
        str | None,
        typer.Option(help="COCO file for the selected images, if the dataset came from one."),
    ] = None,
    consensus: Annotated[
        str | None,
        typer.Option(
            help="New folder for one mask per photo that has several: their majority, weighted by "
            "reliability."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Select the most reliable images, for training elsewhere, or the others, to be corrected.

    Prints their names, or writes them to a file, a folder or a COCO file.
    """
    check_choice(top=top, min_score=min_score is not None, best_answer=best_answer)
    if top is None and min_score is None and not best_answer and consensus is None:
        raise typer.BadParameter("choose how many images: --top 25%, --top 500 or --min-score 0.7")
    if copy and folder is None:
        raise typer.BadParameter("--copy needs --folder")
    check_output(out, coco, folder=folder)
    check_output(folder=consensus)
    from gpgc_dask.models.fitted_dataset import require_dataset_info
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import rank, require_review
    from gpgc_dask.results.answers import best_answers, write_consensus
    from gpgc_dask.results.corrected import CorrectedMasks
    from gpgc_dask.results.ranking import select_best
    from gpgc_dask.results.selection import filter_coco, write_folder
    from gpgc_dask.storage.location import write_whole

    fitted = load(model)
    ranking = rank(require_review(fitted, model), by.value)
    source = require_dataset_info(fitted)["source"]
    if consensus is not None:
        n_masks = len(write_consensus(ranking, source, consensus))
        note(f"{n_masks:,} masks, one per photo: {consensus}")
    if best_answer or (top is None and min_score is None):
        chosen = best_answers(ranking)
    else:
        chosen = select_best(ranking, top=top, min_score=min_score, by=by.value)
    if rest:
        chosen = ranking[~ranking["image"].isin(chosen["image"])]
    names = chosen["image"].tolist()
    corrected = CorrectedMasks(fitted, chosen) if coco or folder else None
    if coco is not None:
        filter_coco(source, names, coco, corrected=corrected)
    if folder is not None:
        write_folder(chosen, source, folder, copy=copy, corrected=corrected)
    if out is not None:
        write_whole(Path(out), "".join(f"{name}\n" for name in names).encode())
    _report(chosen, ranking, rest=rest, written=[p for p in (out, folder, coco) if p], json=json)


def _report(
    chosen: pd.DataFrame, ranking: pd.DataFrame, *, rest: bool, written: list[str], json: bool
) -> None:
    names = chosen["image"].tolist()
    if json:
        print_json({"selected": len(names), "of": len(ranking), "images": names})
    elif written:
        places = ", ".join(map(escape, written))
        print_out(f"{len(names):,} of {len(ranking):,} images: {places}")
    else:
        print("".join(f"{name}\n" for name in names), end="")
    flagged = int((chosen["flags"] != "").sum())
    if flagged and not rest:
        note(f"{flagged:,} of the selected images have flags (empty mask, one class, …): see rank")
