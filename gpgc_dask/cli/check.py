"""``gpgc check``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpgc_dask.cli.console import note, print_json
from gpgc_dask.cli.options import Json, check_output
from gpgc_dask.core.errors import EXIT_BELOW

__all__ = ["EXAMPLE", "check"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc check horses.zarr model.zarr --max-suspect 5%\n\n"
    "gpgc check horses.zarr model.zarr --min-quality 0.1 --junit check.xml"
)


def check(
    data: Annotated[str, typer.Argument(help="Dataset of the model: a path or URL.")],
    model: Annotated[str, typer.Argument(help="The model, as gpgc fit made it: a path or URL.")],
    *,
    max_suspect: Annotated[
        str | None,
        typer.Option(
            help="Largest share (5%) or number (20) of suspect masks: quality below 0.5 with 90 % "
            "certainty. Default: 5%, if there is no --min-quality."
        ),
    ] = None,
    min_quality: Annotated[
        float | None,
        typer.Option(help="No mask may have a lower estimated quality, 0 to 1."),
    ] = None,
    junit: Annotated[
        str | None,
        typer.Option(metavar="FILE.xml", help="File for the result as JUnit's XML."),
    ] = None,
    json: Json = False,
) -> None:
    """Fail if too many masks are bad: a gate for pipelines.

    Prints a summary in Markdown. The exit code is 0 if all limits are kept, 3 if one is missed,
    and 1 or 2 if the check itself failed, for example because the dataset has been updated since
    the fit. Reads the model's review only, no features and no photos.
    """
    from gpgc_dask.results.limits import check_limits, parse_limits

    check_output(junit)
    parse_limits(max_suspect, min_quality)
    from gpgc_dask.models.fitted_dataset import check_fitted_on, open_fitted
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import rank, require_review
    from gpgc_dask.results.ranking import records
    from gpgc_dask.storage.location import Location, write_whole

    fitted = load(model)
    check_fitted_on(fitted, open_fitted(fitted, data))
    ranking = rank(require_review(fitted, model))
    _, name = Location.of(data).parent()
    report = check_limits(ranking, name, max_suspect=max_suspect, min_quality=min_quality)
    if junit is not None:
        write_whole(Path(junit), report.to_junit().encode())
    if json:
        limits = [asdict(limit) for limit in report.limits]
        worst = records(report.worst)
        print_json({"passed": report.passed, "images": report.images, "limits": limits,
                    "worst": worst})  # fmt: skip
    else:
        print(report.to_markdown(), end="")
    if not report.passed:
        missed = [limit for limit in report.limits if not limit.passed]
        what = "; ".join(f"{one.name}: {one.found}, {one.allowed} allowed" for one in missed)
        note(f"{what}. gpgc report shows these masks")
        raise typer.Exit(EXIT_BELOW)
