"""``gpgc fit``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpgc_dask.cli.cluster_options import on_cluster
from gpgc_dask.cli.console import facts, note, print_json, print_out, time_text
from gpgc_dask.cli.display import Display
from gpgc_dask.cli.options import RUNNING, Json, Overwrite, Resume, check_choice, check_output
from gpgc_dask.core.errors import StoreError
from gpgc_dask.models.registry import MODELS

if TYPE_CHECKING:
    from gpgc_dask.models.protocol import FittedModel
    from gpgc_dask.results.tracking import LoggedRun

__all__ = [
    "EXAMPLE",
    "DataArgument",
    "Method",
    "Redundancy",
    "Rounds",
    "fit",
    "to_class_weight",
    "to_method",
    "to_redundancy",
]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc fit horses.zarr -o model.zarr\n\n"
    "gpgc fit horses.zarr -o paper.zarr --redundancy 1.0 --rounds 0 --workers 2\n\n"
    "gpgc fit horses.zarr -o model.zarr --from model.zarr --overwrite"
)


Method = Annotated[
    str,
    typer.Option(
        help="Model: gpgc has one noise variance per image, gp one for all images, svm is the "
        f"baseline. Available: {', '.join(MODELS)}."
    ),
]
Redundancy = Annotated[
    str,
    typer.Option(
        help="Number of superpixels of an image that count as one, or auto to estimate it. 1.0 is "
        "the value of the paper."
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Rounds of the second look, in which superpixels whose labels are probably wrong lose "
        "their weight. Each reads the data twice; 0 is the method of the paper. Default: 2 for "
        "gpgc with two classes, otherwise 0.",
    ),
]
DataArgument = Annotated[
    str, typer.Argument(help="Dataset that gpgc ingest has written: a path or URL.")
]


def to_redundancy(text: str) -> float | str:
    """Convert the text of the option to a number, or return auto."""
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


def to_class_weight(text: str) -> str | None:
    """Convert the text of the option to the parameter of the models."""
    if text not in ("balanced", "none"):
        raise typer.BadParameter(
            f"{text!r} is not one of auto, balanced and none", param_hint="--class-weight"
        )
    return None if text == "none" else text


def to_method(text: str) -> str:
    """Check the name of a model."""
    if text not in MODELS:
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(MODELS)}", param_hint="--method"
        )
    return text


@on_cluster(always=False)
def fit(
    data: DataArgument,
    *,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="Model to write: a new folder, or a URL such as s3://…"),
    ],
    method: Method = "gpgc",
    redundancy: Redundancy = "auto",
    rounds: Rounds = None,
    class_weight: Annotated[
        str,
        typer.Option(
            help="Weights of the classes: balanced gives all classes the same total, none every "
            "superpixel its own weight, auto (default) chooses by the number of classes: balanced "
            "with two, between the two with more."
        ),
    ] = "auto",
    max_iter: Annotated[int, typer.Option(min=1, help="Maximum number of iterations.")] = 100,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Model of the same dataset to start at, for example before some masks were "
            "corrected: fewer reads, the same optimum. With --overwrite it may be the model to "
            "write.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="File or URL at which an unfinished fit is kept. Default: next to the model.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="EXPERIMENT",
            help="Log parameters, metrics, ranking and report to this experiment of MLflow, at "
            "the MLFLOW_TRACKING_URI of the environment.",
        ),
    ] = None,
    json: Json = False,
    client: Any,
) -> None:
    """Fit a model, and estimate how reliable each image is.

    The fit runs in this process on all cores, on --workers processes, or on a Dask cluster. Its
    state is saved after every read of the data: after a crash or Ctrl-C, the same command with
    --resume continues it. Next: gpgc rank, gpgc report.
    """
    check_choice(resume=resume, overwrite=overwrite)
    check_output(checkpoint, folder=out, urls=True)
    from gpgc_dask.pipelines.options import RunOptions
    from gpgc_dask.pipelines.train import train

    if mlflow is not None:
        from gpgc_dask.results.tracking import open_experiment

        open_experiment(mlflow)
    with Display() as display:
        model = train(
            data,
            out,
            method=to_method(method),
            parameters=_parameters(method, redundancy, rounds, class_weight, max_iter),
            start=start,
            checkpoint=checkpoint,
            announce=display.announce,
            run=RunOptions(resume, overwrite, progress=display.fit, client=client),
        )
    outcome = _outcome(out, model)
    if not json:
        _show(outcome, model)
    if mlflow is not None:
        outcome["mlflow"] = asdict(_log(data, out, model, mlflow))
    if json:
        print_json(outcome | _confusion(data, model))
    elif mlflow is not None:
        note(f"MLflow has the fit as run {outcome['mlflow']['run_id']} of {mlflow}")


def _parameters(
    method: str, redundancy: str, rounds: int | None, class_weight: str, max_iter: int
) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    if class_weight != "auto":
        parameters["class_weight"] = to_class_weight(class_weight)
    if "redundancy" in MODELS[method]().get_params():
        parameters |= {"redundancy": to_redundancy(redundancy), "max_iter": max_iter}
        return parameters if rounds is None else parameters | {"rounds": rounds}
    for option, given in (("redundancy", redundancy != "auto"), ("rounds", rounds is not None)):
        if given:
            raise typer.BadParameter(f"--{option} is for gpgc and gp: {method} has none")
    return parameters


def _outcome(out: str, model: FittedModel) -> dict[str, Any]:
    from gpgc_dask.results.ranking import count_bad, is_suspect

    review = model.review_table
    assert review is not None  # train reviews every model
    return {
        "model": out,
        "images": len(review),
        "suspect": int(is_suspect(review).sum()),
        "bad": None if (bad := count_bad(review)) is None else asdict(bad),
        "converged": bool(model.converged_),
        **model.fit_summary,
    }


def _log(data: str, out: str, model: FittedModel, experiment: str) -> LoggedRun:
    """Log the fit; what MLflow prints to stdout is not part of this program's output."""
    from gpgc_dask.models.fitted_dataset import open_fitted
    from gpgc_dask.results.tracking import log_to_mlflow
    from gpgc_dask.storage.location import Location

    dataset = open_fitted(model, data)
    try:
        with redirect_stdout(sys.stderr):
            return log_to_mlflow(
                model, dataset, experiment=experiment, saved_as=Location.of(out).url
            )
    except StoreError as error:
        raise StoreError(
            f"{out} is complete, but {error}. The same command with --resume logs it again"
        ) from None


def _confusion(data: str, model: FittedModel) -> dict[str, Any]:
    from gpgc_dask.models.fitted_dataset import open_fitted
    from gpgc_dask.results.ranking import confusion

    if model.classes_.size < 3:
        return {}
    return {"confusion": confusion(model, open_fitted(model, data))}


def _show(outcome: dict[str, Any], model: FittedModel) -> None:
    from gpgc_dask.models.review import require_review
    from gpgc_dask.results.ranking import headline

    rows = [("images", f"{outcome['images']:,}"), ("masks", headline(require_review(model)))]
    if "C" in outcome:
        score = f"balanced accuracy {outcome['balanced_accuracy']:.3f} in held-out folds"
        rows += [("C", f"{outcome['C']:.3g}, {score}")]
    if "log_evidence" in outcome:
        rows += _evidence_rows(outcome)
    print_out(f"[bold]{escape(outcome['model'])}[/bold]", facts(rows))
    print_out(f"Worst images: gpgc rank {escape(quote(outcome['model']))}")


def _evidence_rows(outcome: dict[str, Any]) -> list[tuple[str, str]]:
    converged = "" if outcome["converged"] else "; NOT converged: raise --max-iter and --resume"
    scales = ", ".join(f"{name} {value:.3g}" for name, value in outcome["feature_scales"].items())
    return [
        ("log evidence", f"{outcome['log_evidence']:,.1f}"),
        ("feature scales", scales),
        ("rows that count as one", f"{outcome['redundancy']:.2f}"),
        (
            "took",
            f"{outcome['reads']} reads of the data, {time_text(outcome['seconds'])}{converged}",
        ),
    ]
