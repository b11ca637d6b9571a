"""``gpgc evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.console import facts, listing, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    MASKS,
    ClassTable,
    Foreground,
    Invert,
    Json,
    MaskSuffix,
    PhotoSuffix,
    SoftThreshold,
    Void,
    check_choice,
    check_classes,
    check_output,
    to_numbers,
)

if TYPE_CHECKING:
    from gpgc_dask.results.evaluation import Agreement, Evaluation, Scores

__all__ = ["EXAMPLE", "evaluate"]

MAX_CONFUSION = 8
"""Largest number of classes for which the pixels per pair of classes are printed."""

EXAMPLE = (
    "Examples:\n\n"
    "gpgc evaluate predicted/ masks/\n\n"
    "gpgc evaluate predicted/ SegmentationClass/ --foreground 13 --void 255\n\n"
    "gpgc evaluate predicted/ masks/ --boundary 2\n\n"
    "gpgc evaluate gpgc/ masks/ --against gp/ -o images.csv\n\n"
    "gpgc evaluate anna/ ben/ --annotators"
)


def evaluate(
    predicted: Annotated[
        str, typer.Argument(help="Folder of predicted masks, as gpgc predict writes them.")
    ],
    true: Annotated[
        str, typer.Argument(help="Folder of true masks, named as the predictions, with any ending.")
    ],
    *,
    against: Annotated[
        str | None,
        typer.Option(help="Second folder of predictions, to compare PREDICTED with."),
    ] = None,
    annotators: Annotated[
        bool,
        typer.Option(
            "--annotators",
            help="The folders are the masks of two annotators: neither is the truth, and images "
            "that one of them lacks are ignored.",
        ),
    ] = False,
    boundary: Annotated[
        str | None,
        typer.Option(
            help="Also compare boundaries, with this tolerance: pixels, such as 2, or a share of "
            "the diagonal, such as 0.75%."
        ),
    ] = None,
    foreground: Foreground = None,
    classes: ClassTable = None,
    void: Void = None,
    threshold: SoftThreshold = None,
    invert: Invert = False,
    mask_suffix: MaskSuffix = "",
    photo_suffix: PhotoSuffix = "",
    same_values: Annotated[
        bool,
        typer.Option(
            "--same-values",
            help="Predictions have the values of the true masks, not 0 and one other value.",
            rich_help_panel=MASKS,
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="CSV file for the scores of each image."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare predicted masks with true ones, or two annotators, pixel by pixel.

    Prints IoU, Dice (F1), precision and recall of each class, the averages over the classes, pixel
    accuracy and Cohen's kappa, from the pixels of all images together, and with --boundary the
    boundary F-score: the average over the images of the agreement of the boundaries within a
    tolerance. Void pixels of either mask do not count. With --against, also prints whether one of
    two sets of predictions is better: a Wilcoxon signed-rank test on the average class accuracies
    of the images. The options for reading masks apply to the true masks; predictions have the
    values of --classes and --void, or 0 and one other value.
    """
    check_output(out)
    check_choice(annotators=annotators, against=against)
    from gpgc_dask.results.evaluation import Agreement, compare_annotators
    from gpgc_dask.results.evaluation import evaluate as evaluate_masks
    from gpgc_dask.storage.location import write_whole

    options: dict[str, Any] = {
        "foreground": to_numbers(foreground, "--foreground"),
        "classes": check_classes(classes),
        "void": to_numbers(void, "--void"),
        "threshold": threshold,
        "invert": invert,
        "mask_suffix": mask_suffix,
        "photo_suffix": photo_suffix,
        "boundary": boundary,
    }
    result: Agreement | Evaluation
    with Display() as display:
        if annotators:
            result = compare_annotators(predicted, true, **options, progress=display.work)
        else:
            options |= {"against": against, "same_values": same_values, "progress": display.work}
            result = evaluate_masks(predicted, true, **options)
    if out is not None:
        write_whole(Path(out), result.to_csv().encode())
    if json:
        print_json(result.to_dict())
        return
    if isinstance(result, Agreement):
        _show_agreement(result, predicted, true)
    else:
        _show(result, predicted, against)
    if out is not None:
        print(f"Scores of each image: {out}")


def _show(result: Evaluation, predicted: str, against: str | None) -> None:
    sides: dict[str, Scores] = {predicted: result}
    if against is not None and result.against is not None:
        sides[against] = result.against
    for folder, scores in sides.items():
        _show_classes(folder, scores)
    columns = [_means(scores) for scores in sides.values()]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    print_out(listing("All classes", ["", *map(escape, sides)], rows, limit=len(rows)))
    if against is None:
        _show_confusion(result, "true class", "predicted")
    for folder, scores in sides.items():
        if scores.ignored:
            print(f"  {scores.ignored:,} files in {folder} have no true mask and are ignored")
        if scores.void_predicted:
            print(f"  {scores.void_predicted:,} pixels are void in {folder} and do not count")
    void = sum(one.average_class_accuracy is None for one in result.per_image)
    if void:
        print(f"  {void:,} images are void at every pixel and do not count")
    if against is not None:
        print(_verdict(result, predicted, against))


def _show_classes(folder: str, scores: Scores) -> None:
    """Scores of each class of a set of predictions."""
    edges = scores.boundary_tolerance is not None
    columns = ["", "IoU", "Dice", "precision", "recall", "pixels", *["boundary F"] * edges]
    rows = [
        (
            name,
            *map(_share, (one.iou, one.dice, one.precision, one.recall)),
            f"{one.pixels:,}",
            *[_share(one.boundary)] * edges,
        )
        for name, one in scores.classes.items()
    ]
    title = f"{escape(folder)}, {scores.images:,} images"
    print_out(listing(title, columns, rows, limit=len(rows)))


def _means(scores: Scores) -> dict[str, str]:
    """Scores of all classes together."""
    values = {
        "pixel accuracy": scores.pixel_accuracy,
        "average class accuracy": scores.average_class_accuracy,
        "accuracy of all but background": scores.foreground_accuracy,
        "mean IoU": scores.mean_iou,
        "mean Dice": scores.mean_dice,
        "Cohen's kappa": scores.kappa,
        _boundary_name(scores): scores.boundary,
    }
    if len(scores.classes) == 2:
        del values["accuracy of all but background"]
    if scores.boundary_tolerance is None:
        del values[_boundary_name(scores)]
    return {name: _share(value) for name, value in values.items()}


def _show_agreement(result: Agreement, first: str, second: str) -> None:
    edges = result.boundary_tolerance is not None
    pixels = [f"pixels, {escape(folder)}" for folder in (first, second)]
    rows = [
        (
            name,
            *map(_share, (one.iou, one.dice)),
            *(f"{area:,}" for area in one.pixels),
            *[_share(one.boundary)] * edges,
        )
        for name, one in result.classes.items()
    ]
    columns = ["", "IoU", "Dice", *pixels, *["boundary F"] * edges]
    title = f"Agreement, {result.images:,} images"
    print_out(listing(title, columns, rows, limit=len(rows)))
    values = {
        "pixels with the same class": result.pixel_agreement,
        "Cohen's kappa": result.kappa,
        "mean IoU": result.mean_iou,
        "mean Dice": result.mean_dice,
        _boundary_name(result): result.boundary,
    }
    if not edges:
        del values[_boundary_name(result)]
    print_out(facts([(name, _share(value)) for name, value in values.items()]))
    _show_confusion(result, second, first)
    if result.unpaired:
        print(f"  {result.unpaired:,} masks are in one folder only and are ignored")


def _boundary_name(scores: Scores | Agreement) -> str:
    tolerance = str(scores.boundary_tolerance)
    return f"boundary F within {tolerance if tolerance.endswith('%') else f'{tolerance} px'}"


def _show_confusion(scores: Scores | Agreement, rows: str, columns: str) -> None:
    """Pixels per pair of classes, unless there are too many classes for a terminal."""
    names = list(scores.classes)
    if len(names) > MAX_CONFUSION:
        return
    title = f"Pixels: rows are {escape(rows)}, columns are {escape(columns)}"
    cells = [
        (name, *(f"{count:,}" for count in own))
        for name, own in zip(names, scores.confusion, strict=True)
    ]
    print_out(listing(title, ["", *map(escape, names)], cells, limit=len(cells)))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _verdict(result: Evaluation, predicted: str, against: str) -> str:
    """Which of two sets of predictions is better, as a sentence."""
    from gpgc_dask.results.evaluation import LEVEL

    test = f"Wilcoxon signed-rank p = {result.wilcoxon_p:.2g}"
    if result.significant:
        better, worse = (
            (predicted, against) if result.better == "predicted" else (against, predicted)
        )
        return f"{better} is better than {worse} ({test}, below {LEVEL:g})"
    if not result.images_better and not result.images_worse:
        return f"No difference: {predicted} and {against} are equally right on every image"
    counts = (
        f"{predicted} is better on {result.images_better:,} images, {against} on "
        f"{result.images_worse:,}"
    )
    few = "; too few images differ for p to fall below that" if result.too_few else ""
    return f"No significant difference ({test}, not below {LEVEL:g}{few}): {counts}"
