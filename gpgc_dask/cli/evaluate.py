"""``gpgc evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import listing, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import (
    Classes,
    Foreground,
    Json,
    MaskSuffix,
    SoftThreshold,
    Void,
    check_output,
    to_classes,
    to_numbers,
)

if TYPE_CHECKING:
    from gpgc_dask.results.evaluation import Evaluation, Scores

__all__ = ["EXAMPLE", "evaluate"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc evaluate predicted/ masks/\n\n"
    "gpgc evaluate predicted/ SegmentationClass/ --foreground 13 --void 255\n\n"
    "gpgc evaluate gpgc/ masks/ --against gp/ -o images.csv"
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
    foreground: Foreground = None,
    classes: Classes = None,
    void: Void = None,
    threshold: SoftThreshold = None,
    mask_suffix: MaskSuffix = "",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="CSV file for the accuracy of each image."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare predicted masks with true ones, pixel by pixel.

    Prints the share of the pixels of each class that are predicted right, over all images, and the
    average over the classes. With --against, also prints whether one of two sets of predictions is
    better: a Wilcoxon signed-rank test on the averages of the images. The options for reading masks
    apply to the true masks; predictions have the values of --classes, or 0 and one other value.
    """
    check_output(out)
    from gpgc_dask.results.evaluation import evaluate as evaluate_masks
    from gpgc_dask.storage.location import write_whole

    with Display() as display:
        result = evaluate_masks(
            predicted,
            true,
            against=against,
            foreground=to_numbers(foreground, "--foreground"),
            classes=to_classes(classes),
            void=to_numbers(void, "--void"),
            threshold=threshold,
            mask_suffix=mask_suffix,
            progress=display.work,
        )
    if out is not None:
        write_whole(Path(out), result.to_csv().encode())
    if json:
        print_json(result.to_dict())
    else:
        _show(result, predicted, against)
        if out is not None:
            print(f"Accuracy of each image: {out}")


def _show(result: Evaluation, predicted: str, against: str | None) -> None:
    sides: dict[str, Scores] = {predicted: result}
    if against is not None and result.against is not None:
        sides[against] = result.against
    columns = [_shares(scores) for scores in sides.values()]
    rows = list(zip(_row_names(result), *columns, strict=True))
    title = f"Pixels right, {result.images:,} images"
    print_out(listing(title, ["", *map(escape, sides)], rows, limit=len(rows)))
    for folder, scores in sides.items():
        if scores.ignored:
            print(f"  {scores.ignored:,} files in {folder} have no true mask and are ignored")
    void = sum(one.average_class_accuracy is None for one in result.per_image)
    if void:
        print(f"  {void:,} true masks are void at every pixel and do not count")
    if against is not None:
        print(_verdict(result, predicted, against))


def _row_names(scores: Scores) -> list[str]:
    several = ["all but background"] if len(scores.class_accuracy) > 2 else []
    return [*scores.class_accuracy, *several, "average over classes"]


def _shares(scores: Scores) -> list[str]:
    """Cells of a column of the table."""
    shares = list(scores.class_accuracy.values())
    several = [scores.foreground_accuracy] if len(shares) > 2 else []
    return [_percent(share) for share in (*shares, *several, scores.average_class_accuracy)]


def _percent(share: float | None) -> str:
    return "no pixels" if share is None else f"{100 * share:.2f} %"


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
