"""``gpgc fit``."""

from __future__ import annotations

from enum import StrEnum
from shlex import quote
from typing import Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import facts, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import RUNNING, Json, Overwrite, Resume, check_choice, check_output

__all__ = ["EXAMPLE", "DataArgument", "Method", "MethodName", "Redundancy", "fit", "to_redundancy"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc fit horses.zarr -o model.zarr\n\n"
    "gpgc fit horses.zarr -o paper.zarr --redundancy 1.0 --workers 2"
)


class MethodName(StrEnum):
    """One noise variance an image, one for all, or the SVM."""

    GPGC = "gpgc"
    GP = "gp"
    SVM = "svm"


Method = Annotated[
    MethodName,
    typer.Option(
        help="One noise variance an image (gpgc), one for all (gp), or the baseline (svm)."
    ),
]
Redundancy = Annotated[
    str,
    typer.Option(
        help="How many superpixels of an image count as one: a number, or auto to solve for it. "
        "1.0 is the paper."
    ),
]
DataArgument = Annotated[
    str, typer.Argument(help="The dataset, as gpgc ingest made it: a path or URL.")
]


def to_redundancy(text: str) -> float | str:
    """The option's text as a number, or auto."""
    if text == "auto":
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise typer.BadParameter(
            f"{text!r} is neither auto nor a number above 0", param_hint="--redundancy"
        )
    return value


@on_cluster(always=False)
def fit(
    data: DataArgument,
    *,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="The model: a folder to make, or a URL such as s3://…"),
    ],
    method: Method = MethodName.GPGC,
    redundancy: Redundancy = "auto",
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations at most.")] = 100,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Where an unfinished fit is kept: a file, or a URL. Default: beside the model.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
    client: Any,
) -> None:
    """Learn a model, how reliable each image is, and how far it agrees with the rest.

    Runs in this process on all cores, or on --workers processes, or on a Dask cluster. Its state
    is kept after every read of the data: after a crash or Ctrl-C, the same command with --resume
    goes on. Next: gpgc rank, gpgc report.
    """
    check_choice(resume=resume, overwrite=overwrite)
    check_output(checkpoint, folder=out, urls=True)
    from gpgc_dask.pipelines.options import RunOptions
    from gpgc_dask.pipelines.train import train

    with Display() as display:
        model = train(
            data,
            out,
            method=method.value,
            parameters=_parameters(method, redundancy, max_iter),
            checkpoint=checkpoint,
            announce=display.announce,
            run=RunOptions(resume, overwrite, progress=display.fit, client=client),
        )
    if json:
        print_json(_outcome(out, model))
    else:
        _show(_outcome(out, model))


def _parameters(method: MethodName, redundancy: str, max_iter: int) -> dict[str, Any]:
    if method is not MethodName.SVM:
        return {"redundancy": to_redundancy(redundancy), "max_iter": max_iter}
    if redundancy != "auto":
        raise typer.BadParameter("--redundancy belongs to gpgc and gp: an SVM has none")
    return {}


def _outcome(out: str, model: Any) -> dict[str, Any]:
    from gpgc_dask.results.ranking import is_suspect

    common = {
        "model": out,
        "images": len(model.review_),
        "suspect": int(is_suspect(model.review_).sum()),
        "converged": bool(model.converged_),
    }
    if not hasattr(model, "history_"):
        scores = dict(zip(model.C_grid_.tolist(), model.cv_scores_.tolist(), strict=True))
        return common | {"C": model.C_, "balanced_accuracy": scores.get(model.C_)}
    seconds = sum(sum(entry["seconds"].values()) for entry in model.history_)
    return common | {
        "log_evidence": float(model.log_evidence_),
        "iterations": model.n_iter_,
        "reads": model.n_reads_,
        "redundancy": float(model.redundancy_),
        "feature_scales": model.feature_scales_,
        "seconds": seconds,
    }


def _show(found: dict[str, Any]) -> None:
    images = ("images", f"{found['images']:,}, {found['suspect']:,} suspect (agreement below 0.5)")
    if "C" in found:
        chosen = f"{found['C']:.3g}, balanced accuracy {found['balanced_accuracy']:.3f} out of fold"
        print_out(f"[bold]{escape(found['model'])}[/bold]", facts([images, ("C", chosen)]))
        return
    settled = "" if found["converged"] else "; NOT settled: raise --max-iter and --resume"
    scales = ", ".join(f"{name} {value:.3g}" for name, value in found["feature_scales"].items())
    rows = [
        images,
        ("log evidence", f"{found['log_evidence']:,.1f}"),
        ("feature scales", scales),
        ("rows that count as one", f"{found['redundancy']:.2f}"),
        (
            "took",
            f"{found['reads']} reads of the data, {time_text(found['seconds'])}{settled}",
        ),
    ]
    print_out(f"[bold]{escape(found['model'])}[/bold]", facts(rows))
    print_out(f"Worst images: gpgc rank {escape(quote(found['model']))}")
