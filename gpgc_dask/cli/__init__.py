"""The program ``gpgc``: a thin layer over the library, no logic of its own.

Its commands import the library when they run, so that ``--help`` and wrong calls answer at once.
"""

from __future__ import annotations

import functools
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
)
from gpgc_dask.cli.console import note, print_error
from gpgc_dask.core.errors import GpgcError

__all__ = ["app", "main"]

EXIT_FAILURE, EXIT_MISUSE, EXIT_INTERRUPTED = 1, 2, 130

EXPECTED = (GpgcError, OSError, MemoryError)
"""Errors that are printed in one line: our own, and those of the machine (a full disk, say).

Any other exception is a bug, and is shown with its traceback.
"""

UsageError: Any = typer.BadParameter.__base__
"""Click's, wherever the installed Typer has it from."""

app = typer.Typer(
    name="gpgc",
    help=(
        "Find the images whose annotation is unreliable, and learn a segmentation model in which "
        "they do no harm.\n\nSee it work with **gpgc demo**. On your own folders: **gpgc ingest**, "
        "then **gpgc fit**, then **gpgc rank** and **gpgc report**. Results go to stdout, progress "
        "to stderr. **--debug**, anywhere, shows where in the program an error arose."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"gpgc_dask {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The name and help of the program are those of ``app``."""


def _told(command: Callable[..., None], *, resumable: bool) -> Callable[..., None]:
    """The command, whose errors are one message that says what to do."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            print_error(
                "stopped. What is done is kept: the same command with --resume goes on"
                if resumable
                else "stopped"
            )
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except EXPECTED as error:
            if _debugging():
                raise
            print_error(_message(error))
            raise typer.Exit(EXIT_FAILURE) from None
        except Exception:
            traceback.print_exc()
            print_error(
                "this is a bug in gpgc_dask: please report it with the lines above and the command"
            )
            raise typer.Exit(EXIT_FAILURE) from None

    return run


def _message(error: Exception) -> str:
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", []))
    return (str(error) or type(error).__name__) + notes


def _add(name: str, command: Callable[..., None], example: str, *, resumable: bool = False) -> None:
    app.command(name, epilog=example)(_told(command, resumable=resumable))


_add("demo", demo.demo, demo.EXAMPLE)
_add("ingest", ingest.ingest, ingest.EXAMPLE, resumable=True)
_add("plan", plan.plan, plan.EXAMPLE)
_add("fit", fit.fit, fit.EXAMPLE, resumable=True)
_add("rank", rank.rank_images, rank.RANK_EXAMPLE)
_add("select", rank.select, rank.SELECT_EXAMPLE)
_add("export", export.export, export.EXAMPLE)
_add("report", report.report, report.EXAMPLE)
_add("predict", predict.predict, predict.EXAMPLE, resumable=True)
_add("evaluate", evaluate.evaluate, evaluate.EXAMPLE)
_add("compare", compare.compare, compare.EXAMPLE)
_add("autoseg", autoseg.autoseg, autoseg.EXAMPLE, resumable=True)
_add("info", info.info, info.EXAMPLE)
_add("certs", certs.certs, certs.EXAMPLE)
_add("deploy", deploy.deploy, deploy.EXAMPLE)


def _debugging() -> bool:
    return logging.getLogger("gpgc_dask").isEnabledFor(logging.DEBUG)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; ends with exit code 0, 1 (failed), 2 (wrongly called) or 130 (Ctrl-C)."""
    _open_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    logging.getLogger("gpgc_dask").setLevel(logging.DEBUG if debug else logging.WARNING)
    _show_logs()
    if debug:
        app(args=given, prog_name="gpgc")
    # Workers that are stopped in the middle of something say so at length.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(_run(given))


class _Notes(logging.Handler):
    """What the library logs, as notes: a request that is repeated, a read begun anew."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _show_logs() -> None:
    logger = logging.getLogger("gpgc_dask")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())


def _open_streams() -> None:
    """Letters that a terminal does not know are told by number; a closed stream swallows all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    """The exit code; a wrong call is told in one line."""
    try:
        return app(args=arguments, prog_name="gpgc", standalone_mode=False) or 0
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            return EXIT_MISUSE
        context = getattr(error, "ctx", None)
        place = "gpgc" if context is None else context.command_path
        message = error.format_message().removeprefix("Invalid value: ")
        print_error(f"{message} ({place} --help shows how)")
        return EXIT_MISUSE
    except typer.Abort:
        return EXIT_FAILURE


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Warnings meant for users in one line; those meant for programmers not at all."""
    if not issubclass(category, (DeprecationWarning, FutureWarning, ResourceWarning)):
        note(str(message))
