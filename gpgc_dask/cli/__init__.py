"""The program ``gpgc``: a thin layer over the library.

Commands import the library when they run, so that ``--help`` and wrong usage are fast.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from gpgc_dask import __version__
from gpgc_dask.cli import (
    autoseg,
    certs,
    check,
    compare,
    demo,
    deploy,
    evaluate,
    export,
    fit,
    info,
    ingest,
    plan,
    predict,
    rank,
    report,
    review,
    score,
    update,
    verdicts,
)
from gpgc_dask.cli.console import note, print_error
from gpgc_dask.core.errors import EXIT_MAY_PASS, EXIT_PERMANENT, GpgcError, exit_code

__all__ = ["EXIT_CODES", "app", "main"]

EXIT_INTERRUPTED = 130

EXIT_CODES = (
    "**Exit codes:** 0 done; 1 failed, and the same command may succeed later (cluster, store or "
    "disk, or a bug); 2 failed, and would fail again until something is changed (wrong options, "
    "a missing or foreign file, not enough memory by plan); 3 done, and masks are below the limit "
    "of gpgc check or of score --min-quality; 130 stopped by Ctrl-C."
)

EXPECTED = (GpgcError, OSError, MemoryError)
"""Errors that are printed in one line: those of gpgc_dask and of the machine (a full disk).

Any other exception is a bug, and is shown with its traceback.
"""

UsageError: Any = typer.BadParameter.__base__
"""Click's class, from the module in which the installed Typer has it."""

app = typer.Typer(
    name="gpgc",
    help=(
        "Find the images whose masks are unreliable, and learn a segmentation model that such "
        "masks do not harm.\n\nTry it with **gpgc demo**. For your own folders run **gpgc "
        "ingest**, **gpgc fit**, then **gpgc rank** and **gpgc report**. Results are printed to "
        "stdout, progress to stderr. With **--debug** errors have a traceback."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gpgc_dask {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """The options of the program itself."""


def _with_messages(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose errors are printed in one line."""
    options = inspect.signature(command).parameters
    stopped = "stopped"
    if "resume" in options:
        stopped += ". Finished work is kept: the same command with --resume continues it"
    elif "prune" in options:
        stopped += ". Finished work is kept: the same command continues it"

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            print_error(stopped)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (typer.Exit, typer.Abort, UsageError, BrokenPipeError):
            raise
        except EXPECTED as error:
            if _debugging():
                raise
            print_error(_message(error))
            raise typer.Exit(exit_code(error)) from None
        except Exception:
            traceback.print_exc()
            print_error(
                "this is a bug in gpgc_dask: please report it with the lines above and the command"
            )
            raise typer.Exit(EXIT_MAY_PASS) from None

    return run


def _message(error: Exception) -> str:
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", []))
    return (str(error) or type(error).__name__) + notes


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo.demo, demo.EXAMPLE),
    "ingest": (ingest.ingest, ingest.EXAMPLE),
    "update": (update.update, update.EXAMPLE),
    "plan": (plan.plan, plan.EXAMPLE),
    "fit": (fit.fit, fit.EXAMPLE),
    "rank": (rank.rank_images, rank.RANK_EXAMPLE),
    "select": (rank.select, rank.SELECT_EXAMPLE),
    "export": (export.export, export.EXAMPLE),
    "report": (report.report, report.EXAMPLE),
    "review": (review.review, review.EXAMPLE),
    "verdicts": (verdicts.verdicts, verdicts.EXAMPLE),
    "score": (score.score, score.EXAMPLE),
    "check": (check.check, check.EXAMPLE),
    "predict": (predict.predict, predict.EXAMPLE),
    "evaluate": (evaluate.evaluate, evaluate.EXAMPLE),
    "compare": (compare.compare, compare.EXAMPLE),
    "autoseg": (autoseg.autoseg, autoseg.EXAMPLE),
    "info": (info.info, info.EXAMPLE),
    "certs": (certs.certs, certs.EXAMPLE),
    "deploy": (deploy.deploy, deploy.EXAMPLE),
}
"""{name: (function, examples)}, in the order of ``gpgc --help``."""

for _name, (_command, _example) in COMMANDS.items():
    app.command(_name, epilog=_example)(_with_messages(_command))


def _debugging() -> bool:
    return logging.getLogger("gpgc_dask").isEnabledFor(logging.DEBUG)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program, and exit with one of ``EXIT_CODES``."""
    _open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    logging.getLogger("gpgc_dask").setLevel(logging.DEBUG if debug else logging.WARNING)
    _show_logs()
    if debug:
        app(args=words, prog_name="gpgc")
    # Workers that are stopped while they work log long tracebacks.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(_run(words))


class _Notes(logging.Handler):
    """Prints the log of the library as notes: repeated requests, restarted reads."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _show_logs() -> None:
    logger = logging.getLogger("gpgc_dask")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())


def _open_streams() -> None:
    """Escape characters that a terminal cannot show; replace closed streams by the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    """Run a command and return the exit code; wrong usage is reported in one line."""
    try:
        return app(args=arguments, prog_name="gpgc", standalone_mode=False) or 0
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            return EXIT_PERMANENT
        context = getattr(error, "ctx", None)
        place = "gpgc" if context is None else context.command_path
        message = error.format_message().removeprefix("Invalid value: ")
        print_error(f"{message} ({place} --help shows how)")
        return EXIT_PERMANENT
    except typer.Abort:
        return EXIT_MAY_PASS


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print warnings for users in one line; hide those for programmers."""
    if not issubclass(category, (DeprecationWarning, FutureWarning, ResourceWarning)):
        note(str(message))
