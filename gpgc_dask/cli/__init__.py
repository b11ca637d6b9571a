"""The program ``gpgc``: a thin layer over the library, no logic of its own."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from gpgc_dask.cli import info, ingest
from gpgc_dask.cli.console import complain

__all__ = ["app", "main"]

EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130

app = typer.Typer(
    name="gpgc",
    help=(
        "Find the images whose annotation is unreliable, and learn a segmentation model in which "
        "they do no harm.\n\nBegin with **gpgc ingest**. Results go to stdout, progress to stderr. "
        "**--debug**, anywhere, shows where in the program an error arose."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _program() -> None:
    """The name and help of the program are those of ``app``."""


def _told(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose errors are one message that says what to do."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            complain("stopped. What is done is kept: the same command with --resume goes on")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            if _debugging():
                raise
            notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", []))
            complain((str(error) or type(error).__name__) + notes)
            raise typer.Exit(EXIT_FAILURE) from None

    return run


app.command("ingest", epilog=ingest.EXAMPLE)(_told(ingest.ingest))
app.command("info", epilog=info.EXAMPLE)(_told(info.info))


def _debugging() -> bool:
    return logging.getLogger("gpgc_dask").isEnabledFor(logging.DEBUG)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; ends with exit code 0, 1 (failed), 2 (wrongly called) or 130 (Ctrl-C)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    logging.getLogger("gpgc_dask").setLevel(logging.DEBUG if debug else logging.WARNING)
    if not debug:
        # Workers that are stopped in the middle of something say so at length.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
    app(args=[argument for argument in given if argument != "--debug"], prog_name="gpgc")
