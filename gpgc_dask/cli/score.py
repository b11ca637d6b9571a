"""``gpgc score``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpgc_dask.cli.backbone_options import Features, PresentBackbone, to_backbone
from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import listing, note, print_json, print_out
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import Json, ModelArgument, OnError, OnErrorOption, check_output
from gpgc_dask.cli.rank import show_ranking, write_ranking
from gpgc_dask.core.errors import EXIT_BELOW

if TYPE_CHECKING:
    from gpgc_dask.pipelines.score import ScoreReport

__all__ = ["EXAMPLE", "score"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc score model.zarr new-photos/ new-masks/ -o scores.csv\n\n"
    "gpgc score model.zarr new-photos/ new-masks/ --min-quality 0.5 --json"
)


@on_cluster()
def score(
    model: ModelArgument,
    images: Annotated[str, typer.Argument(help="Folder of photos, with subfolders.")],
    masks: Annotated[
        str, typer.Argument(help="Folder or file of masks, in the format of the model's dataset.")
    ],
    *,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="File for the scores: CSV, or JSON if it ends in .json."),
    ] = None,
    min_quality: Annotated[
        float | None,
        typer.Option(help="Exit with code 3 if the quality of a mask is below this, 0 to 1."),
    ] = None,
    backbone: PresentBackbone = None,
    features: Features = None,
    on_error: OnErrorOption = OnError.RAISE,
    json: Json = False,
    client: Any,
) -> None:
    """Estimate the quality of masks that the model has never seen, worst first.

    The columns are those of gpgc rank; confidence and noise_variance are empty, as they belong to
    images of a fit. Nothing but the file of scores is written. Runs one process per core by
    default.
    """
    check_output(out)
    if min_quality is not None and not 0 <= min_quality <= 1:
        raise typer.BadParameter(f"--min-quality is a quality between 0 and 1, got {min_quality:g}")
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import rank
    from gpgc_dask.pipelines.options import RunOptions
    from gpgc_dask.pipelines.score import score as score_masks
    from gpgc_dask.results.ranking import records, to_csv

    with Display() as display:
        report = score_masks(
            load(model),
            images,
            masks,
            backbone=to_backbone(backbone, features, images),
            run=RunOptions(on_error=on_error.value, progress=display.work, client=client),
        )
    ranking = rank(report.table)
    below = 0 if min_quality is None else int((~(ranking["quality"] >= min_quality)).sum())
    if out is not None:
        write_ranking(ranking, out)
    if json:
        skipped = [asdict(problem) for problem in report.skipped]
        more = {"below": below, "skipped": skipped, "in_fit": report.in_fit}
        print_json({"masks": records(ranking), **more})
    elif out is None and not sys.stdout.isatty():
        print(to_csv(ranking), end="")
    else:
        show_ranking(ranking, out or "-o scores.csv writes them to a file")
    if not json:
        _show(report)
    if below:
        note(f"{below:,} of {len(ranking):,} masks have a quality below {min_quality:g}")
        raise typer.Exit(EXIT_BELOW)


def _show(report: ScoreReport) -> None:
    if report.in_fit:
        note(
            f"{len(report.in_fit):,} images have names that were in the fit ({report.in_fit[0]}): "
            "if they are the same photos, gpgc rank judges them better"
        )
    if report.skipped:
        rows = [(problem.name, problem.reason) for problem in report.skipped]
        print_out(listing(f"{len(rows):,} files skipped", ["file", "why"], rows))
